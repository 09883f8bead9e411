// Passes of one's own: a table of rules and a function that run inside the pipeline, on kernels and on tensor graphs.
#include <cstdio>

#include "ir/build.h"
#include "rewrite/passes.h"
#include "rewrite/rewrite.h"
#include "runtime/counters.h"
#include "whit/whit.h"

namespace whit {
namespace {

using namespace whit::pat;

// Division by a number becomes a multiplication: faster, and not the same to the last bit, so it is no rule of whit's own.
constexpr Rule kFastDivision[] = {
    rule_fn("divide-by-number", fdiv(f, d0), [](const Match& at, RuleCtx&) { return at[f] * alu(Op::Recip, {at[d0]}); }),
};
const RuleSet fast_division("fast-division", kFastDivision);

// A decision about fusion: what the program wanted in memory of its own is computed where it is used.
UOp without_barriers(const UOp& sink) {
  std::unordered_map<const Node*, UOp> map;
  for (const Node* n : toposort(sink))
    if (n->op == Op::Contiguous) map.emplace(n, n->src()[0]);
  return substitute(sink, map);
}

int64_t kernels_of(const Tensor& t) {
  const int64_t before = counters().kernel_count.load();
  Tensor(t).realize();
  return counters().kernel_count.load() - before;
}

}  // namespace
}  // namespace whit

int main() {
  using namespace whit;
  const Tensor a = Tensor::rand({8, 64}).realize();
  const auto program = [&] { return ((a + 1).contiguous() / 3).sum(1); };
  std::printf("kernels as it is: %d\n", static_cast<int>(kernels_of(program())));
  {
    const PassScope scope(PassStage::Tensor, "without barriers", without_barriers);
    std::printf("kernels without barriers: %d\n", static_cast<int>(kernels_of(program())));
  }
  int rewrites = 0;
  const PassScope scope(PassStage::Kernel, "fast division", [&](const UOp& sink) {
    const UOp out = graph_rewrite(sink, fast_division);
    rewrites += out != sink;
    return out;
  });
  program().realize();
  std::printf("kernels with a division: %d\n", rewrites);
}
