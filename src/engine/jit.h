// Jit: what realize() ran once, replayed with other inputs.
//
// How it works. Between Capture's construction and finish(), every realize() of this thread runs as usual and its calls
// are recorded. finish() turns them into one call list: programs with arrays of handles, where only the places of inputs
// and outputs change between replays. Temporaries of all runs share one arena a device; nothing is allocated, locked or
// looked up for a kernel of a replay.
//
// Requirements: (1) a replay gives what running the captured function again on the new inputs would give, as far as that
// goes through tensors, or an error with its reason; (2) a result that somebody still holds is not overwritten: the
// replay binds fresh memory for it; (3) memory that existed before the capture (weights, state) is used where it is, and
// stores into it happen in place.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "ir/interpret.h"
#include "ir/uop.h"
#include "runtime/buffer.h"

namespace whit::engine {

/// A captured function.
class CapturedGraph {
 public:
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// Runs the calls with `inputs` (BUFFERs, or RESHAPEs of them, of the dtypes, shapes and devices of the capture: the caller
  /// has seen to that, and that no graph that will be computed reads what the calls overwrite) in the place of those of the
  /// capture. Gives a view for each output of finish(), of the same shape.
  /// errors: Jit, when memory is passed that the graph itself writes, so that replaying would not be what the function does;
  /// nothing has run then
  std::vector<UOp> replay(std::span<const UOp> inputs, const VariableValues& variables = {});

  /// The kernels of the last replay once more, for who knows that the generation is still the same. Returns false, and does nothing,
  /// when calling them is not enough: in a capture, with queues, copies or timing.
  bool launch();

  /// Memory from before the capture that the calls use in place.
  struct FixedMemory {
    BufferPtr memory;
    bool is_written;
  };
  std::vector<FixedMemory> fixed_memory() const;
  size_t n_inputs() const;
  bool writes_input(size_t number) const;

  int64_t n_kernels() const;
  int64_t arena_bytes() const;    ///< of temporaries
  int64_t lasting_bytes() const;  ///< of what is computed only when what it is computed from has changed

 private:
  friend class Capture;
  struct Impl;
  explicit CapturedGraph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// An open capture of this thread. Ends without a graph when it dies before finish().
class Capture {
 public:
  /// `inputs` are what changes between replays: BUFFERs, or RESHAPEs of them, already realised.
  /// errors: Jit when a capture is open on this thread already, or an input is no buffer
  explicit Capture(std::span<const UOp> inputs);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Closes the capture. `outputs` are views of BUFFERs (realised); replay gives new values for them. What is computed of
  /// nothing but memory that stays the same lasts from replay to replay, up to `lasting_bytes`: it takes no turns in an arena.
  /// errors: Jit when nothing was run, or an output is not realised
  std::unique_ptr<CapturedGraph> finish(std::span<const UOp> outputs, int64_t lasting_bytes = 256 << 20);
  /// BUFFERs that stood for memory which the calls have overwritten. A graph over one reads the content from before.
  std::span<const UOp> overwritten() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// True while a capture is open on this thread.
bool is_capturing();

}  // namespace whit::engine
