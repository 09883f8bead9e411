// The gradient table: a row an op says how the gradient of a node becomes gradients of its sources, as nodes again, so
// that gradients can be differentiated too.
#pragma once
#include <functional>
#include <vector>

#include "ir/uop.h"

namespace whit {

/// Gradients of the sources of `node`, given that of the node: one entry a source, null where none passes.
/// errors: NotImplemented, naming the op, when the table has no row for it
std::vector<UOp> source_gradients(const UOp& node, const UOp& grad);
/// False for ops through which no gradient passes (comparisons, DETACH, integers ...).
bool passes_gradient(const Node* node);
/// A value without a device on several devices, as SHARD wants it; another one as it is.
UOp on_each(const UOp& x, uint16_t device);
/// What a linear movement op does backwards: `grad` has the shape of `node`, the result that of its source.
UOp transpose_movement(const UOp& node, const UOp& grad);
/// The same for a chain of movement ops down to `base`.
UOp transpose_chain(const UOp& chain, const UOp& base, UOp grad);

/// The gradient of a CALL by its maker: from the gradients of its results (null where none arrives) those of its
/// arguments (null where none passes). A CALL whose arg is the id uses it.
using CustomGradient = std::function<std::vector<UOp>(std::span<const UOp> out_grads, const UOp& call)>;
int64_t add_custom_gradient(CustomGradient fn);
CustomGradient custom_gradient(int64_t id);

/// The dtype in which values of `dt` are summed, by the flag SUM_DTYPE.
DType sum_dtype(DType dt);
/// The axes of a tensor's REDUCE.
Dims axes_of(const UOp& reduce);
/// Sum over axes, which stay with size 1, in the accumulation dtype.
UOp sum_axes(const UOp& x, std::span<const int64_t> axes);

/// True when an op has a row, or is known to pass no gradient.
bool has_gradient(Op op);

/// Reverse walk from `roots`, whose own gradients are `grads`: the gradients of `targets`, null where unreached. `targets`
/// may contain inner nodes. cost: linear in the graph
std::vector<UOp> gradients(std::span<const UOp> roots, std::span<const UOp> grads, std::span<const UOp> targets);

}  // namespace whit
