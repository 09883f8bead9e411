// Passes of one's own: a table of rules and functions that run inside the pipeline, on kernels and on tensor graphs.
#include <cstdio>

#include "ir/build.h"
#include "rewrite/passes.h"
#include "rewrite/rewrite.h"
#include "runtime/counters.h"
#include "whit/whit.h"
using namespace whit;

// Division by a number becomes a multiplication: faster, and not the same to the last bit, so it is no rule of whit's own.
constexpr Rule kFastDivision[] = {rule("by-reciprocal", fdiv(pat::f, pat::d0), pat::f* fold(recip(pat::d0)))};
const RuleSet fast_division("fast-division", kFastDivision);

// A decision about fusion: what the program wanted in memory of its own is computed where it is used.
UOp without_barriers(const UOp& sink) {
  std::unordered_map<const Node*, UOp> map;
  for (const Node* n : toposort(sink))
    if (n->op == Op::Contiguous) map.emplace(n, n->src()[0]);
  return substitute(sink, map);
}

// How many kernels the program runs.
int kernels_of_program() {
  static const Tensor a = Tensor::rand({8, 64}).realize();
  const int64_t before = counters().kernel_count.load();
  ((a + 1).contiguous() / 3).sum(1).realize();
  return static_cast<int>(counters().kernel_count.load() - before);
}

int main() {
  std::printf("kernels as it is: %d\n", kernels_of_program());
  const PassScope scope(PassStage::Tensor, "without barriers", without_barriers);
  std::printf("kernels without barriers: %d\n", kernels_of_program());
  int divisions[2] = {};
  const auto count = [&](int at) {
    return [&divisions, at](const UOp& sink) {
      for (const Node* n : toposort(sink)) divisions[at] += n->op == Op::Fdiv;
      return sink;  // a pass may only look
    };
  };
  const PassScope before(PassStage::Kernel, "before", count(0)), fast(PassStage::Kernel, fast_division), after(PassStage::Kernel, "after", count(1));
  kernels_of_program();
  std::printf("divisions in its kernels: %d, after the rule: %d\n", divisions[0], divisions[1]);
}
