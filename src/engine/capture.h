// What realize() tells an open capture. Between realize.cpp and jit.cpp.
#pragma once
#include "engine/run.h"

namespace whit::engine {

/// Records the calls that one thread executes.
class Recorder {
 public:
  virtual ~Recorder() = default;
  /// Arenas are numbered by the BoundArg's buffer; they die with the run, so the recorder brings memory of its own.
  virtual void record(const BoundCall& call) = 0;
  /// New memory that outlives the run it was made in. `is_state`: stores into a computed value go there.
  virtual void record_output(const BufferPtr& buffer, bool is_state) = 0;
  /// A BUFFER whose memory the calls of this run have written, and the node that stood for the content before.
  virtual void record_written(const UOp& buffer_node, const UOp& before) = 0;
  /// True for memory that each replay brings anew.
  virtual bool is_input(const Buffer& buffer) const = 0;
};

/// The recorder of this thread, or null.
Recorder*& current_recorder();

}  // namespace whit::engine
