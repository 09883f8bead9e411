// Nodes: how many a second are looked up, made, destroyed, walked, printed. One core.
#include <benchmark/benchmark.h>

#include "ir/build.h"
#include "ir/text.h"

using namespace whit;

namespace {

UOp leaf(const char* v) { return UOp::make(Op::Variable, DType::Int32, {}, Arg::list({v, 0, 100})); }

// A graph of about n nodes: sums and products with reuse, so that nodes have several users.
UOp build(const UOp& x, int n) {
  UOp a = x, b = x;
  for (int i = 0; i < n / 2; ++i) {
    UOp c = UOp::make(Op::Mul, DType::Int32, {a, b});
    b = std::move(a);
    a = UOp::make(Op::Add, DType::Int32, {c, b});
  }
  return a;
}

// The graph lives: every node that is asked for is found.
void look_up(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  const UOp x = leaf("x");
  const UOp keep = build(x, n);
  for (auto _ : state) benchmark::DoNotOptimize(build(x, n));
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(look_up)->Arg(100)->Arg(1000)->Arg(10'000)->Arg(100'000)->Arg(1'000'000);

// The look-up alone, over prepared sources.
void look_up_one(benchmark::State& state) {
  const UOp x = leaf("x"), y = leaf("y");
  const UOp keep = UOp::make(Op::Add, DType::Int32, {x, y});
  const UOp src[] = {x, y};
  for (auto _ : state) benchmark::DoNotOptimize(UOp::make(Op::Add, DType::Int32, std::span<const UOp>(src)));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(look_up_one);

void look_up_constant(benchmark::State& state) {
  const UOp keep = constant(DType::Int32, 7);
  for (auto _ : state) benchmark::DoNotOptimize(constant(DType::Int32, 7));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(look_up_constant);

// Nothing lives: each node is made and destroyed.
void make_and_destroy(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  const UOp x = leaf("x");
  for (auto _ : state) benchmark::DoNotOptimize(build(x, n));
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(make_and_destroy)->Arg(100)->Arg(1000)->Arg(10'000)->Arg(100'000)->Arg(1'000'000);

void walk(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  const UOp u = build(leaf("x"), n);
  for (auto _ : state) benchmark::DoNotOptimize(toposort(u));
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(walk)->Arg(1000)->Arg(100'000)->Arg(1'000'000);

void replace_a_leaf(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  const UOp x = leaf("x"), y = leaf("y");
  const UOp u = build(x, n);
  for (auto _ : state) benchmark::DoNotOptimize(substitute(u, {{x.node(), y}}));
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(replace_a_leaf)->Arg(1000)->Arg(100'000);

void print_and_parse(benchmark::State& state) {
  const int n = static_cast<int>(state.range(0));
  const UOp u = build(leaf("x"), n);
  for (auto _ : state) benchmark::DoNotOptimize(parse_text(to_text(u)));
  state.SetItemsProcessed(state.iterations() * n);
}
BENCHMARK(print_and_parse)->Arg(10'000);

}  // namespace

BENCHMARK_MAIN();
