// Integer expressions as sums: the normal form of addresses and gates, and the node builder that keeps to it.
//
// An index is brought to  c0*t0 + c1*t1 + ... + constant  with the terms of outer loops first. So what an inner loop
// does not change is a prefix that lowering hoists, unrolled copies differ in their constant alone, and a LANES term
// with coefficient 1 shows a contiguous access.
#pragma once
#include "rules/linear.h"

namespace whit::codegen {

using Affine = Linear;

constexpr bool is_index_type(DType dt) { return dt == DType::WeakInt || dt == DType::Int64; }

/// Sums, differences and products with constants are taken apart; everything else is a term. A sum that does not fit is
/// one term.
Affine affine_of(const UOp& u);
/// Terms of outer loops first, the constant last.
UOp build_affine(const Affine& a, DType dtype);

/// UOp::make, but integers and bools fold where their bounds or the affine form say so. Floats are left alone.
UOp make_folded(Op op, DType dtype, std::span<const UOp> src, const Arg& arg);

}  // namespace whit::codegen
