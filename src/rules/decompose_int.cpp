// Integer ops that no machine has as they are.
#include <bit>

#include "rules/decompose_build.h"

namespace whit {
namespace {

using namespace whit::pat;
using namespace whit::rules::detail;

bool is_power_of_two(const Node* c) {
  return !c->arg.is_invalid() && c->arg.to_int() > 0 && std::has_single_bit(static_cast<uint64_t>(c->arg.to_int()));
}
// Neither operand is negative (or both are unsigned): floor and truncation agree.
bool never_negative(const Match& at) {
  const Node *a = at.root->src_begin()[0], *b = at.root->src_begin()[1];
  return is_unsigned(at.root->dtype) || (a->vmin >= 0 && b->vmin >= 0);
}

// The truncated remainder r is wrong exactly when it is not 0 and its sign is not the divisor's. A positive divisor
// leaves the sign of r as the only question.
UOp remainder_is_off(const UOp& rest, const UOp& divisor) {
  if (divisor.vmin() > 0) return lt(rest, zero_of(rest));
  const UOp signs_differ = unequal(lt(rest, zero_of(rest)), lt(divisor, zero_of(divisor)));
  const UOp off = unequal(rest, zero_of(rest)) & signs_differ;
  // x // 0 is 0 and x mod 0 is x; both would be moved.
  return divisor.vmax() < 0 ? off : off & unequal(divisor, zero_of(divisor));
}

UOp lower_floor_div(const Match& at, RuleCtx& cx) {
  if (has_op(at, cx)) return {};
  const UOp a = at[n], b = at[m];
  const UOp quotient = alu(Op::Cdiv, {a, b});
  return where(remainder_is_off(alu(Op::Cmod, {a, b}), b), quotient - constant(a.dtype(), 1), quotient);
}
UOp lower_floor_mod(const Match& at, RuleCtx& cx) {
  if (has_op(at, cx)) return {};
  const UOp rest = alu(Op::Cmod, {at[n], at[m]});
  return where(remainder_is_off(rest, at[m]), rest + at[m], rest);
}
UOp lower_floor_mod_float(const Match& at, RuleCtx& cx) {
  if (has_op(at, cx)) return {};
  const UOp a = at[f], b = at[g], zero = const_like(a, 0.0);
  const UOp rest = alu(Op::Cmod, {a, b});
  const UOp signed_zero = where(lt(b, zero), const_like(a, -0.0), zero);
  const UOp off = unequal(lt(rest, zero), lt(b, zero));
  return where(equal(rest, zero), signed_zero, where(off, rest + b, rest));
}

// By squaring, as many steps as the exponent may have bits.
UOp lower_int_pow(const Match& at, RuleCtx& cx) {
  if (has_op(at, cx)) return {};
  const UOp base = at[n], exponent = at[m];
  const DType dt = base.dtype();
  const UOp one = constant(dt, 1), zero = zero_of(base);
  int n_bits = std::min(info(dt).bits, 64) - (is_unsigned(dt) ? 0 : 1);
  if (dt != DType::UInt64 || exponent.is_const())
    n_bits = std::min(n_bits, static_cast<int>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(exponent.vmax(), 0)))));
  if (dt == DType::UInt64 && exponent.is_const()) n_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(const_int(exponent))));
  UOp power = base, result = one;
  for (int b = 0; b < n_bits; ++b) {
    const UOp bit_of = alu(Op::Shr, {exponent, constant(dt, b)}) & one;
    result = result * where(unequal(bit_of, zero), power, one);
    power = power * power;
  }
  if (is_unsigned(dt) || exponent.vmin() >= 0) return result;
  const UOp minus_one = constant(dt, -1);
  const UOp odd = unequal(exponent & one, zero);
  const UOp inverse = where(equal(base, one), one, where(equal(base, minus_one), where(odd, minus_one, one), zero));
  return where(lt(exponent, zero), inverse, result);
}

UOp lower_threefry(const Match& at, RuleCtx& cx) {
  if (has_op(at, cx)) return {};
  static constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  constexpr DType kHalf = DType::UInt32, kWhole = DType::UInt64;
  const auto number = [](int64_t v) { return constant(kHalf, v); };
  const auto low = [](const UOp& a) { return cast(a, kHalf); };
  const auto high = [](const UOp& a) { return cast(alu(Op::Shr, {a, constant(kWhole, 32)}), kHalf); };
  const UOp counter = at[n], key = at[m];
  const UOp keys[3] = {low(key), high(key), low(key) ^ high(key) ^ number(0x1BD11BDA)};
  UOp x0 = low(counter) + keys[0], x1 = high(counter) + keys[1];
  for (int group = 0; group < 5; ++group) {
    for (const int by : kRotations[group % 2]) {
      x0 = x0 + x1;
      x1 = (alu(Op::Shl, {x1, number(by)}) | alu(Op::Shr, {x1, number(32 - by)})) ^ x0;
    }
    x0 = x0 + keys[(group + 1) % 3];
    x1 = x1 + keys[(group + 2) % 3] + number(group + 1);
  }
  return alu(Op::Shl, {cast(x1, kWhole), constant(kWhole, 32)}) | cast(x0, kWhole);
}

constexpr Rule kRules[] = {
    // Two's complement: an arithmetic shift is a floor division, the low bits are the floor's remainder.
    rule_fn("floor-div-power", floor_div(n, c0),
            [](const Match& at, RuleCtx&) -> UOp {
              if (!is_power_of_two(at.slot[c0.slot])) return {};
              return alu(Op::Shr, {at[n], constant(at.root->dtype, std::countr_zero(static_cast<uint64_t>(at[c0])))});
            }),
    rule_fn("floor-mod-power", floor_mod(n, c0),
            [](const Match& at, RuleCtx&) -> UOp {
              if (!is_power_of_two(at.slot[c0.slot])) return {};
              return at[n] & constant(at.root->dtype, at[c0] - 1);
            }),
    rule("floor-div-positive", floor_div(n, m), trunc_div(n, m), never_negative),
    rule("floor-mod-positive", floor_mod(n, m), trunc_mod(n, m), never_negative),
    rule_fn("floor-div", floor_div(n, m), lower_floor_div).grows(kTarget),
    rule_fn("floor-mod", floor_mod(n, m), lower_floor_mod).grows(kTarget),
    rule_fn("floor-mod-float", floor_mod(f, g), lower_floor_mod_float).grows(kTarget),
    rule_fn("int-pow", pow(n, m), lower_int_pow).grows(kTarget),
    rule_fn("threefry", op(Op::Threefry, n, m), lower_threefry).grows(kTarget),
};

}  // namespace

WHIT_RULE_SET(rules::decompose_int, "decompose-int", kRules)

}  // namespace whit
