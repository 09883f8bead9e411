// Identities of value arithmetic that hold for every value, NaN, infinities and -0.0 included.
#include <cmath>

#include "ir/build.h"
#include "ir/eval.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

constexpr Var a{3, kNonFloats}, b{4, kNonFloats};   // ints and bools
constexpr Var s{9, kSizedInts}, t{10, kSizedInts};  // ints that wrap
constexpr AnyConstVar any_const{kNoSlot};

constexpr OpSet kFoldable{Op::Neg,      Op::Recip,    Op::Sqrt, Op::Exp2, Op::Log2,  Op::Sin,   Op::Trunc, Op::Cast,  Op::Add,    Op::Mul,
                          Op::Sub,      Op::Fdiv,     Op::Max,  Op::Min,  Op::Cdiv,  Op::Cmod,  Op::Pow,   Op::And,   Op::Or,     Op::Xor,
                          Op::FloorDiv, Op::FloorMod, Op::Shl,  Op::Shr,  Op::CmpLt, Op::CmpNe, Op::CmpEq, Op::Where, Op::MulAcc, Op::Threefry};
constexpr OpSet kBounded{Op::Add,      Op::Mul,      Op::Sub, Op::Max, Op::Min,   Op::Cdiv,  Op::Cmod,  Op::Neg,   Op::And,  Op::Or,      Op::Xor,
                         Op::FloorDiv, Op::FloorMod, Op::Shl, Op::Shr, Op::CmpLt, Op::CmpNe, Op::CmpEq, Op::Where, Op::Cast, Op::Variable};

bool is_power_of_two(const UOp& c) {
  int exponent;
  return std::fabs(std::frexp(c.arg().to_double(), &exponent)) == 0.5;
}

// Is every value of `low` at most every value of `high`? The bounds of uint64 are those of its bits: they say nothing.
bool ordered(const Node* low, const Node* high) { return low->dtype != DType::UInt64 && low->vmax <= high->vmin; }

constexpr Rule kConstants[] = {
    rule_fn("fold", all(kFoldable, any_const), [](const Match& at, RuleCtx&) { return fold_op(at.root->op, at.root->dtype, at.root_uop().srcs()); }),
    rule_fn("one-value", rest(op(kBounded)).of(kNonFloats),
            [](const Match& at, RuleCtx&) -> UOp {
              const Node* n = at.root;
              if (n->vmin != n->vmax || n->vmin == INT64_MAX || n->vmin == INT64_MIN) return {};
              return constant(n->dtype, n->vmin);
            }),
    rule_fn("constant-right", op(kCommutative, d0, x),
            [](const Match& at, RuleCtx&) -> UOp {
              if (at[x].is_const()) return {};
              return alu(at.root->op, {at[x], at[d0]});
            })
        .any_order(),
    rule("max-constant-right", max(d0, a), max(a, d0), [](const Match& at) { return !at[a].is_const(); }),
    rule("min-constant-right", min(d0, a), min(a, d0), [](const Match& at) { return !at[a].is_const(); }),
};

constexpr Rule kIntRules[] = {
    rule("add-zero", a + 0, a),
    rule("mul-one", a * 1, a),
    rule("mul-zero", a * 0, 0),
    rule("sub-zero", a - 0, a),
    rule("sub-self", n - n, 0),
    rule("neg-neg", -(-n), n),
    rule("add-neg", comm(s + (-t)), s - t),
    rule("sub-neg", s - (-t), s + t),
    rule("sub-constant", s - c0, s + fold(-c0)),
    rule("add-back", comm((s - t) + t), s),
    rule("add-constants", (s + c0) + c1, s + fold(c0 + c1)),
    rule("add-constant-out", comm((s + c0) + t), (s + t) + c0),
    rule("mul-constants", (s * c0) * c1, s* fold(c0* c1)),
    rule("add-self", s + s, s * 2),
    rule("add-multiple", comm(s* c0 + s), s* fold(c0 + 1)),
    rule("add-multiples", s* c0 + s * c1, s* fold(c0 + c1)),
    rule("mul-minus-one", s * -1, -s),
    rule("div-one", trunc_div(n, 1), n),
    rule("mod-one", trunc_mod(n, 1), 0),
    rule("floor-div-one", floor_div(n, 1), n),
    rule("floor-mod-one", floor_mod(n, 1), 0),
    rule("div-zero", trunc_div(n, 0), 0),
    rule("mod-zero", trunc_mod(n, 0), n),
    rule("floor-div-zero", floor_div(n, 0), 0),
    rule("floor-mod-zero", floor_mod(n, 0), n),
    rule("zero-div", trunc_div(0, n), 0),
    rule("zero-mod", trunc_mod(0, n), 0),
    rule("zero-floor-div", floor_div(0, n), 0),
    rule("zero-floor-mod", floor_mod(0, n), 0),
    rule("mod-of-itself", trunc_mod(n, n), 0),
    rule("and-zero", a & 0, 0),
    rule("and-ones", n & -1, n),
    rule("and-self", a& a, a),
    rule("and-constants", (n & c0) & c1, n& fold(c0& c1)),
    rule("or-zero", a | 0, a),
    rule("or-ones", n | -1, -1),
    rule("or-self", a | a, a),
    rule("or-constants", (n | c0) | c1, n | fold(c0 | c1)),
    rule("xor-zero", a ^ 0, a),
    rule("xor-self", a ^ a, 0),
    rule("xor-constants", (a ^ c0) ^ c1, a ^ fold(c0 ^ c1)),
    rule("xor-back", comm(comm(a ^ b) ^ b), a),
    rule("shl-zero", shl(n, 0), n),
    rule("shr-zero", shr(n, 0), n),
    rule("max-self", max(x, x), x),
    rule("min-self", min(x, x), x),
    rule("max-constants", max(max(n, c0), c1), max(n, fold(max(c0, c1)))),
    rule("min-constants", min(min(n, c0), c1), min(n, fold(min(c0, c1)))),
    rule("max-decided", max(n, m), n, [](const Match& at) { return ordered(at.raw(m), at.raw(n)); }),
    rule("max-decided-right", max(n, m), m, [](const Match& at) { return ordered(at.raw(n), at.raw(m)); }),
    rule("min-decided", min(n, m), n, [](const Match& at) { return ordered(at.raw(n), at.raw(m)); }),
    rule("min-decided-right", min(n, m), m, [](const Match& at) { return ordered(at.raw(m), at.raw(n)); }),
    rule("lt-self", x < x, 0),
    rule("ne-self", ne(a, a), 0),
    rule("eq-self", eq(a, a), 1),
};

// x + 0.0, x - x, x * 0 and x / x are not here: each is wrong for some x.
constexpr Rule kFloatRules[] = {
    rule("add-negative-zero", f + -0.0, f),
    rule("sub-zero-float", f - 0.0, f),
    rule("mul-one-float", f * 1.0, f),
    rule("div-one-float", fdiv(f, 1.0), f),
    rule("mul-minus-one-float", f * -1.0, -f),
    rule("div-minus-one", fdiv(f, -1.0), -f),
    rule("neg-neg-float", -(-f), f),
    rule("add-neg-float", f + (-g), f - g),
    rule("neg-add-float", (-f) + g, g - f),
    rule("sub-neg-float", f - (-g), f + g),
    rule("sub-constant-float", f - d0, f + fold(-d0)),
    rule("mul-neg-neg", (-f) * (-g), f* g),
    rule("mul-neg-constant", (-f) * d0, f* fold(-d0)),
    rule("neg-of-product", -(f* d0), f* fold(-d0)),
    rule("mul-two", f + f, f * 2.0),
    rule("one-over", fdiv(1.0, f), recip(f)),
    rule_fn("div-power-of-two", fdiv(f, d0),
            [](const Match& at, RuleCtx&) -> UOp {
              if (!is_power_of_two(at[d0])) return {};
              const UOp inverse = fold_op(Op::Recip, at.root->dtype, std::vector{at[d0]});
              return is_power_of_two(inverse) ? at[f] * inverse : UOp();
            }),
    rule("trunc-trunc", trunc(trunc(f)), trunc(f)),
};

}  // namespace

WHIT_RULE_SET(rules::algebra, RuleSet("algebra", kConstants) + RuleSet("algebra", kIntRules) + RuleSet("algebra", kFloatRules))

}  // namespace whit
