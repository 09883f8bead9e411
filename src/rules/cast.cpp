// Chains of casts.
#include "ir/build.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

constexpr Rule kCastRules[] = {
    rule("cast-lossless", cast(cast(x)), cast(x),
         [](const Match& at) {
           const DType from = at.raw(x)->dtype, over = at.root->src_begin()[0]->dtype;
           return !is_weak(over) && can_lossless_cast(from, over);
         }),
    rule("cast-bounded", cast(bind(m, cast(n))).of(kInts), cast(n),
         [](const Match& at) {
           const Node *from = at.raw(n), *over = at.raw(m);
           return from->dtype != DType::UInt64 && over->dtype != DType::UInt64 && from->vmin >= int_min(over->dtype) &&
                  from->vmax <= int_max(over->dtype) && from->vmin != INT64_MIN && from->vmax != INT64_MAX;
         }),
    rule("cast-to-bool", cast(n).of(kBool), ne(n, 0)),
    rule("cast-to-bool-float", cast(f).of(kBool), ne(f, 0.0)),
    rule("cast-of-where", cast(where(p, d0, d1)), where(p, fold(cast(d0)), fold(cast(d1)))),
    rule("bitcast-bitcast", op(Op::Bitcast, op(Op::Bitcast, x)), x, [](const Match& at) { return at.root->dtype == at.raw(x)->dtype; }),
};

}  // namespace

WHIT_RULE_SET(rules::cast, "cast", kCastRules)

}  // namespace whit
