// The tables that decompose joins, and short names for what they are written in. Private to rules/decompose*.cpp and the tests of the
// rules, which find the Caps in RuleCtx::user.
#pragma once
#include <span>

#include "ir/build.h"
#include "rules/decompose.h"
#include "rules/rules.h"

namespace whit::rules {

const RuleSet& decompose_int();     ///< division, powers, threefry
const RuleSet& decompose_math();    ///< EXP2, LOG2, POW of float32 and float64
const RuleSet& decompose_trig();    ///< SIN, and the cosine
const RuleSet& decompose_narrow();  ///< float16, bfloat16 and the float8s, through float32

namespace detail {

inline UOp to_bits(const UOp& a, DType dtype) { return UOp::make(Op::Bitcast, dtype, {a}); }
inline UOp shl(const UOp& a, int64_t by) { return alu(Op::Shl, {a, constant(a.dtype(), by)}); }
inline UOp shr(const UOp& a, int64_t by) { return alu(Op::Shr, {a, constant(a.dtype(), by)}); }
inline UOp mask(const UOp& a, int64_t bits) { return alu(Op::And, {a, constant(a.dtype(), bits)}); }
inline UOp equal(const UOp& a, const UOp& b) { return alu(Op::CmpEq, {a, b}); }
inline UOp unequal(const UOp& a, const UOp& b) { return alu(Op::CmpNe, {a, b}); }
inline UOp zero_of(const UOp& a) { return constant(a.dtype(), 0); }
inline UOp fma(const UOp& a, const UOp& b, const UOp& c) { return alu(Op::MulAcc, {a, b, c}); }
/// c[0] + a (c[1] + a (...))
inline UOp horner(const UOp& a, std::span<const double> c) {
  UOp sum = const_like(a, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = fma(sum, a, const_like(a, c[i]));
  return sum;
}

/// The target has the root's op (for its dtype).
inline bool has_op(const Match& at, RuleCtx& cx) {
  const Caps& caps = cx.as<const Caps>();
  return caps.has(at.root->op) || (at.root->dtype == DType::Float64 && caps.has_f64(at.root->op));
}

inline constexpr const char* kTarget = "the target has no such op";

}  // namespace detail
}  // namespace whit::rules
