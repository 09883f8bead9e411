// Random tensor graphs: realize must give what the reference evaluator gives, with and without the optimisations of
// kernels, on every renderer of the CPU. Seeds are fixed; WHIT_FUZZ_SECONDS=n takes fresh ones for n seconds and prints
// them, WHIT_FUZZ_SEED=n runs one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "base/flags.h"
#include "engine/realize.h"
#include "fuzz/random_graph.h"
#include "whit/tensor.h"

using namespace whit;
using namespace whit::fuzz;

namespace {

struct Path {
  const char* name;
  std::vector<std::pair<std::string, FlagValue>> flags;
  const char* device = "CPU";
};

#if WHIT_LLVM
const Path kPaths[] = {{"llvm", {{"DEV", std::string("CPU:LLVM")}}},
                       {"llvm NOOPT=1", {{"DEV", std::string("CPU:LLVM")}, {"NOOPT", int64_t{1}}}},
                       {"ref", {}, "REF"},
                       {"c", {{"DEV", std::string("CPU:C")}}}};
#else
const Path kPaths[] = {
    {"c", {{"DEV", std::string("CPU:C")}}}, {"c NOOPT=1", {{"DEV", std::string("CPU:C")}, {"NOOPT", int64_t{1}}}}, {"ref", {}, "REF"}};
#endif

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Checks one graph on the given path. The last nodes are the roots: what others do not use, mostly.
void check_seed(uint64_t seed, const Path& path, OpCounts* counts) {
  KnownGraph g = random_graph({.seed = seed, .n_nodes = 8 + static_cast<int>(seed % 25), .device = path.device}, counts);
  std::vector<UOp> roots;
  std::vector<Known> known;
  for (auto it = g.nodes.rbegin(); it != g.nodes.rend() && roots.size() < 3; ++it) {
    if (is_weak(it->node.dtype()) || it->node.node()->device == 0 || it->node.shape().numel() == 0) continue;
    roots.push_back(it->node);
    known.push_back(*it);
  }
  if (roots.empty()) return;
  const FlagScope flags(path.flags);
  std::string what;
  try {
    const std::vector<Bytes> got = run_graph(g, roots, path.device);
    for (size_t i = 0; i < roots.size() && what.empty(); ++i) what = difference(known[i], got[i]);
  } catch (const std::exception& e) {
    what = e.what();
  }
  if (!what.empty())
    ADD_FAILURE() << "seed " << seed << ", " << path.name << ": " << what << "\nsmallest graph: " << smallest_failure(g, path.device);
}

// Compiling C is slow, so it comes seldom.
size_t path_of(int n) { return n % 10 == 9 ? std::size(kPaths) - 1 : static_cast<size_t>(n) % (std::size(kPaths) - 1); }

TEST(FuzzGraph, RealizeEqualsTheReference) {
  if (const char* s = std::getenv("WHIT_FUZZ_SEED")) {
    for (const Path& p : kPaths) check_seed(std::strtoull(s, nullptr, 10), p, nullptr);
    return;
  }
  OpCounts counts;
  const char* fuzz_seconds = std::getenv("WHIT_FUZZ_SECONDS");
  const double limit = fuzz_seconds ? std::strtod(fuzz_seconds, nullptr) : 30;
  const double until = seconds() + limit;
  uint64_t seed = fuzz_seconds ? std::random_device()() : 1;
  if (fuzz_seconds) printf("first seed %llu\n", static_cast<unsigned long long>(seed));
  int n = 0;
  // Fixed seeds: as many as the time allows, at most 300.
  for (; seconds() < until && (fuzz_seconds || n < 300) && !HasFailure(); ++n, ++seed) check_seed(seed, kPaths[path_of(n)], &counts);
  printf("%d graphs", n);
  for (const auto& [op, count] : counts) printf(" %s:%lld", op.c_str(), static_cast<long long>(count));
  printf("\n");
}

TEST(FuzzGraph, MakesEveryReachableOp) {
  OpCounts counts;
  for (uint64_t seed = 1; seed <= 150; ++seed) random_graph({.seed = seed}, &counts);
  for (const Op op : reachable_ops()) EXPECT_GT(counts[std::string(name(op))], 0) << name(op);
}

// A condition that is in memory, and the relu that it belongs to: each could be taken from the other, not both.
TEST(FuzzGraph, DeepChainOfRelusHasASchedule) {
  const Tensor x = Tensor::from<float>({0.5f, 0.25f, -0.125f, 1.0f});
  Tensor y = x;
  for (int i = 0; i < 1200; ++i) y = i % 2 ? (y * 1.0009765625).relu() : y + x;
  const UOp g = y.sum().gradient({x})[0].uop();
  EXPECT_GT(engine::schedule(std::span(&g, 1)).schedule->stats.n_kernels, 0);
}

// Found by seed 3351181773: the gate of an index compared its negative, which the smallest int64 does not have.
TEST(FuzzGraph, IndicesAtTheEndsOfInt64) {
  for (const int64_t v : {INT64_MIN, INT64_MIN + 1, int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{3}, int64_t{1} << 32, INT64_MAX}) {
    const Tensor x = Tensor::from<int32_t>({5, 6, 7}), i = Tensor::from<int64_t>({v});
    const bool inside = v >= 0 && v < 3;
    const Tensor row(UOp::make(Op::Gather, DType::Int32, {x.uop(), i.uop()}));
    EXPECT_EQ(row.to_vector<int32_t>()[0], inside ? 5 + v : 0) << v;
    const Tensor raised(UOp::make(Op::Scatter, DType::Int32, {x.uop(), i.uop(), Tensor::from<int32_t>({1}).uop()}, "add"));
    EXPECT_EQ(raised.sum().item_int(), inside ? 19 : 18) << v;
  }
}

// Found by seed 1815122515: where no index depends on an axis of them, the sum was read once and added to once.
TEST(FuzzGraph, ScatterAddsOverAnAxisThatTheIndexIsSpreadOver) {
  for (const Path& path : kPaths) {
    const FlagScope flags(path.flags);
    const std::string device = path.device;
    const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}, {.device = device});
    const Tensor v = Tensor::arange(24).cast(DType::Float32).reshape({2, 6, 2}).clone(device);
    const Tensor rows = Tensor::from<int32_t>({2, 0}, {2, 1}, {.device = device}).expand({2, 6});
    const auto sum = [&](const Tensor& i) {
      return Tensor(UOp::make(Op::Scatter, DType::Float32, {x.uop(), i.uop(), v.uop()}, "add")).to_vector<float>();
    };
    EXPECT_EQ(sum(rows), (std::vector<float>{103, 110, 3, 4, 35, 42})) << path.name;
    EXPECT_EQ(sum(Tensor::full({2, 6}, 1, {.dtype = DType::Int32, .buffer = false})), (std::vector<float>{1, 2, 135, 148, 5, 6})) << path.name;
  }
}

}  // namespace
