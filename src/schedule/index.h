// Index arithmetic of the scheduler: how the index of an element of a movement op's result becomes the index of an
// element of its source.
//
// Index expressions are kept in one canonical form: a sum of terms c*t, sorted, plus a constant, where t is a RANGE or a
// division or remainder. So two ways to say the same index are the same node, and most divisions by RESHAPE vanish.
#pragma once
#include "base/small_vec.h"
#include "ir/uop.h"

namespace whit::sched {

using Index = SmallVec<UOp, 6>;

/// sum of idx[i] * factor[i], canonical.
UOp add_index(const UOp& a, const UOp& b);
UOp add_index(const UOp& a, int64_t c);
UOp mul_index(const UOp& a, int64_t c);
/// e // c and e % c (floor) for c > 0.
void div_mod_index(const UOp& e, int64_t c, UOp& quotient, UOp& remainder);

/// Row-major number of an element.
UOp flatten(std::span<const UOp> index, std::span<const int64_t> dims);
/// Its reverse.
Index unflatten(UOp flat, std::span<const int64_t> dims);
/// Index in `to` of the element that has `index` in `from`: same number of elements.
Index reshape_index(std::span<const UOp> index, std::span<const int64_t> from, std::span<const int64_t> to);

/// a AND b; null means true.
UOp and_gate(const UOp& a, const UOp& b);
/// lo <= e < hi; null when that is known to hold.
UOp in_range(const UOp& e, int64_t lo, const Sint& hi);
/// True when every condition of `part` is one of `whole`.
bool gate_implies(const UOp& whole, const UOp& part);

/// Index into the source of a movement op with one source (all but PAD, STACK, UNWINDOW), from the index into the
/// result.
Index source_index(const Node* op, std::span<const UOp> index);

}  // namespace whit::sched
