// Index arithmetic on weakint. Most of the work is in rules/linear.cpp.

#include "ir/build.h"
#include "rules/linear.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

bool not_negative(const Node* a) { return a->vmin >= 0; }
bool positive(const Node* a) { return a->vmin > 0; }

constexpr Rule kIndexRules[] = {
    rule("div-self", floor_div(i, i), 1, [](const Match& at) { return positive(at.raw(i)); }),
    rule("div-of-product", floor_div(comm(i* j), j), i, [](const Match& at) { return positive(at.raw(j)); }),
    rule("mod-of-product", floor_mod(comm(i* j), j), 0, [](const Match& at) { return positive(at.raw(j)); }),
    rule("mod-below", floor_mod(i, j), i, [](const Match& at) { return not_negative(at.raw(i)) && at.raw(i)->vmax < at.raw(j)->vmin; }),
    rule_fn("sum", op({Op::Add, Op::Sub}, i, j).of(kIndex), [](const Match& at, RuleCtx&) { return linear_sum(at.root_uop()); })
        .grows("a - b is a + b*-1: equal sums have one form"),
    rule_fn("negated", -i, [](const Match& at, RuleCtx&) { return linear_sum(at.root_uop()); }).grows("as sum"),
    rule_fn("product", op(Op::Mul, i, c0).of(kIndex), [](const Match& at, RuleCtx&) { return linear_sum(at.root_uop()); }).grows("as sum"),
    rule_fn("div", floor_div(i, c0), [](const Match& at, RuleCtx&) { return linear_div(at[i], at[c0]); })
        .grows("a quotient is split off a sum, so that it can join others"),
    rule_fn("mod", floor_mod(i, c0), [](const Match& at, RuleCtx&) { return linear_mod(at[i], at[c0]); }).grows("a negative divisor goes"),
    rule_fn("compare", op({Op::CmpLt, Op::CmpEq, Op::CmpNe}, i, j),
            [](const Match& at, RuleCtx&) { return linear_compare(at.root->op, at[i], at[j]); })
        .grows("no negative factors: equal conditions have one form"),
    rule_fn("max-min-apart", op({Op::Max, Op::Min}, i, j),
            [](const Match& at, RuleCtx&) -> UOp {
              Linear d = linear_of(at[i]);
              d.add(linear_of(at[j]), -1);
              const auto range_of_d = d.ok ? d.bounds() : std::nullopt;
              if (!range_of_d || (range_of_d->lo < 0 && range_of_d->hi > 0)) return {};
              return (range_of_d->lo >= 0) == (at.root->op == Op::Max) ? at[i] : at[j];
            }),
};

}  // namespace

WHIT_RULE_SET(rules::index, "index", kIndexRules)

}  // namespace whit
