// float16, bfloat16 and the float8 types: arithmetic through float32, rounded once an op, and conversions by bits.
//
// Why float32 is enough: it has at least 2p + 2 bits of a format with p, so a sum, product, quotient or square root
// rounded to float32 and then to the format is rounded correctly. What has no such guarantee (float64, 64-bit ints) is
// rounded to odd first, which keeps the second rounding right. Subnormal numbers and NaN are kept. Sums are wide before
// they come here (codegen/lower.cpp), so there is no MULACC and no FOLD.
#include <array>
#include <cmath>

#include "ir/eval.h"
#include "rules/decompose_build.h"

namespace whit {
namespace {

using namespace whit::pat;
using namespace whit::rules::detail;

constexpr DTypes kFp8 = bit(DType::Fp8E4M3) | bit(DType::Fp8E4M3FNUZ) | bit(DType::Fp8E5M2) | bit(DType::Fp8E5M2FNUZ);
constexpr DTypes kNarrow = kFp8 | bit(DType::Float16) | bit(DType::BFloat16);
constexpr DType kF32 = DType::Float32, kF64 = DType::Float64, kU32 = DType::UInt32;

UOp number(int64_t v) { return constant(kU32, v); }

// ---- conversions

struct Format {
  int n_mantissa, bias;
  int64_t max_code, inf_code, nan_code;  // what a large number, an infinity and a NaN become, without sign
  bool is_fnuz;
  int width() const { return n_mantissa <= 3 ? 8 : 16; }
};
DType bits_type(DType dt) { return is_fp8(dt) ? DType::UInt8 : DType::UInt16; }
Format format_of(DType dt) {
  const bool is_fnuz = dt == DType::Fp8E4M3FNUZ || dt == DType::Fp8E5M2FNUZ;
  const auto code_of = [&](double v) { return eval_scalar(Op::Bitcast, bits_type(dt), std::array{Scalar::of(dt, v)}).i; };
  const int bias = (1 << (info(dt).exponent_bits - 1)) - (is_fnuz ? 0 : 1);
  return {info(dt).mantissa_bits, bias, code_of(0x1p1000), code_of(HUGE_VAL), code_of(NAN), is_fnuz};
}

UOp decode(const UOp& a) {
  const DType dt = a.dtype();
  const UOp code = cast(to_bits(a, bits_type(dt)), kU32);
  if (dt == DType::BFloat16) return to_bits(shl(code, 16), kF32);
  const Format fmt = format_of(dt);
  const int64_t sign_bit = int64_t{1} << (fmt.width() - 1);
  const UOp size = mask(code, sign_bit - 1);
  const UOp sign = shl(mask(code, sign_bit), 32 - fmt.width());
  // The code, shifted, is the number with the wrong exponent; the product also makes subnormal numbers right.
  UOp value = to_bits(shl(size, 23 - fmt.n_mantissa), kF32) * constant(kF32, std::ldexp(1.0, 127 - fmt.bias));
  UOp bits = to_bits(value, kU32);
  const UOp nan = number(0x7FC00000);
  if (fmt.is_fnuz) return to_bits(where(equal(code, number(0x80)), nan, bits | sign), kF32);
  if (dt == DType::Fp8E4M3) {
    bits = where(equal(size, number(0x7F)), nan, bits);
  } else {
    const UOp payload = number(0x7F800000) | shl(size, 23 - fmt.n_mantissa);
    bits = where(lt(size, number(fmt.inf_code)), bits, payload);
  }
  return to_bits(bits | sign, kF32);
}

UOp encode_bf16(const UOp& a) {
  const UOp bits = to_bits(a, kU32), high = shr(bits, 16);
  const UOp rounded = shr(bits + number(0x7FFF) + mask(high, 1), 16);
  const UOp code = where(unequal(a, a), high | number(0x40), rounded);
  return to_bits(cast(code, DType::UInt16), DType::BFloat16);
}

UOp encode(const UOp& a, DType dt) {
  if (dt == DType::BFloat16) return encode_bf16(a);
  const Format fmt = format_of(dt);
  const int drop = 23 - fmt.n_mantissa, least_exponent = 1 - fmt.bias;
  const UOp bits = to_bits(a, kU32), size = mask(bits, 0x7FFFFFFF);
  // Normal: drop bits, to nearest even, and move the exponent.
  const UOp odd = mask(shr(size, drop), 1);
  const UOp normal = shr(size + number((int64_t{1} << (drop - 1)) - 1) + odd, drop) - number(int64_t{127 - fmt.bias} << fmt.n_mantissa);
  // Subnormal: adding this makes the FPU round to the quantum; the low bits count the quanta.
  const double magic = std::ldexp(1.0, 23 + least_exponent - fmt.n_mantissa);
  const int64_t magic_bits = int64_t{127 + 23 + least_exponent - fmt.n_mantissa} << 23;
  const UOp quanta = to_bits(to_bits(size, kF32) + constant(kF32, magic), kU32) - number(magic_bits);
  UOp code = where(lt(size, number(int64_t{127 + least_exponent} << 23)), quanta, normal);
  code = alu(Op::Min, {code, number(fmt.max_code)});
  const UOp inf = number(0x7F800000);
  code = where(equal(size, inf), number(fmt.inf_code), code);
  code = where(lt(inf, size), number(fmt.nan_code), code);
  const UOp sign = shr(mask(bits, int64_t{0x80000000}), 32 - fmt.width());
  UOp whole = code | sign;
  // No -0; a NaN has this code alone, whatever its sign.
  if (fmt.is_fnuz) whole = where(equal(code, number(0)), number(0), whole);
  return to_bits(cast(whole, bits_type(dt)), dt);
}

// float64 to float32, rounded to odd: a second rounding to 22 bits or fewer is then as if it were the only one.
UOp round_to_odd(const UOp& a) {
  const UOp near = cast(a, kF32), back = cast(near, kF64), bits = to_bits(near, kU32);
  const auto size = [](const UOp& v) { return to_bits(mask(to_bits(v, DType::UInt64), 0x7FFFFFFFFFFFFFFF), kF64); };
  const UOp down = bits - cast(lt(size(a), size(back)), kU32);
  return to_bits(where(unequal(back, a), down | number(1), bits), kF32);
}

// A 64-bit int that a float64 holds, and that rounds to 30 bits or fewer as `a` does: its low 16 bits are squeezed
// into one that says "something was here".
UOp squeeze(const UOp& a) {
  const DType dt = a.dtype();
  const UOp sticky = where(unequal(mask(a, 0xFFFF), constant(dt, 0)), constant(dt, 0x8000), constant(dt, 0));
  const UOp squeezed = mask(a, ~int64_t{0xFFFF}) | sticky;
  const UOp top = alu(Op::Shr, {a, constant(dt, 40)});
  const UOp is_small = dt == DType::UInt64 ? equal(top, constant(dt, 0)) : (equal(top, constant(dt, 0)) | equal(top, constant(dt, -1)));
  return where(is_small, a, squeezed);
}

UOp cast_from_narrow(const Match& at, RuleCtx& cx) {
  const UOp a = at[f];
  const DType to = at.root->dtype;
  if (to == a.dtype()) return a;
  if (to != kF32) return cast(cast(a, kF32), to);
  return cx.as<const Caps>().has_convert(a.dtype()) ? UOp() : decode(a);
}
UOp cast_to_narrow(const Match& at, RuleCtx& cx) {
  const UOp a = at[x];
  const DType from = a.dtype(), to = at.root->dtype;
  if (from == kF32) return cx.as<const Caps>().has_convert(to) ? UOp() : encode(a, to);
  if (from == kF64) return cast(round_to_odd(a), to);
  // What float32 rounds before is infinite in float16.
  if (n_bytes(from) <= 2 || to == DType::Float16) return cast(cast(a, kF32), to);
  return cast(cast(n_bytes(from) == 8 ? squeeze(a) : a, kF64), to);
}

// ---- arithmetic

constexpr OpSet kUnary = {Op::Neg, Op::Recip, Op::Sqrt, Op::Exp2, Op::Log2, Op::Sin, Op::Trunc};
constexpr OpSet kBinary = {Op::Add, Op::Mul, Op::Sub, Op::Fdiv, Op::Max, Op::Min, Op::Cmod, Op::FloorMod, Op::Pow};

UOp through_f32(const Match& at, RuleCtx& cx) {
  const DType dt = at.root->src_begin()[0]->dtype;
  if (cx.as<const Caps>().has_arith(dt)) return {};
  // What overflows float32 would be infinite, where a float8 saturates.
  const bool overflows = is_fp8(dt) && (at.root->op == Op::Exp2 || at.root->op == Op::Pow);
  SmallVec<UOp, 2> src;
  for (const Node* s : at.root->src()) src.push_back(cast(UOp(s), overflows ? kF64 : kF32));
  const UOp wide = alu(at.root->op, std::span<const UOp>(src.data(), src.size()));
  return at.root->dtype == DType::Bool ? wide : cast(wide, dt);
}

constexpr Rule kRules[] = {
    rule_fn("narrow-unary", op(kUnary, f).of(kNarrow), through_f32).grows(kTarget),
    rule_fn("narrow-binary", op(kBinary, f, g).of(kNarrow), through_f32).grows(kTarget),
    rule_fn("narrow-compare", op(kCompare, Pat(f).of(kNarrow), g), through_f32).grows(kTarget),
    rule_fn("cast-from-narrow", cast(Pat(f).of(kNarrow)), cast_from_narrow).grows(kTarget),
    rule_fn("cast-to-narrow", cast(x).of(kNarrow), cast_to_narrow).grows(kTarget),
};

}  // namespace

WHIT_RULE_SET(rules::decompose_narrow, "decompose-narrow", kRules)

}  // namespace whit
