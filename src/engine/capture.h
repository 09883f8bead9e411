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
  /// New memory that outlives the run it was made in.
  virtual void record_output(const BufferPtr& buffer) = 0;
};

/// The recorder of this thread, or null.
Recorder*& current_recorder();

}  // namespace whit::engine
