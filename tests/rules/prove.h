// Proofs that two integer expressions are equal.
#pragma once
#include <z3++.h>

#include "rules/instance.h"

namespace whit::test {

enum class Proof { Yes, No, Unknown, NotApplicable };

/// Integers and bools have proofs.
bool provable(const UOp& u);
/// Both sides of a rule for root dtype `dt` (and comparisons of `operand`s), for all captures, constants too. The index
/// type is a Z3 Int, sized integers are bit vectors.
Proof prove_pattern(z3::context& z, const Pat& lhs, const Pat& rhs, DType dt, DType operand, unsigned timeout_ms);
/// Nodes before and after a rewrite, for all values of leaves within their bounds. Of INDEXes: gates agree, and
/// addresses where the gate is true.
Proof prove_firing(z3::context& z, const UOp& before, const UOp& after, unsigned timeout_ms);
/// Tries all values of the leaves when they are few: a proof where Z3's nonlinear arithmetic gives up.
Proof prove_by_trying(const UOp& before, const UOp& after);

}  // namespace whit::test
