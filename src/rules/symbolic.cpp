// Everything that is of use in a kernel graph.
#include "ir/build.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

// Sources after the first that are constants (loops of one step) go.
UOp drop_constant_loops(const Match& at, RuleCtx&) {
  const Node* n = at.root;
  std::vector<UOp> src{UOp(n->src_begin()[0])};
  for (uint32_t s = 1; s < n->n_src; ++s)
    if (n->src_begin()[s]->op != Op::Const) src.emplace_back(n->src_begin()[s]);
  if (src.size() == n->n_src) return {};
  if (src.size() == 1 && n->op == Op::Reduce) return src[0];
  return UOp::make(n->op, n->dtype, src, n->arg);
}

constexpr Rule kLoops[] = {
    rule("one-step", rest(op(Op::Range)), 0, [](const Match& at) { return range_size(at.root) == 1; }),
    rule_fn("end-constant", rest(op(Op::End, x)), drop_constant_loops),
    rule_fn("reduce-constant", rest(op(Op::Reduce, x)), drop_constant_loops),
};

}  // namespace

const RuleSet& rules::loops() {
  static const RuleSet set("loops", kLoops);
  return set;
}

const RuleSet& rules::symbolic() {
  static const RuleSet set = algebra() + index() + gate() + cast() + loops();
  return set;
}

std::vector<const RuleSet*> rules::tables() { return {&algebra(), &index(), &gate(), &cast(), &loops(), &movement()}; }

UOp simplify(const UOp& root) { return graph_rewrite(root, rules::symbolic(), {.name = "simplify"}); }

}  // namespace whit
