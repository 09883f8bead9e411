// SIN of float32 and float64, and the cosine, which the front end writes as 1 - 2 sin(x/2)^2.
//
// How it works. Payne and Hanek's reduction, for all magnitudes alike: |x| = m 2^e with an integer m, so x 2/pi modulo 4
// needs only a window of the bits of 2/pi that begins at the bit of weight 2^(1-e); its product with m has the quarter
// turns in its two top bits and the rest below. The rest goes through a polynomial for the sine or the cosine, by the
// parity of the quarter turns. Below 1/2 nothing is reduced. No tables in memory, no branches: words of 2/pi are chosen
// by WHEREs.
#include <limits>

#include "rules/decompose_build.h"

namespace whit {
namespace {

using namespace whit::pat;
using namespace whit::rules::detail;

constexpr DType kF32 = DType::Float32, kF64 = DType::Float64, kU32 = DType::UInt32, kU64 = DType::UInt64;

UOp word(uint64_t v) { return constant(kU32, static_cast<int64_t>(v)); }
UOp wide(uint64_t v) { return constant(kU64, static_cast<int64_t>(v)); }

// The bits of 2/pi after the point.
constexpr uint32_t kTwoOverPi[] = {0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB, 0xDEBBC561,
                                   0xB7246E3A, 0x424DD2E0, 0x06492EEA, 0x09D1921C, 0xFE1DEB1C, 0xB129A73E, 0xE88235F5, 0x2EBB4484,
                                   0xE99C7026, 0xB45F7E41, 0x3991D639, 0x835339F4, 0x9C845F8B, 0xBDF9283B, 0x1FF897FF, 0xDE05980F,
                                   0xEF2F118B, 0x5A0A6D1F, 0x6D367ECF, 0x27CB09B7, 0x4F463F66, 0x9E5FEA2D, 0x7527BAC7, 0xEBE5F17B,
                                   0x3D0739F7, 0x8A5292EA, 0x6BFB5FB1, 0x1F8D5D08, 0x56033046};

// The 32-bit words of 2/pi (after n_zeros words of 0) from bit `start` on.
std::vector<UOp> window_of(const UOp& start, size_t n_zeros, size_t n_words, int n_levels) {
  std::vector<UOp> words(n_zeros, word(0));
  const size_t last = (size_t{1} << n_levels) + n_words;  // first words 0 ... 2^n_levels are possible
  for (size_t i = 0; words.size() <= last; ++i) words.push_back(word(i < std::size(kTwoOverPi) ? kTwoOverPi[i] : 0));
  const UOp first = shr(start, 5);
  // Bit by bit of the word number, as a barrel shifter does it.
  for (int level = n_levels; level >= 0; --level) {
    const size_t step = size_t{1} << level, n_left = level == n_levels ? n_words + 1 : step + n_words;
    const UOp moves = unequal(mask(first, static_cast<int64_t>(step)), word(0));
    // At the top level a move leaves nothing more to move, so the words that only a smaller number reaches stay.
    for (size_t j = 0; j < n_left && j + step < words.size(); ++j) words[j] = where(moves, words[j + step], words[j]);
  }
  const UOp by = cast(mask(start, 31), kU64);
  std::vector<UOp> window;
  for (size_t j = 0; j < n_words; ++j) {
    const UOp pair = shl(cast(words[j], kU64), 32) | cast(words[j + 1], kU64);
    window.push_back(shr(alu(Op::Shl, {pair, by}), 32));
  }
  return window;
}

struct Quadrant {
  UOp quarter;    // uint64, its two low bits count
  UOp high, low;  // the rest in radians, a sum of two; low is null for float32
};

// For float32 the rest is a float64, and 96 bits of 2/pi are enough.
Quadrant reduce_f32(const UOp& bits, const UOp& exponent) {
  const UOp mantissa = cast(mask(bits, 0x7FFFFF) | word(0x800000), kU64);
  const UOp least = word(126);
  const UOp start = where(lt(exponent, least), least, exponent) - word(120);
  const std::vector<UOp> w = window_of(start, 1, 3, 2);
  const UOp turns = shl(mantissa * w[0], 32) + mantissa * w[1] + shr(mantissa * w[2], 32);
  const UOp quarter = shr(turns + wide(uint64_t{1} << 61), 62);
  const UOp rest = cast(to_bits(turns - shl(quarter, 62), DType::Int64), kF64);
  const UOp size = cast(to_bits(mask(bits, 0x7FFFFFFF), kF32), kF64);
  const UOp is_small = lt(exponent, least);
  return {where(is_small, wide(0), quarter), where(is_small, size, rest * const_like(rest, 0x1.921fb54442d18p-62)), {}};
}

// For float64: 192 bits, of whose product with m 128 are kept: a float64 comes as near as 2^-62 to a multiple of pi/2.
Quadrant reduce_f64(const UOp& bits, const UOp& exponent) {
  const UOp mantissa = mask(bits, 0xFFFFFFFFFFFFF) | wide(uint64_t{1} << 52);
  const UOp least = wide(1022);
  const UOp start = cast(where(lt(exponent, least), least, exponent) - wide(1013), kU32);
  const std::vector<UOp> w = window_of(start, 2, 6, 5);
  // Limbs of 32 bits; those below 2^-94 only carry into what is kept.
  const UOp m0 = mask(mantissa, 0xFFFFFFFF), m1 = shr(mantissa, 32);
  UOp limb[6], carry;
  for (size_t p = 1; p < 6; ++p) {
    const UOp a = m0 * w[5 - p], below = m0 * w[6 - p], b = m1 * w[6 - p];
    UOp sum = mask(a, 0xFFFFFFFF) + shr(below, 32) + mask(b, 0xFFFFFFFF);
    if (p > 1) sum = sum + shr(m1 * w[7 - p], 32) + carry;
    limb[p] = mask(sum, 0xFFFFFFFF);
    carry = shr(sum, 32);
  }
  const UOp top = shl(limb[5], 32) | limb[4];
  const UOp quarter = shr(top + wide(uint64_t{1} << 61), 62);
  const UOp rest = top - shl(quarter, 62);
  // The magnitude (its complement is off by one unit of 2^-126), then an exact sum of three floats.
  const UOp negative = lt(to_bits(rest, DType::Int64), constant(DType::Int64, 0));
  const UOp flip = where(negative, wide(~uint64_t{0}), wide(0));
  const UOp size = rest ^ flip, below = limb[3] ^ mask(flip, 0xFFFFFFFF);
  const auto number = [](const UOp& limb_of, double unit) { return cast(to_bits(limb_of, DType::Int64), kF64) * constant(kF64, unit); };
  const UOp a = number(shr(size, 32), 0x1p32), b = number(mask(size, 0xFFFFFFFF), 1), c = number(below, 0x1p-32);
  const UOp ab = a + b, ab_low = b - (ab - a);
  const UOp sum = ab + c, sum_low = (c - (sum - ab)) + ab_low;
  const UOp unit = constant(kF64, 0x1.921fb54442d18p-62), unit_low = constant(kF64, 0x1.1a62633145c07p-116);
  const UOp high = sum * unit;
  const UOp low = fma(sum, unit, -high) + fma(sum, unit_low, sum_low * unit);
  const UOp is_small = lt(exponent, least), zero = constant(kF64, 0.0);
  const UOp magnitude = to_bits(mask(bits, 0x7FFFFFFFFFFFFFFF), kF64);
  return {where(is_small, wide(0), quarter), where(is_small, magnitude, where(negative, -high, high)),
          where(is_small, zero, where(negative, -low, low))};
}

// sin t = t + t^3 s(t^2), cos t = 1 + t^2 c(t^2), |t| <= pi/4. Errors: 2^-37, 2^-43.
constexpr double kSinF32[] = {-0x1.5555554cb91fap-3, 0x1.11110895b5601p-7, -0x1.a00f9d2b4eb67p-13, 0x1.6cd83a797019cp-19};
constexpr double kCosF32[] = {-0x1.ffffffffebf97p-2, 0x1.55555546f2c20p-5, -0x1.6c16b3ff46beep-10, 0x1.a00f10f77ad5cp-16, -0x1.23d7e76f58425p-22};
// The same with cos t = 1 - t^2/2 + t^4 c(t^2). Errors: 2^-57, 2^-60.
constexpr double kSinF64[] = {-0x1.5555555555549p-3, 0x1.111111110f87ap-7,   -0x1.a01a019c118eep-13,
                              0x1.71de3577aec68p-19, -0x1.ae5e66351b73cp-26, 0x1.5d92ff8c0f24cp-33};
constexpr double kCosF64[] = {0x1.555555555554cp-5,   -0x1.6c16c16c1517ep-10, 0x1.a01a019cb1bddp-16,
                              -0x1.27e4f809f0b73p-22, 0x1.1ee9ebe93caf5p-29,  -0x1.8fae9c7f7f1f6p-37};

UOp sine_of(const Quadrant& r) {
  const UOp &t = r.high, z = t * t;
  if (!r.low) return fma(t * z, horner(z, kSinF32), t);
  return t + fma(t * z, horner(z, kSinF64), fma(r.low * z, const_like(z, -0.5), r.low));
}
UOp cosine_of(const Quadrant& r) {
  const UOp &t = r.high, z = t * t, one = const_like(z, 1.0);
  if (!r.low) return fma(z, horner(z, kCosF32), one);
  const UOp half = z * const_like(z, 0.5), head = one - half;
  return head + (((one - head) - half) + fma(z * z, horner(z, kCosF64), -(t * r.low)));
}

UOp sin_or_cos(const UOp& arg, bool is_cos) {
  const bool is_f32 = arg.dtype() == kF32;
  const DType ints = is_f32 ? kU32 : kU64;
  const UOp bits = to_bits(arg, ints);
  const UOp exponent = is_f32 ? mask(shr(bits, 23), 0xFF) : mask(shr(bits, 52), 0x7FF);
  Quadrant r = is_f32 ? reduce_f32(bits, exponent) : reduce_f64(bits, exponent);
  if (is_cos) r.quarter = r.quarter + wide(1);
  const UOp value = cast(where(unequal(mask(r.quarter, 1), wide(0)), cosine_of(r), sine_of(r)), arg.dtype());
  UOp sign = shl(cast(mask(r.quarter, 2), ints), is_f32 ? 30 : 62);
  if (!is_cos) sign = sign ^ mask(bits, is_f32 ? int64_t{0x80000000} : std::numeric_limits<int64_t>::min());
  const UOp finite = to_bits(to_bits(value, ints) ^ sign, arg.dtype());
  return where(lt(exponent, constant(ints, is_f32 ? 0xFF : 0x7FF)), finite, arg - arg);
}

UOp lower_sin(const Match& at, RuleCtx& cx) {
  const DType dt = at.root->dtype;
  return (dt != kF32 && dt != kF64) || has_op(at, cx) ? UOp() : sin_or_cos(at[f], false);
}
UOp lower_cos(const Match& at, RuleCtx& cx) {
  const DType dt = at.root->dtype;
  return (dt != kF32 && dt != kF64) || cx.as<const Caps>().has(Op::Sin) ? UOp() : sin_or_cos(at[f], true);
}

constexpr Rule kRules[] = {
    rule_fn("cos", 1.0 - (bind(g, sin(f * 0.5)) * g) * 2.0, lower_cos).grows(kTarget),
    rule_fn("sin", sin(f), lower_sin).grows(kTarget),
};

}  // namespace

WHIT_RULE_SET(rules::decompose_trig, "decompose-trig", kRules)

}  // namespace whit
