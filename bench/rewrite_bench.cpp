// Counted on one core, in CPU time of the thread: look-ups of nodes that exist, nodes made, rules tried and rewrites.
#include <benchmark/benchmark.h>

#include "ir/build.h"
#include "rewrite/rewrite.h"
#include "rules/rules.h"

namespace {

using namespace whit;
using namespace whit::pat;

UOp value(int64_t slot) { return param(slot, DType::Float32, {}); }

void rate(benchmark::State& state, int64_t n) { state.counters["per_s"] = benchmark::Counter(static_cast<double>(n), benchmark::Counter::kIsRate); }

void LookUp(benchmark::State& state) {
  constexpr int kNodes = 1024;
  std::vector<UOp> leaves, sums;
  for (int a = 0; a < kNodes + 1; ++a) leaves.push_back(value(a));
  for (int a = 0; a < kNodes; ++a) sums.push_back(UOp::make(Op::Add, DType::Float32, {leaves[a], leaves[a + 1]}));
  int64_t n_found = 0;
  for (auto _ : state)
    for (size_t a = 0; a < kNodes; ++a) {
      const UOp src[] = {leaves[a], leaves[a + 1]};
      n_found += UOp::make(Op::Add, DType::Float32, src) == sums[a];
    }
  rate(state, n_found);
}
BENCHMARK(LookUp);

// The same with sources that need no new references.
void LookUpConstants(benchmark::State& state) {
  std::vector<UOp> keep;
  for (int a = 0; a < 1024; ++a) keep.push_back(idx(a));
  int64_t n_found = 0;
  for (auto _ : state)
    for (int a = 0; a < 1024; ++a) n_found += idx(a) == keep[static_cast<size_t>(a)];
  rate(state, n_found);
}
BENCHMARK(LookUpConstants);

void MakeAndDrop(benchmark::State& state) {
  const UOp a = value(0), b = value(1);
  int64_t n = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(UOp::make(Op::Add, DType::Float32, {a, b}));
    ++n;
  }
  rate(state, n);
}
BENCHMARK(MakeAndDrop);

// One rule that fires on every node, over `state.range(0)` nodes; graph_rewrite with its memo, and all that it makes.
void Rewrites(benchmark::State& state, const RuleSet& rules, UOp (*grow)(const UOp&, int)) {
  UOp root = value(0);
  for (int a = 0; a < state.range(0); ++a) root = grow(root, a);
  rewrite_stats() = {};
  for (auto _ : state) benchmark::DoNotOptimize(graph_rewrite(root, rules));
  rate(state, rewrite_stats().fired);
  state.counters["tried_per_fired"] = static_cast<double>(rewrite_stats().tried) / static_cast<double>(rewrite_stats().fired);
}

constexpr Rule kToProduct[] = {rule("product", f - g, f* g)};
void RewriteNewNode(benchmark::State& state) {
  static const RuleSet set("bench", kToProduct);
  Rewrites(state, set, [](const UOp& a, int) { return a - value(1); });
}
BENCHMARK(RewriteNewNode)->Arg(100)->Arg(10000);

void RewriteNewNodeFullTable(benchmark::State& state) {
  static const RuleSet set = rules::symbolic() + RuleSet("bench", kToProduct);
  Rewrites(state, set, [](const UOp& a, int) { return a - value(1); });
}
BENCHMARK(RewriteNewNodeFullTable)->Arg(100)->Arg(10000);

// x * 1.0 -> x: the result exists already.
void RewriteIdentity(benchmark::State& state) {
  Rewrites(state, rules::symbolic(), [](const UOp& a, int) { return a * constant(DType::Float32, 1.0); });
}
BENCHMARK(RewriteIdentity)->Arg(100)->Arg(10000);

// Nodes where nothing applies.
void NothingToDo(benchmark::State& state) {
  UOp root = value(0);
  for (int a = 0; a < 10000; ++a) root = a % 2 ? root * value(1) : root + value(2);
  rewrite_stats() = {};
  for (auto _ : state) benchmark::DoNotOptimize(graph_rewrite(root, rules::symbolic()));
  rate(state, rewrite_stats().visited);
}
BENCHMARK(NothingToDo);

// The index of a reshape chain, from scratch each time.
void IndexArithmetic(benchmark::State& state) {
  const UOp r0 = range(10, 0, AxisType::Weak), r1 = range(28, 1, AxisType::Weak), r2 = range(28, 2, AxisType::Weak);
  rewrite_stats() = {};
  for (auto _ : state) {
    const UOp flat = (r0 * 28 + r1) * 28 + r2;
    const UOp back = (floor_div(flat, 784) * 28 + floor_mod(floor_div(flat, 28), 28)) * 28 + floor_mod(flat, 28);
    benchmark::DoNotOptimize(simplify(back));
  }
  rate(state, rewrite_stats().fired);
}
BENCHMARK(IndexArithmetic);

}  // namespace

BENCHMARK_MAIN();
