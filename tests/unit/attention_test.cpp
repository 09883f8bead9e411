// Attention without memory for all scores: what is stored, what is computed, and that masked blocks are not.
#include <gtest/gtest.h>

#include "codegen/optimize.h"
#include "interpret_linear.h"
#include "unit/engine_test_util.h"
#include "unit/kernel_zoo.h"
#include "unit/run_kernel.h"
#include "whit/tensor.h"

namespace whit::test {
namespace {

using Mask = zoo::AttentionShape::Mask;

// ---- the kernel

struct Outcome {
  std::vector<float> values;
  int64_t n_multiply_adds;
};
Outcome evaluate(const UOp& sink) {
  testing::KernelMemory memory(sink);
  const auto p = memory.pointers();
  int64_t n = 0;
  if (sink.op() == Op::Program) n = evaluate_linear(sink, p);
  else evaluate_kernel(sink, p);
  const float* out = static_cast<const float*>(p[0]);
  return {{out, out + memory.bytes[0].size() / sizeof(float)}, n};
}

Target target_of(int cores) {
  Target t;
  t.vector_bytes = 64, t.n_vector_registers = 32, t.n_cores = cores;
  t.renderer = testing::kRenderer, t.arch = host_cpu_arch();
  return t;
}

TEST(Attention, KernelsOfAllShapes) {
  for (const Mask mask : {Mask::None, Mask::Causal, Mask::Later})
    for (const zoo::AttentionShape s :
         {zoo::AttentionShape{2, 64, 64, 8}, {1, 100, 100, 16}, {2, 33, 129, 8}, {1, 129, 33, 4}, {1, 130, 130, 5}, {1, 7, 7, 4}, {3, 192, 192, 8}}) {
      if (mask == Mask::Later && s.rows > s.keys) continue;  // rows without scores
      const UOp sink = zoo::attention({s.heads, s.rows, s.keys, s.d, mask});
      const std::string what = fmt::format("{} x {} rows, {} keys, {}, mask {}", s.heads, s.rows, s.keys, s.d, static_cast<int>(mask));
      const std::vector<float> want = evaluate(sink).values;
      const auto near = [&](const std::vector<float>& have, const char* stage) {
        for (size_t i = 0; i < want.size(); ++i)
          if (!(std::abs(have[i] - want[i]) <= 1e-5F)) {
            ADD_FAILURE() << what << ", " << stage << ": element " << i << " is " << have[i] << " instead of " << want[i];
            return;
          }
      };
      near(evaluate(codegen::optimize(sink, target_of(8), nullptr)).values, "optimised");
      near(evaluate(lower_kernel(sink, target_of(1))).values, "lowered");
      EXPECT_EQ(testing::difference(sink, lower_kernel(sink, testing::test_target()), 1e-5, 3), "") << what;
    }
}

TEST(Attention, BlocksThatAreMaskedAreNotComputed) {
  const auto work = [](Mask mask) { return evaluate(lower_kernel(zoo::attention({1, 512, 512, 4, mask}), target_of(1))).n_multiply_adds; };
  const int64_t all = work(Mask::None);
  EXPECT_GE(all, 2 * 512 * 512 * 4);
  // Of 8 blocks of 64 rows, 36 of 64 squares; and what the steps of the loops go beyond them.
  EXPECT_LT(work(Mask::Causal), all * 60 / 100);
  EXPECT_LT(work(Mask::Later), all * 60 / 100);
}

TEST(Attention, MaskedBlocksDoNotChangeABit) {
  // The same scores with a mask that codegen cannot see: loaded.
  const int64_t n = 200, d = 8;
  const UOp seen = zoo::attention({1, n, n, d, Mask::Causal});
  const UOp mask = zoo::buffer(4, n * n, DType::Bool);
  std::unordered_map<const Node*, UOp> map;
  for (const Node* u : toposort(seen))
    if (u->op == Op::Xor) {
      const UOp row = UOp(u->src()[0]->src()[0]).src(0), col = UOp(u->src()[0]->src()[1]).src(0);
      map.emplace(u, zoo::at(mask, row * n + col));
    }
  ASSERT_EQ(map.size(), 2u);
  const UOp loaded = substitute(seen, map);
  testing::KernelMemory a(seen), b(loaded);
  for (size_t slot = 1; slot < 4; ++slot) b.bytes[slot] = a.bytes[slot];
  for (int64_t i = 0; i < n * n; ++i) b.bytes[4][static_cast<size_t>(i)] = std::byte{i % n <= i / n};
  const auto p = a.pointers(), q = b.pointers();
  const int64_t less = evaluate_linear(lower_kernel(seen, target_of(1)), p);
  const int64_t all = evaluate_linear(lower_kernel(loaded, target_of(1)), q);
  EXPECT_LT(less, all);
  EXPECT_EQ(a.bytes[0], b.bytes[0]);
}

TEST(Attention, RowsWithoutScoresAreNaN) {
  zoo::AttentionShape s{1, 96, 40, 8, Mask::Later};  // rows 40.. have none
  const std::vector<float> out = evaluate(lower_kernel(zoo::attention(s), target_of(1))).values;
  for (int64_t i = 0; i < s.rows; ++i) EXPECT_EQ(std::isnan(out[static_cast<size_t>(i * s.d)]), i >= s.keys) << i;
}

TEST(Attention, ScratchIsForABlockOfRows) {
  for (const int64_t n : {512, 1024, 4096}) {
    const int64_t bytes = ProgramInfo::of(lower_kernel(zoo::attention({2, n, n, 64}), target_of(2))).scratch_bytes;
    EXPECT_LE(bytes, std::max<int64_t>(2 << 20, n * 16 * 4 * 3)) << n;
  }
}

// ---- the schedule

struct Stored {
  int64_t kernels = 0, largest = 0;  // elements of a buffer that is not the user's
};
Stored stored(const std::vector<Tensor>& roots) {
  std::vector<UOp> nodes;
  for (const Tensor& t : roots) nodes.push_back(t.uop());
  const auto s = engine::schedule(nodes).schedule;
  Stored out{s->stats.n_kernels};
  for (const auto& b : s->buffers) out.largest = std::max(out.largest, b.n_elems);
  return out;
}

class AttentionOf : public ::testing::Test {
 protected:
  static Tensor make(const IntList& shape) { return Tensor::zeros(shape).realize(); }
  static Tensor plain(const Tensor& q, const Tensor& k, const Tensor& v) {
    const int64_t n = q.size(-2);
    const Tensor mask = Tensor::full({n, n}, -INFINITY, {.buffer = false}).triu(1);
    return (q.matmul(k.transpose(-2, -1)) * 0.125 + mask).softmax(-1).matmul(v);
  }
  static Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v) { return q.scaled_dot_product_attention(k, v, {.is_causal = true}); }
};

TEST_F(AttentionOf, ManyScoresStoresNone) {
  const int64_t h = 12, n = 1024, d = 64;
  const Tensor q = make({1, h, n, d}), k = make({1, h, n, d}), v = make({1, h, n, d});
  for (auto* of : {&plain, &fused}) {
    const Stored forward = stored({of(q, k, v)});
    EXPECT_EQ(forward.kernels, 1);
    EXPECT_EQ(forward.largest, h * n * d);
    const Tensor out = of(q, k, v);
    std::vector<Tensor> roots{out};
    for (const Tensor& g : out.square().sum().gradient({q, k, v})) roots.push_back(g);
    const Stored both = stored(roots);
    EXPECT_LE(both.kernels, 5);
    EXPECT_EQ(both.largest, h * n * d);
  }
}

TEST_F(AttentionOf, FewScoresAreStored) {
  const Tensor x = make({2, 12, 128, 64});
  EXPECT_EQ(stored({fused(x, x, x)}).largest, 2 * 12 * 128 * 128);
}

// A mask in memory is read once a score, along memory, and the scores with it are what is staged.
TEST_F(AttentionOf, MasksAreReadAlongMemory) {
  const int64_t h = 12, n = 1024, d = 64;
  const auto random = [](const IntList& shape) { return (Tensor::rand(shape) - 0.5).realize(); };
  const Tensor q = random({1, h, n, d}), k = random({1, h, n, d}), v = random({1, h, n, d});
  for (const DType dt : {DType::Float32, DType::Float16, DType::Bool})
    for (const IntList& shape : {IntList{n, n}, {1, h, n, n}, {1, 1, 1, n}, {n, 1}}) {
      const Tensor mask = random(shape).cast(dt).realize();
      const Tensor out = q.scaled_dot_product_attention(k, v, {.attn_mask = &mask});
      std::vector<UOp> roots{out.uop()};
      for (const Tensor& g : out.square().sum().gradient({q, k, v})) roots.push_back(g.uop());
      const BoundSchedule s = engine::schedule(roots);
      for (const ScheduledCall& call : s.schedule->calls) {
        if (!call.kernel) continue;
        const UOp program = lower_kernel(call.kernel, target_of(2));
        for (const Node* m : program->src()[1]->src()) {
          if (m->op != Op::Load || m->src()[0]->op != Op::Index) continue;
          EXPECT_TRUE(m->src()[0]->src()[1]->shape.empty())
              << fmt::format("{} mask of rank {}: a gather in {}", dt, shape.size(), ProgramInfo::of(program).name);
        }
      }
      const Stored forward = stored({out});
      EXPECT_EQ(forward.kernels, 1);
      EXPECT_EQ(forward.largest, std::max(h * n * d, mask.numel()));
    }
}

// Values and gradients of many forms, against the evaluator of tensor graphs.
TEST_F(AttentionOf, ScoresInBlocksHaveTheSameValues) {
  const FlagScope all("STORED_SCORES", FlagValue(int64_t{0}));
  const int64_t n = 70, d = 8;
  const UOp q = input({2, n, d}, WHIT_LLVM ? "CPU" : "REF", DType::Float32, 1), k = input({2, n, d}, WHIT_LLVM ? "CPU" : "REF", DType::Float32, 2),
            v = input({2, n, d}, WHIT_LLVM ? "CPU" : "REF", DType::Float32, 3);
  const Tensor a = Tensor(q), b = Tensor(k), c = Tensor(v);
  for (auto* of : {&plain, &fused}) {
    const Tensor out = of(a * 0.125, b, c);
    std::vector<UOp> roots{out.uop()};
    for (const Tensor& g : out.square().sum().gradient({a, b, c})) roots.push_back(g.uop());
    check(roots, 1e-4);
  }
  uint64_t seed = 4;
  for (const D shape : {D{n, n}, D{2, n, n}, D{1, 1, n}, D{n, 1}})
    for (const bool is_bool : {false, true}) {
      const Tensor x(input(shape, WHIT_LLVM ? "CPU" : "REF", DType::Float32, seed++)), mask = is_bool ? x > -1.5 : x;
      const Tensor out = (a * 0.125).scaled_dot_product_attention(b, c, {.attn_mask = &mask});
      std::vector<UOp> roots{out.uop()};
      for (const Tensor& g : out.square().sum().gradient(is_bool ? std::vector{a, b, c} : std::vector{a, b, c, x})) roots.push_back(g.uop());
      check(roots, 3e-4);  // some gradients of masks are sums of almost nothing
    }
}

}  // namespace
}  // namespace whit::test
