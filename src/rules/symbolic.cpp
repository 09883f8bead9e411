// Everything that is of use in a kernel graph.
#include "ir/build.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

// A loop that the value does not depend on: max and min of equal values are the value, a sum of integers a multiple.
// (A sum of equal floats is not a multiple: each addition rounds.)
UOp drop_unused_loops(const Match& at, RuleCtx&) {
  const Node* n = at.root;
  const UOp inner(n->src_begin()[0]);
  const std::string_view monoid = n->arg.at(0).as_str();
  const bool is_sum = monoid == "add" && is_int(n->dtype);
  if (!is_sum && monoid != "max" && monoid != "min") return {};
  std::vector<UOp> loops;
  int64_t n_times = 1;
  for (uint32_t s = 1; s < n->n_src; ++s) {
    const UOp loop(n->src_begin()[s]);
    if (loop.op() != Op::Range || inner.depends_on(loop) || range_size(loop.node()) < 1) loops.push_back(loop);
    else if (__builtin_mul_overflow(n_times, range_size(loop.node()), &n_times)) return {};
  }
  if (loops.size() + 1 == n->n_src) return {};
  return reduce(is_sum ? inner * n_times : inner, monoid, loops);
}

constexpr Rule kLoops[] = {
    rule_fn("reduce-unused", rest(op(Op::Reduce, x, y)), drop_unused_loops),
};

}  // namespace

WHIT_RULE_SET(rules::loops, "loops", kLoops)

WHIT_RULE_SET(rules::symbolic, algebra() + index() + gate() + cast() + loops())

std::vector<const RuleSet*> rules::tables() { return {&algebra(), &index(), &gate(), &cast(), &loops()}; }

UOp simplify(const UOp& root) { return graph_rewrite(root, rules::symbolic(), {.name = "simplify"}); }

}  // namespace whit
