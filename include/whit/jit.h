// TinyJit: a function of tensors, run once, captured at its second call, replayed afterwards.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "whit/tensor.h"

namespace whit {

/// What the function does besides tensor work (prints, counters, branches) happens in the first two calls only. Tensors
/// that it captures (weights, state) are used and updated where they are. With the flag JIT=0 every call runs it.
///   TinyJit step([&](std::span<const Tensor> in) { return std::vector{model(in[0]).realize()}; });
///   Tensor y = step({x})[0];
class TinyJit {
 public:
  using Body = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  /// With a `memory_budget` no run of the body has more bytes of temporaries at once: values are computed again instead.
  /// errors of a call: Memory when that cannot be, with the least there can be
  explicit TinyJit(Body body, int64_t memory_budget = 0);
  ~TinyJit();
  TinyJit(const TinyJit&) = delete;
  TinyJit& operator=(const TinyJit&) = delete;

  /// Results are realised. A result that is still held is not overwritten by the next call.
  /// errors: Jit when an input is a constant without memory, when number, shape, dtype or device of the inputs differ
  /// from the captured ones, when nothing was run in the captured call
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) { return call(inputs, body_); }
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs = {}) {
    return call(std::span<const Tensor>(inputs.begin(), inputs.size()), body_);
  }
  /// The same with the body given at the call, for those who bind arguments of other kinds.
  std::vector<Tensor> call(std::span<const Tensor> inputs, const Body& body);

  /// True when the next call replays.
  bool is_captured() const { return captured_ != nullptr; }
  /// Calls since construction or reset.
  int64_t cnt() const { return cnt_; }
  void reset();
  /// Kernels of the captured graph, 0 before.
  int64_t n_kernels() const;
  /// Bytes of its temporaries, and of what it computes only when what that is computed from has changed (packed or transformed
  /// weights); 0 before.
  int64_t arena_bytes() const;
  int64_t lasting_bytes() const;

 private:
  std::vector<Tensor> checked_call(std::span<const Tensor> inputs, const Body& body, uint64_t generation);

  struct Captured;
  Body body_;
  std::unique_ptr<Captured> captured_;
  int64_t cnt_ = 0, memory_budget_ = 0;
  bool settles_values_ = false;  // a capture failed because of values that waited
};

}  // namespace whit
