// What realize() tells an open capture. Between realize.cpp and jit.cpp.
#pragma once
#include "engine/run.h"

namespace whit::engine {

/// Records what one thread runs. What a nested capture records belongs to the outer ones too.
struct Recorder {
  std::vector<const Buffer*> inputs{};  ///< memory that each replay brings anew
  /// Arenas are numbered by the BoundArg's buffer; they die with the run, so the recorder brings memory of its own.
  std::vector<BoundCall> calls{};
  /// New memory that outlives the run it was made in. `is_state`: stores into a computed value go there.
  struct Made {
    BufferPtr buffer;
    bool is_state;
  };
  std::vector<Made> made{};
  /// BUFFERs whose memory the calls have written, and the nodes that stood for the content before.
  std::vector<UOp> written{}, overwritten{};
  Recorder* outer = nullptr;

  void record(const BoundCall& call);
  void record_output(const BufferPtr& buffer, bool is_state);
  void record_written(const UOp& buffer_node, const UOp& before);
  bool is_input(const Buffer& buffer) const;
};

inline constinit thread_local Recorder* current_recorder = nullptr;  ///< this thread's

}  // namespace whit::engine
