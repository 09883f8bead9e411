// checkpoint and memory budgets: what is computed again instead of kept, by bytes, and that values stay the same.
#include "schedule/schedule.h"
#include "unit/engine_test_util.h"
#include "unit/tensor_checks.h"
#include "whit/jit.h"
#include "whit/transform.h"

namespace whit::test {
namespace {

constexpr int64_t kRows = 64, kWidth = 32;
constexpr int kLayers = 8, kPerBlock = 4;

struct Net {
  std::vector<Tensor> weights{};
  Tensor x = Tensor::from(std::vector<float>(size_t{kRows * kWidth}, 0.25F), {kRows, kWidth}).realize();
  Net() {
    for (int i = 0; i < kLayers; ++i) {
      std::vector<float> w;
      for (int64_t k = 0; k < kWidth * kWidth; ++k) w.push_back(static_cast<float>((k * 7 + i * 3) % 11 - 5) / static_cast<float>(kWidth));
      weights.push_back(Tensor::from(w, {kWidth, kWidth}).realize());
    }
  }
  Tensor block(const Tensor& in, int first) const {
    Tensor h = in;
    for (int i = first; i < first + kPerBlock; ++i) h = h.matmul(weights[static_cast<size_t>(i)]).sin();
    return h;
  }
  // The gradients of all weights.
  std::vector<Tensor> gradients(bool checkpointed) const {
    Tensor h = x;
    for (int i = 0; i < kLayers; i += kPerBlock) {
      const auto fn = [&](std::span<const Tensor> in) { return std::vector<Tensor>{block(in[0], i)}; };
      h = checkpointed ? checkpoint(fn, std::vector<Tensor>{h})[0] : block(h, i);
    }
    return h.sum().gradient(weights);
  }
};

std::shared_ptr<const Schedule> schedule_of(const std::vector<Tensor>& tensors) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.uop());
  return engine::schedule(roots).schedule;
}

std::vector<std::vector<float>> numbers(std::vector<Tensor> tensors) {
  std::vector<std::vector<float>> out;
  for (Tensor& t : tensors) out.push_back(t.to_vector<float>());
  return out;
}

TEST(Schedule, gradients_of_attention_store_no_product_of_queries_and_keys) {
  constexpr int64_t kBatch = 2, kHeads = 2, kLength = 1024, kSize = 64, kAll = kHeads * kSize;
  const Tensor x = Tensor::empty({kBatch, kLength, kAll}).realize(), w = Tensor::empty({kAll, 3 * kAll}).realize();
  std::vector<Tensor> qkv;
  for (const Tensor& t : x.matmul(w).chunk(3, -1)) qkv.push_back(t.reshape({kBatch, kLength, kHeads, kSize}).transpose(1, 2));
  const Tensor y = qkv[0].scaled_dot_product_attention(qkv[1], qkv[2], {.is_causal = true});
  const auto s = schedule_of((y * y).sum().gradient(std::vector<Tensor>{w}));
  EXPECT_LT(s->stats.arena_bytes, kBatch * kHeads * kLength * kLength * kSize);  // a quarter of the product
}

TEST(Recompute, a_checkpoint_frees_what_is_inside) {
  const Net net;
  const auto kept = schedule_of(net.gradients(false)), again = schedule_of(net.gradients(true));
  EXPECT_EQ(kept->stats.n_recomputed, 0);
  EXPECT_GT(again->stats.n_recomputed, 0);
  EXPECT_LT(again->stats.arena_bytes, kept->stats.arena_bytes * 3 / 4) << again->stats.arena_bytes << " of " << kept->stats.arena_bytes;
  EXPECT_EQ(numbers(net.gradients(true)), numbers(net.gradients(false)));
}

TEST(Recompute, weights_that_are_not_computed_yet_have_gradients) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2}, {2}).realize(), w = x * 3.0;
  const auto fn = [&](std::span<const Tensor> in) { return std::vector<Tensor>{(in[0] * w).sin()}; };
  const Tensor y = checkpoint(fn, std::vector<Tensor>{x})[0];
  EXPECT_EQ(numbers(y.sum().gradient(std::vector<Tensor>{w})), numbers((x * w).sin().sum().gradient(std::vector<Tensor>{w})));
}

TEST(Recompute, a_budget_is_met_with_the_same_values) {
  const Net net;
  const auto want = numbers(net.gradients(false));
  const int64_t all = schedule_of(net.gradients(false))->stats.arena_bytes;
  const engine::MemoryBudget budget(all * 6 / 10);
  const auto s = schedule_of(net.gradients(false));
  EXPECT_LE(s->stats.arena_bytes, all * 6 / 10);
  EXPECT_GT(s->stats.n_recomputed, 0);
  EXPECT_EQ(numbers(net.gradients(false)), want);
}

TEST(Recompute, a_budget_that_cannot_be_met_names_the_least) {
  const Net net;
  int64_t least = 0;
  TinyJit impossible([&](std::span<const Tensor>) { return net.gradients(false); }, 1000);
  try {
    impossible();
    FAIL() << "1000 bytes were enough";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    ASSERT_EQ(std::sscanf(e.what(), "[schedule] memory_budget 1000: temporaries need at least %ld bytes", &least), 1) << e.what();
  }
  TinyJit step([&](std::span<const Tensor>) { return net.gradients(false); }, least);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(numbers(step()), numbers(net.gradients(false)));
}

TEST(Recompute, memory_that_is_written_in_between_is_not_read_again) {
  // The value is needed before and after w changes, and only memory for it can be saved.
  Net net;
  Tensor& w = net.weights[0];
  const auto run = [&] {
    const Tensor h = net.x.matmul(w).sin(), big = h.matmul(net.weights[1]).sin().matmul(net.weights[2]).sin();
    const Tensor before = (big.sum() * h.sum());
    const Tensor again = (h * big).sum();
    w.assign(w * 0.5 + before * 0.001);
    Tensor after = (h.matmul(w)).sum() + again;
    Tensor::realize_all(std::vector<Tensor>{after, w});
    auto out = numbers({after, w});
    return out;
  };
  const std::vector<float> start = w.to_vector<float>();
  const auto want = run();
  w.assign(Tensor::from(start, {kWidth, kWidth})).realize();
  for (const int64_t n : {20'000, 30'000, 40'000}) {
    const engine::MemoryBudget budget(n);
    try {
      EXPECT_EQ(run(), want);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Memory) << e.what();
    }
    const engine::MemoryBudget none(0);
    w.assign(Tensor::from(start, {kWidth, kWidth})).realize();
  }
}

}  // namespace
}  // namespace whit::test
