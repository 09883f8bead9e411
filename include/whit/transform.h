// Transforms of functions of tensors: batching, derivatives in both directions, recomputation. Each traces its function
// with stand-ins that have a shape, a dtype and a device but no data, so transforms compose in every order. While a
// function is traced a TinyJit in it runs as the function that it wraps, and reading data is an error.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "whit/tensor.h"

namespace whit {

using TensorFn = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

struct VmapOptions {
  /// The axis of each argument that is mapped; absent: the argument is the same for all examples. One entry, or none
  /// (axis 0), stands for all arguments.
  std::vector<std::optional<int64_t>> in_axes = {};
  /// Where the mapped axis goes in each result; one entry, or none (axis 0), stands for all.
  std::vector<int64_t> out_axes = {};
};

/// What fn(one example) gives for all examples at once: a pass over the graph of fn, not a loop. fn sees its arguments
/// without the mapped axis. Random numbers in fn are the same for all examples.
/// errors: Value when no argument is mapped or the mapped sizes differ; Index for an axis out of range
std::vector<Tensor> vmap(const TensorFn& fn, std::span<const Tensor> inputs, const VmapOptions& o = {});
/// The same on several devices, each of which has a part of the examples: what is mapped is cut along its axis, what is not
/// is copied to each. Inputs that are on several devices stay as they are.
/// errors: those of vmap and of Tensor::shard, for examples that cannot be cut evenly
std::vector<Tensor> pmap(const TensorFn& fn, std::span<const Tensor> inputs, std::span<const std::string> devices, const VmapOptions& o = {});

struct Jvp {
  std::vector<Tensor> outputs, tangents;
};
/// Forward mode: fn(primals) and the derivative of each output in the direction of `tangents` (J v).
/// errors: Value when a tangent's number or shape differs from the primal's; Runtime for a dtype that is no float
Jvp jvp(const TensorFn& fn, std::span<const Tensor> primals, std::span<const Tensor> tangents);

struct Vjp {
  std::vector<Tensor> outputs;
  /// From cotangents, one an output in its shape, to the gradients of the inputs (v J).
  std::function<std::vector<Tensor>(std::span<const Tensor>)> pullback;
};
/// Reverse mode.
Vjp vjp(const TensorFn& fn, std::span<const Tensor> primals);

/// The gradients of fn's first output, a scalar, with respect to all inputs, as a function.
TensorFn grad(TensorFn fn);

/// result[o][i] has the shape of output o followed by that of input i. Forward mode where the inputs have fewer elements
/// than the outputs, else reverse mode.
std::vector<std::vector<Tensor>> jacobian(const TensorFn& fn, std::span<const Tensor> inputs);

/// Second derivatives of fn's first output, a scalar: result[i][j] has the shape of input i followed by that of input j.
std::vector<std::vector<Tensor>> hessian(const TensorFn& fn, std::span<const Tensor> inputs);

/// True while a transform traces a function in this thread.
bool is_tracing();

/// fn(inputs), whose values other than the results are computed again for the gradient instead of kept for it: less memory
/// for more time. All tensors that exist before the call count as its inputs, weights too. A hint: the scheduler keeps
/// what frees nothing.
std::vector<Tensor> checkpoint(const TensorFn& fn, std::span<const Tensor> inputs);

}  // namespace whit
