// Identities of value arithmetic that hold for every value, NaN, infinities and -0.0 included.
#include <cmath>

#include "ir/build.h"
#include "ir/eval.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

constexpr Var a{3, kNonFloats};                     // ints and bools
constexpr Var s{9, kSizedInts}, t{10, kSizedInts};  // ints that wrap
constexpr Var d{9, kSizedInts | kFloats}, e{10, kSizedInts | kFloats};
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

// What `op` is over a number and itself, or over a number and one that is neutral.
constexpr Rule kIntRules[] = {
    rule("right-zero", op({Op::Add, Op::Sub, Op::Or, Op::Xor, Op::Shl, Op::Shr}, a, 0), a),
    rule("right-one", op({Op::Mul, Op::Cdiv, Op::FloorDiv}, a, 1), a),
    rule("itself", op({Op::And, Op::Or, Op::Max, Op::Min}, x, x), x),
    rule("without-itself", op({Op::Sub, Op::Xor, Op::Cmod, Op::FloorMod, Op::CmpNe}, a, a), 0),
    rule("lt-self", x < x, 0),
    rule("div-zero", op({Op::Cdiv, Op::FloorDiv}, n, 0), 0),
    rule("mod-zero", op({Op::Cmod, Op::FloorMod}, n, 0), n),
    rule("zero-div", op({Op::Cdiv, Op::FloorDiv, Op::Cmod, Op::FloorMod}, 0, n), 0),
    rule("add-constants", (s + c0) + c1, s + fold(c0 + c1)),
    rule("add-constant-out", comm((s + c0) + t), (s + t) + c0),
    rule("mul-constants", (s * c0) * c1, s* fold(c0* c1)),
    rule("add-multiple", comm(s* c0 + s), s* fold(c0 + 1)),
    rule("add-multiples", s* c0 + s * c1, s* fold(c0 + c1)),
    rule("mul-minus-one", s * -1, -s),
    rule("and-ones", n & -1, n),
    rule("or-ones", n | -1, -1),
    rule("and-constants", (n & c0) & c1, n& fold(c0& c1)),
    rule("or-constants", (n | c0) | c1, n | fold(c0 | c1)),
    rule("xor-constants", (a ^ c0) ^ c1, a ^ fold(c0 ^ c1)),
    rule("max-constants", max(max(n, c0), c1), max(n, fold(max(c0, c1)))),
    rule("min-constants", min(min(n, c0), c1), min(n, fold(min(c0, c1)))),
    rule("max-decided", max(n, m), n, [](const Match& at) { return ordered(at.raw(m), at.raw(n)); }),
    rule("max-decided-right", max(n, m), m, [](const Match& at) { return ordered(at.raw(n), at.raw(m)); }),
    rule("min-decided", min(n, m), n, [](const Match& at) { return ordered(at.raw(n), at.raw(m)); }),
    rule("min-decided-right", min(n, m), m, [](const Match& at) { return ordered(at.raw(m), at.raw(n)); }),
};

// Of ints that wrap and of floats.
constexpr Rule kNumberRules[] = {
    rule("neg-neg", -(-d), d),        rule("add-neg", comm(d + (-e)), d - e),
    rule("sub-neg", d - (-e), d + e), rule("sub-constant", d - d0, d + fold(-d0)),
    rule("add-self", d + d, d * 2),
};

// x + 0.0, x - x, x * 0 and x / x are not here: each is wrong for some x. x - 0.0 and x / -1.0 are others first.
constexpr Rule kFloatRules[] = {
    rule("add-negative-zero", f + -0.0, f),
    rule("mul-one-float", f * 1.0, f),
    rule("mul-minus-one-float", f * -1.0, -f),
    rule("mul-neg-neg", (-f) * (-g), f* g),
    rule("mul-neg-constant", (-f) * d0, f* fold(-d0)),
    rule("neg-of-product", -(f* d0), f* fold(-d0)),
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

WHIT_RULE_SET(rules::algebra,
              RuleSet("algebra", kConstants) + RuleSet("algebra", kIntRules) + RuleSet("algebra", kNumberRules) + RuleSet("algebra", kFloatRules))

}  // namespace whit
