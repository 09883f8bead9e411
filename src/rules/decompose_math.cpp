// EXP2, LOG2 and POW of float32 and float64 as polynomials: no tables, no branches, no calls. Accuracy:
// docs/accuracy.md.
//
// How it works. Each function reduces its argument to a small interval, evaluates a minimax polynomial by Horner with
// fused multiply-adds, and puts the exponent or sign back by integer operations. The reduced argument is exact, or its
// error is carried along, so what is lost is the last rounding and a fraction. Requirements:
//  1. Every result follows IEEE 754 for NaN, infinities, zeros and subnormal numbers, without a branch.
//  2. What the front end writes for e^x is recognised here, EXP2(x * log2(e)), because the rounding of its product would
//     cost up to 45 units in the last place.
#include <cmath>
#include <limits>
#include <numbers>

#include "rules/decompose_build.h"

namespace whit {
namespace {

using namespace whit::pat;
using namespace whit::rules::detail;

// A binary float format and the ints of its width.
struct Format {
  DType dtype, ints;
  int n_mantissa, bias;
  double round_magic;  // x + magic - magic rounds x to an integer, which the low bits of x + magic hold
  int64_t round_bits;
};
constexpr Format kF32{DType::Float32, DType::Int32, 23, 127, 0x1.8p23, 0x4B400000};
constexpr Format kF64{DType::Float64, DType::Int64, 52, 1023, 0x1.8p52, 0x4338000000000000};

UOp clamp(const UOp& a, double lo, double hi) {  // NaN stays
  const UOp least = const_like(a, lo), most = const_like(a, hi);
  const UOp raised = where(lt(a, least), least, a);
  return where(lt(most, raised), most, raised);
}
// a * 2^n for an `a` near 1. In two steps, because 2^n alone may be out of range; only the second one rounds.
UOp scale(const Format& fmt, const UOp& a, const UOp& n_int) {
  const UOp half = shr(n_int, 1), bias = constant(fmt.ints, fmt.bias);
  const UOp first = to_bits(shl(half + bias, fmt.n_mantissa), fmt.dtype);
  const UOp second = to_bits(shl(n_int - half + bias, fmt.n_mantissa), fmt.dtype);
  return a * first * second;
}

// 2^x = 2^n (1 + t q(t)), |t| <= 1/2. Errors of 1 + t q(t): 2^-27.9, 2^-55.6.
constexpr double kExp2F32[] = {0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6af88p-5, 0x1.3b2e0cp-7, 0x1.5f03dap-10, 0x1.414ed4p-13};
constexpr double kExp2F64[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5a1p-3,  0x1.c6b08d704a046p-5,  0x1.3b2ab6fba0791p-7,
                               0x1.5d87fe78c374cp-10, 0x1.4309130dc56eep-13, 0x1.ffcbfbc7c47d1p-17, 0x1.62bfc9f589641p-20,
                               0x1.b52652e678ef6p-24, 0x1.e617b47640327p-28, 0x1.e7c6c3e757fedp-32};
// e^t = 1 + t + t^2 q(t), |t| <= ln(2)/2. Errors: 2^-28, 2^-56.4.
constexpr double kExpF32[] = {0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558f2p-5, 0x1.1239e2p-7, 0x1.6a2434p-10};
constexpr double kExpF64[] = {0x1.000000000000ap-1,  0x1.55555555554fap-3,  0x1.555555555087dp-5,  0x1.1111111127befp-7,  0x1.6c16c18429e42p-10,
                              0x1.a01a012a533edp-13, 0x1.a0199a0cdab44p-16, 0x1.71df255ea59bdp-19, 0x1.28ad7268ca8b5p-22, 0x1.ad7f57fb72f8ap-26};

UOp exp2_of(const Format& fmt, const UOp& arg) {
  const bool is_f32 = fmt.dtype == DType::Float32;
  const UOp a = is_f32 ? clamp(arg, -151, 129) : clamp(arg, -1076, 1025);
  const UOp magic = const_like(a, fmt.round_magic);
  const UOp shifted = a + magic;
  const UOp t = a - (shifted - magic);
  const UOp n_int = to_bits(shifted, fmt.ints) - constant(fmt.ints, fmt.round_bits);
  const UOp q_of_t = horner(t, is_f32 ? std::span<const double>(kExp2F32) : std::span<const double>(kExp2F64));
  return scale(fmt, fma(q_of_t, t, const_like(a, 1.0)), n_int);
}

// n ln(2) is subtracted in two parts; the first difference is exact.
UOp exp_of(const Format& fmt, const UOp& arg) {
  const bool is_f32 = fmt.dtype == DType::Float32;
  const UOp a = is_f32 ? clamp(arg, -105, 90) : clamp(arg, -746, 711);
  const UOp magic = const_like(a, fmt.round_magic);
  const UOp shifted = fma(a, const_like(a, std::numbers::log2e), magic);
  const UOp n_float = shifted - magic;
  const UOp n_int = to_bits(shifted, fmt.ints) - constant(fmt.ints, fmt.round_bits);
  const double high = is_f32 ? 0x1.62e43p-1 : 0x1.62e42fefa39efp-1;
  const double low = is_f32 ? -0x1.05c610p-29 : 0x1.abc9e3b39803fp-56;
  const UOp t = fma(n_float, const_like(a, -low), fma(n_float, const_like(a, -high), a));
  const UOp q_of_t = horner(t, is_f32 ? std::span<const double>(kExpF32) : std::span<const double>(kExpF64));
  return scale(fmt, fma(t * t, q_of_t, t) + const_like(a, 1.0), n_int);
}

// log2(1 + t) = t log2(e) + t^2 q(t), sqrt(1/2) <= 1 + t < sqrt(2). Error: 2^-29.5.
constexpr double kLog2F32[] = {-0x1.715476p-1, 0x1.ec7088p-2,  -0x1.715494p-2, 0x1.277f30p-2,  -0x1.ec788ep-3,
                               0x1.a414dap-3,  -0x1.6e9698p-3, 0x1.5fa180p-3,  -0x1.58fbfap-3, 0x1.8d6128p-4};
// log(1 + t) = 2 s + s^3 r(s^2) with s = t / (2 + t). Error: 2^-58.
constexpr double kLogF64[] = {0x1.5555555555592p-1, 0x1.999999997fdb9p-2, 0x1.24924941f111dp-2, 0x1.c71c520971f57p-3,
                              0x1.74663ee2ff93fp-3, 0x1.39a1bb5ebc957p-3, 0x1.2f055bffbebfdp-3};

UOp log2_of(const Format& fmt, const UOp& arg) {
  const bool is_f32 = fmt.dtype == DType::Float32;
  const UOp zero = const_like(arg, 0.0), one = const_like(arg, 1.0), inf = const_like(arg, HUGE_VAL);
  // Subnormal numbers are made normal.
  const UOp tiny = lt(arg, const_like(arg, is_f32 ? 0x1p-126 : 0x1p-1022));
  const UOp a = where(tiny, arg * const_like(arg, std::ldexp(1.0, fmt.n_mantissa)), arg);
  // a = 2^n (1 + t), by the distance of a's bits to those of sqrt(1/2).
  const UOp bits = to_bits(a, fmt.ints);
  const UOp n_int = shr(bits - constant(fmt.ints, is_f32 ? int64_t{0x3F3504F3} : int64_t{0x3FE6A09E667F3BCD}), fmt.n_mantissa);
  const UOp t = to_bits(bits - shl(n_int, fmt.n_mantissa), fmt.dtype) - one;
  const UOp n_float = cast(n_int, fmt.dtype) - where(tiny, const_like(arg, fmt.n_mantissa), zero);
  // high + low = log2(1 + t), |high| <= 1/2
  UOp high, low;
  if (is_f32) {
    const UOp log2e = const_like(t, 0x1.715476p+0), log2e_low = const_like(t, 0x1.4ae0c0p-26);
    high = t * log2e;
    low = fma(t * t, horner(t, kLog2F32), fma(t, log2e_low, fma(t, log2e, -high)));
  } else {
    // log(1 + t) = t - t^2/2 + s (t^2/2 + s^2 r(s^2)); t - t^2/2 is kept as a sum of two.
    const UOp log2e = const_like(t, 0x1.71547652b82fep+0), log2e_low = const_like(t, 0x1.777d0ffda0d24p-56);
    const UOp s = alu(Op::Fdiv, {t, t + const_like(t, 2.0)}), z = s * s;
    const UOp half_t = t * const_like(t, 0.5), square = half_t * t;
    const UOp square_low = fma(half_t, t, -square);
    const UOp head = t - square;
    const UOp tail = (t - head) - square - square_low + s * fma(z, horner(z, kLogF64), square);
    high = head * log2e;
    low = fma(tail, log2e, fma(head, log2e_low, fma(head, log2e, -high)));
  }
  const UOp sum = n_float + high;
  const UOp value = sum + ((high - (sum - n_float)) + low);
  // Zero, negative numbers, infinity and NaN.
  const UOp nan = const_like(arg, std::numeric_limits<double>::quiet_NaN());
  const UOp special = where(equal(arg, zero), const_like(arg, -HUGE_VAL), where(lt(arg, zero), nan, arg));
  return where(lt(zero, arg) & lt(arg, inf), value, special);
}

// x^y as 2^(y log2 |x|) in float64, whose 29 extra bits cover what the product magnifies.
UOp pow_f32(const UOp& base, const UOp& power) {
  constexpr DType kWide = DType::Float64;
  const UOp a = cast(base, kWide), b = cast(power, kWide);
  const UOp zero = const_like(a, 0.0), one = const_like(a, 1.0);
  const UOp size = cast(to_bits(mask(to_bits(base, DType::UInt32), 0x7FFFFFFF), DType::Float32), kWide);
  const UOp finite_power = equal(b - b, zero);
  const UOp is_int = equal(alu(Op::Trunc, {b}), b) | logical_not(finite_power);
  const UOp half = b * const_like(b, 0.5);
  const UOp is_odd = (is_int & finite_power) & unequal(alu(Op::Trunc, {half}), half);
  UOp value = alu(Op::Exp2, {alu(Op::Log2, {size}) * b});
  // 1 to the power of an infinity.
  value = where(equal(size, one) & equal(b, b), one, value);
  const UOp negative = lt(to_bits(base, DType::Int32), constant(DType::Int32, 0));
  value = where(negative & is_odd, -value, value);
  const UOp below = lt(a, zero) & lt(const_like(a, -HUGE_VAL), a);
  value = where(below & logical_not(is_int), const_like(a, std::numeric_limits<double>::quiet_NaN()), value);
  value = where(equal(b, zero) | equal(a, one), one, value);
  return cast(value, DType::Float32);
}

const Format* format_of(DType dtype) { return dtype == DType::Float32 ? &kF32 : dtype == DType::Float64 ? &kF64 : nullptr; }
UOp lower_exp(const Match& at, RuleCtx& cx) {
  const Format* const fmt = format_of(at.root->dtype);
  if (!fmt || has_op(at, cx)) return {};
  const UOp log2e = constant(fmt->dtype, std::numbers::log2e), minus_log2e = constant(fmt->dtype, -std::numbers::log2e);
  if (at[d0] == log2e) return exp_of(*fmt, at[f]);
  return at[d0] == minus_log2e ? exp_of(*fmt, -at[f]) : UOp();
}
// 1 / (1 + e^x) with the error of the sum put right: in the quotient it would weigh as much as that of e^x.
UOp lower_logistic(const Match& at, RuleCtx& cx) {
  const UOp e = at[g], one = const_like(e, 1.0);
  if (!format_of(e.dtype()) || cx.as<const Caps>().has(Op::Exp2)) return {};
  const UOp sum = e + one, part = sum - e;
  const UOp low = (e - (sum - part)) + (one - part);
  const UOp quotient = alu(Op::Fdiv, {one, sum});  // not RECIP, which is the root again
  // A step of Newton's takes the rounding of the quotient away too; out of range it would make NaN of 0 * inf.
  const UOp rest = fma(-quotient, low, fma(-quotient, sum, one));
  return where(lt(sum, const_like(e, HUGE_VAL)), fma(quotient, rest, quotient), quotient);
}
template <UOp (*make)(const Format&, const UOp&)> UOp lower(const Match& at, RuleCtx& cx) {
  const Format* const fmt = format_of(at.root->dtype);
  return !fmt || has_op(at, cx) ? UOp() : make(*fmt, at[f]);
}
UOp lower_pow(const Match& at, RuleCtx& cx) { return at.root->dtype != DType::Float32 || has_op(at, cx) ? UOp() : pow_f32(at[f], at[g]); }

constexpr Rule kRules[] = {
    rule_fn("logistic", recip(bind(g, exp2(f* d0)) + 1.0), lower_logistic).grows("it is more accurate"),
    rule_fn("exp", exp2(f* d0), lower_exp).grows(kTarget),
    rule_fn("exp2", exp2(f), lower<exp2_of>).grows(kTarget),
    rule_fn("log2", log2(f), lower<log2_of>).grows(kTarget),
    rule_fn("pow", pow(f, g), lower_pow).grows(kTarget),
};

}  // namespace

WHIT_RULE_SET(rules::decompose_math, "decompose-math", kRules)

}  // namespace whit
