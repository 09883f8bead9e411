// Counted numbers: kernels, bytes that they move, peak memory. They stand in tests/perf/counts.txt and do not depend on
// the machine; WHIT_BLESS=1 (or `./dev bless perf`) rewrites the file. Times are for bench/.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "../../examples/network.h"
#include "ir/uop.h"
#include "rewrite/ruleset.h"
#include "runtime/counters.h"
#include "whit/jit.h"
#include "whit/tensor.h"

using namespace whit;

// Allocations and locks of this thread, by standing before those of the libraries.
static thread_local int64_t n_allocations = 0, n_locks = 0;

extern "C" void* __libc_malloc(size_t);
extern "C" void* malloc(size_t n) noexcept {
  ++n_allocations;
  return __libc_malloc(n);
}
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  ++n_locks;
  return real(mutex);
}

namespace {

constexpr const char* kFile = "tests/perf/counts.txt";

Tensor random(const IntList& shape) { return Tensor::rand(shape).realize(); }

struct Count {
  std::string text;
  int64_t kernels = 0;
};

// Three digits: a buffer of a few bytes more is no news.
std::string rounded(int64_t n_bytes) {
  return n_bytes < 10'000       ? fmt::format("{} B", n_bytes)
         : n_bytes < 10'000'000 ? fmt::format("{:.3g} kB", static_cast<double>(n_bytes) * 1e-3)
                                : fmt::format("{:.3g} MB", static_cast<double>(n_bytes) * 1e-6);
}

// Counts what `fn` runs; its inputs are in memory before.
template <class Fn> Count count(Fn&& fn) {
  const int64_t memory = counters().mem_used.load();
  counters().reset();
  counters().reset_peak();
  fn();
  const int64_t peak = counters().mem_peak.load() - memory;
  const int64_t n = counters().kernel_count.load();
  return {fmt::format("{} kernels, {} moved, {} at most", n, rounded(counters().global_mem.load()), rounded(peak)), n};
}

std::map<std::string, std::string> expected() {
  std::map<std::string, std::string> lines;
  std::ifstream in(kFile);
  for (std::string line; std::getline(in, line);)
    if (const size_t colon = line.find(": "); colon != std::string::npos && line[0] != '#') lines[line.substr(0, colon)] = line.substr(colon + 2);
  return lines;
}

class PerfCounts : public testing::Test {
 protected:
  static std::map<std::string, std::string>& measured() {
    static std::map<std::string, std::string> m;
    return m;
  }
  template <class Fn> void check(const std::string& name, int64_t most_kernels, Fn&& fn) {
    const Count c = count(fn);
    measured()[name] = c.text;
    EXPECT_LE(c.kernels, most_kernels) << name;
    if (std::getenv("WHIT_BLESS")) return;
    const auto want = expected();
    const auto it = want.find(name);
    EXPECT_TRUE(it != want.end()) << name << " is not in " << kFile << "; it is: " << c.text << " (./dev bless perf)";
    if (it == want.end()) return;
    EXPECT_EQ(c.text, it->second) << name << " (./dev bless perf)";
  }
  static void TearDownTestSuite() {
    if (!std::getenv("WHIT_BLESS")) return;
    std::ofstream out(kFile);
    out << "# Counted numbers of tests/perf, one case a line. Rewritten by ./dev bless perf.\n";
    for (const auto& [name, text] : measured()) out << name << ": " << text << "\n";
  }
};

TEST_F(PerfCounts, Elementwise) {
  Tensor x = random({64, 256}), y = random({64, 256});
  check("elementwise chain", 1, [&] { ((x * y + 1).relu() - y.exp2()).sqrt().realize(); });
  check("outputs that share loads", 1, [&] {
    const Tensor s = x + y;
    Tensor::realize_all(std::vector<Tensor>{s, s * 2, s.relu()});
  });
}

TEST_F(PerfCounts, Reductions) {
  Tensor x = random({64, 256});
  check("sum of rows", 1, [&] { (x * 2).sum(1).realize(); });
  check("softmax", 2, [&] { x.softmax().realize(); });
  check("log_softmax", 2, [&] { x.log_softmax().realize(); });
  check("layernorm", 2, [&] { x.layernorm().realize(); });
  check("argmax", 2, [&] { x.argmax(1).realize(); });
}

TEST_F(PerfCounts, OrderAndScans) {
  Tensor x = random({16, 1000});
  check("5 largest of 1000", 60, [&] {
    const auto [values, places] = x.topk(5);
    Tensor::realize_all(std::vector<Tensor>{values, places});
  });
  check("cumsum of rows", 10, [&] { x.cumsum(1).realize(); });
  check("cumsum of columns", 1, [&] { x.cumsum(0).realize(); });
  const Tensor rows = Tensor::from<int32_t>({5, 3, 90, 5}).reshape({4, 1}).expand({4, 256}), base = random({96, 256}), src = random({4, 256});
  check("sums into rows", 2, [&] { base.scatter_reduce(0, rows, src, "sum").realize(); });
}

TEST_F(PerfCounts, Matmul) {
  Tensor a = random({96, 64}), b = random({64, 128}), bias = random(128);
  check("matmul + bias + relu", 1, [&] { (a.matmul(b) + bias).relu().realize(); });
  check("matmul as broadcast, product and sum", 1, [&] { (a.reshape({96, 1, 64}) * b.T().reshape({1, 128, 64})).sum(2).realize(); });
  check("gather of rows", 1, [&] { (a[Tensor::from<int32_t>({5, 3, 90})] * 2).realize(); });
}

TEST_F(PerfCounts, Convolution) {
  Tensor x = random({4, 8, 16, 16}), w = random({12, 8, 3, 3}), bias = random(12);
  check("conv2d + bias + relu", 2, [&] { x.conv2d(w, bias, {.padding = 1}).relu().realize(); });
  const Tensor x16 = x.cast(DType::BFloat16).realize(), w16 = w.cast(DType::BFloat16).realize();
  check("conv2d of bfloat16, the image with its margin as narrow", 2, [&] { x16.conv2d(w16, {}, {.padding = 1}).realize(); });
  check("conv2d with gradients", 6, [&] {
    const Tensor loss = x.conv2d(w, bias, {.padding = 1}).relu().sum();
    Tensor::realize_all(loss.gradient({x, w, bias}));
  });
  check("conv2d + relu + max_pool2d", 2, [&] { x.conv2d(w, bias).relu().max_pool2d().realize(); });
}

TEST_F(PerfCounts, Attention) {
  Tensor q = random({1, 2, 32, 16}), k = random({1, 2, 32, 16}), v = random({1, 2, 32, 16});
  check("attention", 4, [&] { q.scaled_dot_product_attention(k, v, {.is_causal = true}).realize(); });
  // 12 million scores, which would be 50 MB.
  Tensor x = random({1, 12, 1024, 64}), y = random({1, 12, 1024, 64}), z = random({1, 12, 1024, 64});
  const auto attend = [&] { return x.scaled_dot_product_attention(y, z, {.is_causal = true}); };
  check("attention over 1024 rows", 1, [&] { attend().realize(); });
  check("gradients of attention over 1024 rows", 5, [&] { Tensor::realize_all(attend().square().sum().gradient({x, y, z})); });
}

TEST_F(PerfCounts, Assignment) {
  Tensor x = random({64, 64}), y = random({64, 64});
  check("assign in place", 1, [&] { x.assign(x * 2 + y).realize(); });
  check("set of rows", 1, [&] { x.set({Slice{3, 9}}, y[Slice{0, 6}]).realize(); });
}

struct Training {
  Tensor images = random({64, 1, 28, 28});
  Tensor labels = (Tensor::rand(64) * 10.0).cast(DType::Int32).realize();
  Network network;
  nn::Adam adam{nn::get_parameters(network), {}};
  Training() {
    for (Tensor& t : nn::get_parameters(network)) t.realize();
  }
  void step() { train_step(network, adam, images, labels, 16); }
};

TEST_F(PerfCounts, TrainingStep) {
  Training training;
  training.step();  // what is made once
  check("training step of the network", 64, [&] { training.step(); });
}

TEST_F(PerfCounts, Adam) {
  // Tensors of the network's sizes with gradients at hand: the update alone.
  const FlagScope flags("TRAINING", int64_t{1});
  std::vector<Tensor> params;
  for (const IntList& shape : {IntList{32, 1, 5, 5}, IntList{32}, IntList{32, 32, 5, 5}, IntList{64, 32, 3, 3}, IntList{10, 576}})
    params.push_back(random(shape));
  nn::Adam adam(params, {});
  const auto step = [&] {
    for (Tensor& p : params) p.set_grad(random(IntList(p.shape())));
    counters().reset();
    adam.step();
  };
  step();
  check("Adam on five tensors", 3, step);
}

TEST(PerfMemory, TrainingLeavesNothing) {
  const auto train = [] {
    Training training;
    for (int i = 0; i < 3; ++i) training.step();
    TinyJit step([&](std::span<const Tensor>) { return train_step(training.network, training.adam, training.images, training.labels, 16); });
    for (int i = 0; i < 5; ++i) step();
  };
  train();
  const int64_t bytes = counters().mem_used.load(), nodes = live_nodes();
  train();
  EXPECT_EQ(counters().mem_used.load(), bytes);
  EXPECT_EQ(live_nodes(), nodes);
}

TEST_F(PerfCounts, GradientsOfActivations) {
  Tensor x = random({64, 64}), w = random({64, 256}), v = random({256, 64});
  for (const auto& [name, fn] : {std::pair<const char*, Tensor (*)(const Tensor&)>{"gelu", [](const Tensor& t) { return t.gelu(); }},
                                 {"exact gelu", [](const Tensor& t) { return t.gelu("none"); }},
                                 {"swish", [](const Tensor& t) { return t.swish(); }},
                                 {"softplus", [](const Tensor& t) { return t.softplus(); }}})
    check(fmt::format("two layers and {}, with gradients", name), 8, [&, act = fn] {
      const Tensor loss = act(x.matmul(w)).matmul(v).square().sum();
      Tensor::realize_all(loss.gradient({x, w, v}));
    });
}

// What a step of training a network of so many equal layers takes before the machine: nodes of its graph, and the work a node.
struct Work {
  size_t n_nodes;
  double visited, tried, fired;  // a node
};
Work work_of_depth(int n_layers) {
  const FlagScope flags({{"DEV", std::string("NULL")}, {"PARALLEL", int64_t{0}}, {"TRAINING", int64_t{1}}});  // all in this thread
  std::vector<nn::Linear> layers;
  for (int i = 0; i < n_layers; ++i) layers.emplace_back(32, 32);
  std::vector<Tensor> params;
  for (nn::Linear& l : layers) params.insert(params.end(), {l.weight, l.bias});
  Tensor::realize_all(params);
  nn::Adam opt(params, {.lr = 0.01});
  Tensor x = Tensor::empty({8, 32});
  const RewriteStats before = rewrite_stats();
  for (nn::Linear& l : layers) x = l(x).relu();
  Tensor loss = x.square().mean();
  loss.backward();
  std::vector<Tensor> all = opt.schedule_step();
  all.push_back(loss);
  std::vector<UOp> roots;
  for (const Tensor& t : all) roots.push_back(t.uop());
  const size_t n = toposort(roots).size();
  Tensor::realize_all(all);
  const RewriteStats& after = rewrite_stats();
  const auto a_node = [&](int64_t to, int64_t from) { return static_cast<double>(to - from) / static_cast<double>(n); };
  return {n, a_node(after.visited, before.visited), a_node(after.tried, before.tried), a_node(after.fired, before.fired)};
}

TEST(Work, RewritingANodeCostsTheSameInADeepNetwork) {
  work_of_depth(3);  // what is done once in a process
  const Work shallow = work_of_depth(8), deep = work_of_depth(64);
  EXPECT_GT(deep.n_nodes, 7 * shallow.n_nodes);
  EXPECT_GT(shallow.visited, 0.1);
  EXPECT_LE(deep.visited, 1.1 * shallow.visited) << shallow.visited;
  EXPECT_LE(deep.tried, 1.1 * shallow.tried) << shallow.tried;
  EXPECT_LE(deep.fired, 1.1 * shallow.fired) << shallow.fired;
}

struct Replay {
  int64_t kernels, allocations, locks;
};
Replay replay_of(int n_kernels) {
  TinyJit f([&](std::span<const Tensor> in) {
    Tensor x = in[0];
    for (int i = 0; i < n_kernels; ++i) x = (x + i).flip(0).contiguous();
    return std::vector<Tensor>{x.realize()};
  });
  const Tensor x = random({16}), y = random({16});
  for (int i = 0; i < 5; ++i) f(std::vector<Tensor>{x});
  f(std::vector<Tensor>{y});  // another input each time
  const int64_t allocations = n_allocations, locks = n_locks;
  f(std::vector<Tensor>{x});
  return {f.n_kernels(), n_allocations - allocations, n_locks - locks};
}

TEST(Work, AReplayedKernelAllocatesAndLocksNothing) {
  {
    std::mutex m;
    const std::lock_guard lock(m);
  }
  EXPECT_GT(n_locks, 0);  // they are seen
  EXPECT_GT(n_allocations, 0);
  const Replay few = replay_of(4), many = replay_of(64);
  EXPECT_EQ(few.kernels, 4);
  EXPECT_EQ(many.kernels, 64);
  EXPECT_EQ(many.allocations, few.allocations) << "allocations of a replay of 64 kernels, of 4";
  EXPECT_EQ(many.locks, few.locks) << "locks of a replay of 64 kernels, of 4";
  printf("a replay: %ld allocations, %ld locks\n", static_cast<long>(few.allocations), static_cast<long>(few.locks));
}

}  // namespace
