// Random tensor graphs: realize must give what the reference evaluator gives, with and without the optimisations of
// kernels, on every renderer of the CPU. tests/fuzz_run.h says how seeds are chosen; a seed says the path too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "base/flags.h"
#include "engine/realize.h"
#include "fuzz/fuzz_device.h"
#include "fuzz/random_graph.h"
#include "fuzz_run.h"
#include "whit/tensor.h"

using namespace whit;
using namespace whit::fuzz;

namespace {

struct Path {
  const char* name;
  std::vector<std::pair<std::string, FlagValue>> flags{};
  std::string device = "CPU";
  std::optional<Way> way{};  ///< of the device FUZZ
};

const std::pair<std::string, FlagValue> kNoOpt{"NOOPT", int64_t{1}};

// What users run.
const std::vector<Path> kUserPaths = {
    {"ref", {}, "REF"},
    {"c", {{"DEV", std::string("CPU:C")}}},
#if WHIT_LLVM
    {"llvm", {{"DEV", std::string("CPU:LLVM")}}},
    {"llvm NOOPT=1", {{"DEV", std::string("CPU:LLVM")}, kNoOpt}},
#endif
};

// A graph takes one of these, in turn: most often those that cost least. FUZZ interprets what is lowered, or compiles what the
// optimiser might have decided otherwise, and the C of many graphs at once.
const std::vector<Path>& paths() {
  static const auto& all = *[] {
    auto* out = new std::vector<Path>;
    const auto add = [&](int n, const Path& p) { out->insert(out->end(), static_cast<size_t>(n), p); };
    add(3, kUserPaths[0]);
    add(3, {"linear", {}, "FUZZ", Way{Via::Linear}});
    add(2, {"linear NOOPT=1", {kNoOpt}, "FUZZ", Way{Via::Linear}});
    add(4, {"linear, random", {}, "FUZZ", Way{Via::Linear, true}});
    add(1, {"c", {}, "FUZZ", Way{Via::C}});
    add(1, {"c, random", {}, "FUZZ", Way{Via::C, true}});
    add(1, {"c NOOPT=1", {kNoOpt}, "FUZZ", Way{Via::C}});
#if WHIT_LLVM
    add(2, kUserPaths[2]);
    add(2, {"llvm, random", {}, "FUZZ", Way{Via::Llvm, true}});
    add(1, kUserPaths[3]);
#endif
    return out;
  }();
  return all;
}

class Case {
 public:
  Case(uint64_t seed, const Path& path, OpCounts* counts) : seed_(seed), path_(path), device_(set_up()) {
    graph_ = random_graph({.seed = seed, .n_nodes = 8 + static_cast<int>(seed % 25), .device = device_}, counts);
    // The last nodes are the roots: what others do not use, mostly.
    for (auto it = graph_.nodes.rbegin(); it != graph_.nodes.rend() && roots_.size() < 3; ++it) {
      if (is_weak(it->node.dtype()) || it->node.node()->device == 0 || it->node.shape().numel() == 0) continue;
      roots_.push_back(it->node);
      known_.push_back(*it);
    }
  }
  // False when not all of its kernels are compiled.
  bool prepare() {
    bool all = true;
    guarded([&] { all = roots_.empty() || fuzz::prepare(roots_, device_); });
    return all;
  }
  void check() {
    set_up();
    guarded([&] {
      if (roots_.empty()) return;
      const std::vector<Bytes> got = run_graph(graph_, roots_, device_);
      for (size_t i = 0; i < roots_.size() && what_.empty(); ++i) what_ = difference(known_[i], got[i]);
    });
    if (what_.empty()) return;
    const FlagScope flags(path_.flags);
    ADD_FAILURE() << "seed " << seed_ << ", " << path_.name << ": " << what_ << "\nsmallest graph: " << smallest_failure(graph_, device_);
  }

 private:
  std::string set_up() const { return path_.way ? fuzz_device({path_.way->via, path_.way->random, seed_}) : path_.device; }
  template <class F> void guarded(const F& f) {
    if (!what_.empty()) return;
    const FlagScope flags(path_.flags), here({{"PARALLEL", int64_t{0}}});
    try {
      f();
    } catch (const std::exception& e) {
      what_ = e.what();
    }
  }

  const uint64_t seed_;
  const Path& path_;
  const std::string device_;
  KnownGraph graph_;
  std::vector<UOp> roots_;
  std::vector<Known> known_;
  std::string what_;
};

TEST(FuzzGraph, RealizeEqualsTheReference) {
  constexpr size_t kGraphsOfAModule = 50;
  OpCounts counts;
  int64_t n = 0, n_c = 0;
  std::vector<std::unique_ptr<Case>> waiting;  // for the C compiler
  const auto run_waiting = [&] {
    for (const auto& c : std::exchange(waiting, {})) c->check();
  };
  test::FuzzRun run(30, 400);
  while (run.next()) {
    const Path& path = paths()[run.seed() % paths().size()];
    auto c = std::make_unique<Case>(run.seed(), path, &counts);
    ++n;
    if (path.way && path.way->via == Via::C) {
      n_c += c->prepare();
      waiting.push_back(std::move(c));
      if (waiting.size() == kGraphsOfAModule) run_waiting();
    } else {
      c->check();
    }
  }
  run_waiting();
  for (const Op op : reachable_ops()) printf("%s:%lld ", std::string(name(op)).c_str(), static_cast<long long>(counts[std::string(name(op))]));
  printf("\n%lld graphs, %lld through C\n", static_cast<long long>(n), static_cast<long long>(n_c));
}

TEST(FuzzGraph, MakesEveryOpDtypeAndKindOfShape) {
  OpCounts counts;
  for (uint64_t seed = 1; seed <= 1500; ++seed) random_graph({.seed = seed}, &counts);
  std::vector<std::string> kinds{"empty", "one element", "elements", "rows of 16", "rows of 4", "odd rows", "even rows"};
  for (int rank = 0; rank <= 7; ++rank) kinds.push_back(fmt::format("rank {}", rank));
  for (int i = 0; i < kNumDTypes; ++i)
    if (const auto dt = static_cast<DType>(i); dt != DType::Void && dt != DType::WeakFloat) kinds.emplace_back(name(dt));
  for (const Op op : reachable_ops()) {
    kinds.emplace_back(name(op));
    // What takes any dtype meets each.
    if (OpSet{Op::Add, Op::Max, Op::CmpLt, Op::Where, Op::Cast, Op::Reduce, Op::Pad, Op::Gather, Op::Stack}.has(op))
      for (const DType dt : {DType::Bool, DType::Int8, DType::UInt16, DType::Int32, DType::Int64, DType::Float16, DType::Fp8E5M2, DType::Float64})
        if (op != Op::CmpLt || dt == DType::Bool) kinds.push_back(fmt::format("{} {}", name(op), name(dt)));
  }
  for (const std::string& k : kinds) EXPECT_GT(counts[k], 0) << k;
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

// Found by seed 3194640873: a value without a device that had to be kept was put on the default device.
TEST(FuzzGraph, WhatHasNoDeviceIsComputedWhereItIsWanted) {
  const Tensor lanes = Tensor(cast(UOp::make(Op::Lanes, DType::WeakInt, {}, int64_t{12}), DType::Int32));
  const Tensor sums(UOp::make(Op::Contiguous, DType::Int32, {lanes.reshape({3, 4}).sum({1}).uop()}));
  const Tensor rows = Tensor::from<int32_t>({2, 0, 2, 1, 0}, {5}, {.device = "REF"});
  std::vector<Tensor> both{Tensor::from<int32_t>({1}, {1}, {.device = "CPU"}) + 1,
                           Tensor(UOp::make(Op::Gather, DType::Int32, {sums.uop(), rows.uop()}))};
  Tensor::realize_all(both);
  EXPECT_EQ(both[1].to_vector<int32_t>(), (std::vector<int32_t>{38, 6, 38, 22, 6}));
}

// Found by seed 1815122515: where no index depends on an axis of them, the sum was read once and added to once.
TEST(FuzzGraph, ScatterAddsOverAnAxisThatTheIndexIsSpreadOver) {
  for (const Path& path : kUserPaths) {
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
