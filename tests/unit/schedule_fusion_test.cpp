// How many kernels things take, and of which form. Values are compared too.
#include "rules/linear.h"
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

ScheduleStats stats_of(const std::vector<UOp>& roots) { return engine::schedule(roots).schedule->stats; }

UOp softmax(const UOp& x, int64_t axis) {
  const UOp m = reduce_axes(x, "max", dims({axis}));
  const UOp e = exp2((x - expand(m, x.shape())) * cst(1.25, x));
  const UOp s = reduce_axes(e, "add", dims({axis}));
  return e * expand(alu(Op::Recip, {s}), x.shape());
}

UOp layernorm(const UOp& x, const UOp& w, const UOp& b) {
  const int64_t n = x.shape().back(), rows = x.shape()[0];
  const UOp mean = sum(x, {1}) * cst(1.0 / static_cast<double>(n), x);
  const UOp c = x - ex(mean, {rows, n});
  const UOp var = sum(c * c, {1}) * cst(1.0 / static_cast<double>(n), x);
  const UOp r = alu(Op::Recip, {alu(Op::Sqrt, {var + cst(1e-5, x)})});
  return c * ex(r, {rows, n}) * ex(rs(w, {1, n}), {rows, n}) + ex(rs(b, {1, n}), {rows, n});
}

UOp matmul(const UOp& a, const UOp& b) {
  const int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  return rs(sum(ex(rs(a, {m, 1, k}), {m, n, k}) * ex(rs(pm(b, {1, 0}), {1, n, k}), {m, n, k}), {2}), {m, n});
}

UOp relu(const UOp& x) { return alu(Op::Max, {x, cst(0, x)}); }

// x (N, C, H, W), w (F, C, k, k)
UOp conv(const UOp& x, const UOp& w) {
  const int64_t n = x.shape()[0], c = x.shape()[1], f = w.shape()[0], k = w.shape()[2];
  const int64_t h = x.shape()[2] - k + 1, wd = x.shape()[3] - k + 1;
  const UOp win = window(window(x, 2, k, 1, 1), 3, k, 1, 1);  // n c h w k k
  const UOp a = ex(rs(win, {n, 1, c, h, wd, k, k}), {n, f, c, h, wd, k, k});
  const UOp b = ex(rs(w, {1, f, c, 1, 1, k, k}), {n, f, c, h, wd, k, k});
  return rs(sum(a * b, {2, 5, 6}), {n, f, h, wd});
}

TEST(ScheduleFusion, softmax_of_rows_is_one_kernel) {
  EXPECT_EQ(check(softmax(input({64, 40}), 1), 1e-5), 1);
  EXPECT_LE(stats_of({softmax(input({4096, 1024}), 1)}).n_kernels, 2);
}

TEST(ScheduleFusion, softmax_over_the_outer_axis) {
  EXPECT_LE(check(softmax(input({64, 40}), 0), 1e-5), 3);
  EXPECT_LE(stats_of({softmax(input({2048, 512}), 0)}).n_kernels, 4);
}

TEST(ScheduleFusion, layernorm_is_one_kernel) {
  EXPECT_EQ(check(layernorm(input({8, 16}), input({16}), input({16})), 1e-5), 1);
  EXPECT_LE(stats_of({layernorm(input({4096, 768}), input({768}), input({768}))}).n_kernels, 2);
}

TEST(ScheduleFusion, matmul_with_epilogue_is_one_kernel) {
  const UOp a = input({16, 12}), b = input({12, 20}), bias = input({20});
  const UOp y = relu(matmul(a, b) + ex(rs(bias, {1, 20}), {16, 20}));
  EXPECT_EQ(check(y, 1e-5), 1);
  const UOp big = relu(matmul(input({256, 256}), input({256, 256})) + ex(rs(input({256}), {1, 256}), {256, 256}));
  EXPECT_EQ(stats_of({big}).n_kernels, 1);
}

TEST(ScheduleFusion, broadcast_multiply_sum_is_the_matmul) {
  constexpr int64_t n = 64;
  const UOp a = input({n, n}), b = input({n, n});
  const UOp form = rs(sum(ex(rs(a, {n, 1, n}), {n, n, n}) * ex(rs(pm(b, {1, 0}), {1, n, n}), {n, n, n}), {2}), {n, n});
  const auto s = engine::schedule(std::vector<UOp>{form});
  ASSERT_EQ(s.schedule->calls.size(), 1u);
  EXPECT_EQ(s.schedule->stats.temp_bytes, 0);
  EXPECT_EQ(s.schedule->calls[0].kernel, engine::schedule(std::vector<UOp>{matmul(a, b)}).schedule->calls[0].kernel);
}

TEST(ScheduleFusion, an_operand_with_arithmetic_is_computed_once) {
  const UOp a = input({256, 256}), b = input({256, 256});
  EXPECT_EQ(stats_of({matmul(relu(a), b)}).n_kernels, 2);
  EXPECT_EQ(stats_of({matmul(a, b)}).n_kernels, 1);
  EXPECT_EQ(stats_of({matmul(cast(a, DType::Float64), cast(b, DType::Float64))}).n_kernels, 1);
}

TEST(ScheduleFusion, two_layers_are_two_kernels) {
  const UOp x = input({128, 64});
  const UOp h = relu(matmul(x, input({64, 128})));
  EXPECT_EQ(check(matmul(h, input({128, 64})), 1e-5), 2);
}

TEST(ScheduleFusion, conv_with_relu_is_one_kernel_each) {
  const UOp x = input({4, 3, 20, 20});
  const UOp y = relu(conv(x, input({8, 3, 5, 5})));
  EXPECT_EQ(check(y, 1e-5), 1);
  const UOp x2 = input({16, 3, 20, 20});
  const UOp two = relu(conv(relu(conv(x2, input({8, 3, 5, 5}))), input({8, 8, 3, 3})));
  EXPECT_EQ(stats_of({two}).n_kernels, 2);
}

TEST(ScheduleFusion, a_padded_conv_copies_its_input) {
  const UOp x = input({8, 8, 16, 16});
  const UOp y = conv(pd(relu(x), {0, 0, 0, 0, 1, 1, 1, 1}), input({8, 8, 3, 3}));
  EXPECT_EQ(check(y, 1e-5), 2);
}

TEST(ScheduleFusion, a_kept_input_of_relu_is_a_second_output) {
  const UOp z = matmul(input({128, 64}), input({64, 128}));
  const UOp y = relu(z);
  const UOp mask = cast(lt(cst(0, z), z), DType::Float32);
  const UOp out = matmul(y, input({128, 128}));
  EXPECT_LE(check({out, mask}, 1e-5), 3);
}

TEST(ScheduleFusion, adam_of_one_parameter_is_one_kernel) {
  UOp p = input({64}), m = input({64}), v = input({64});
  const UOp g = input({64}, "REF", DType::Float32, 5);
  UOp m1 = after(m, m, m * cst(0.875, m) + g * cst(0.125, m));
  UOp v1 = after(v, v, v * v * cst(0.75, v) + g * g * cst(0.25, v));
  UOp p1 = after(p, p, p - m1 * alu(Op::Recip, {alu(Op::Sqrt, {v1}) + cst(1e-8, p)}) * cst(0.01, p));
  p = m = v = {};
  EXPECT_EQ(check({p1, m1, v1}), 1);
}

TEST(ScheduleFusion, adam_of_many_parameters_is_few_kernels) {
  std::vector<UOp> roots;
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t n = 16 * (i + 1);
    UOp p = input({n}), m = input({n}), v = input({n});
    const UOp g = sum(input({4, n}), {0});
    const UOp gr = rs(g, {n});
    UOp m1 = after(m, m, m * cst(0.875, m) + gr * cst(0.125, m));
    UOp v1 = after(v, v, v * v * cst(0.75, v) + gr * gr * cst(0.25, v));
    UOp p1 = after(p, p, p - m1 * alu(Op::Recip, {alu(Op::Sqrt, {v1}) + cst(1e-8, p)}) * cst(0.01, p));
    roots.insert(roots.end(), {p1, m1, v1});
  }
  EXPECT_LE(check(roots, 1e-5), 12);  // 10 gradients, 2 updates
}

TEST(ScheduleFusion, a_full_reduce_is_two_kernels) {
  EXPECT_EQ(stats_of({sum(input({1024, 1024}), {0, 1})}).n_kernels, 2);
  EXPECT_EQ(check(sum(input({70001}), {0}), 1e-4), 2);  // a prime: what is left of 64 parts joins at the end
  EXPECT_EQ(check(sum(input({3, 2, 35003}), {0, 2}), 1e-4), 2);
  const FlagScope off("SPLIT_REDUCEOP", int64_t{0});
  EXPECT_EQ(stats_of({sum(input({1024, 512}), {0, 1})}).n_kernels, 1);
}

TEST(ScheduleFusion, a_batch_norm_does_not_compute_its_mean_for_each_pixel) {
  const UOp x = input({32, 8, 16, 16});
  const UOp mean = sum(x, {0, 2, 3}) * cst(1.0 / 8192, x);
  const UOp c = x - ex(mean, {32, 8, 16, 16});
  const UOp var = sum(c * c, {0, 2, 3}) * cst(1.0 / 8192, x);
  const UOp y = c * ex(alu(Op::Recip, {alu(Op::Sqrt, {var + cst(1e-5, x)})}), {32, 8, 16, 16});
  EXPECT_LE(check(y, 1e-4), 5);
}

TEST(ScheduleFusion, sums_over_one_tensor_are_one_kernel) {
  const UOp dy = input({64, 8, 128}), x = input({64, 8, 128}, "REF", DType::Float32, 2);
  EXPECT_EQ(check({sum(dy, {0, 2}), sum(dy * x, {0, 2}), sum(dy, {0})}), 2);
}

TEST(ScheduleFusion, relu_keeps_one_tensor) {
  const UOp z = matmul(input({128, 64}), input({64, 128}));
  const UOp tiny = cst(1e-45, z), zero = cst(0, z);
  const UOp r = where(lt(z, tiny), zero, z);
  const UOp y = matmul(r, input({128, 64}));
  const UOp g = matmul(input({128, 64}), input({64, 128}));
  const UOp dz = where(lt(z, tiny), zero, g);
  const auto s = engine::schedule(std::vector<UOp>{y, dz});
  EXPECT_EQ(s.schedule->stats.n_kernels, 3);
  EXPECT_EQ(s.schedule->stats.temp_bytes, 128 * 128 * 4);
  check({y, dz}, 1e-5);
}

TEST(ScheduleFusion, windows_over_the_edge_read_a_halo) {
  // The data gradient of a convolution; what lies in memory is copied.
  for (const UOp& dy : {relu(input({8, 16, 12, 12})), input({8, 16, 12, 12})}) {
    const UOp w = input({16, 8, 3, 3});
    const UOp a = ex(rs(dy, {8, 16, 1, 12, 12, 1, 1}), {8, 16, 8, 12, 12, 3, 3});
    const UOp b = ex(rs(w, {1, 16, 8, 1, 1, 3, 3}), {8, 16, 8, 12, 12, 3, 3});
    const UOp col = rs(sum(a * b, {1}), {8, 8, 12, 12, 3, 3});
    const UOp dx = unwindow(unwindow(col, 3, 14, 1, 1), 2, 14, 1, 1);
    const auto s = engine::schedule(std::vector<UOp>{dx});
    ASSERT_EQ(s.schedule->calls.size(), 2u);
    for (const Node* n : toposort(s.schedule->calls[1].kernel)) {
      EXPECT_FALSE(n->op == Op::Index && n->n_src > 2);
      EXPECT_NE(n->op, Op::Where);
    }
    check(dx, 1e-5);
  }
}

TEST(ScheduleFusion, windows_of_stride_two_read_phases) {
  const UOp x = relu(input({2, 16, 12, 12})), w = input({32, 16, 3, 3});
  const UOp win = window(window(pad(x, dims({0, 0, 0, 0, 1, 1, 1, 1})), 2, 3, 2, 1), 3, 3, 2, 1);
  const UOp a = ex(rs(win, {2, 1, 16, 6, 6, 3, 3}), {2, 32, 16, 6, 6, 3, 3});
  const UOp b = ex(rs(w, {1, 32, 16, 1, 1, 3, 3}), {2, 32, 16, 6, 6, 3, 3});
  const UOp y = rs(sum(a * b, {2, 5, 6}), {2, 32, 6, 6});
  const auto s = engine::schedule(std::vector<UOp>{y});
  ASSERT_EQ(s.schedule->calls.size(), 2u);
  // Neighbours of the output read neighbours in memory.
  for (const Node* n : toposort(s.schedule->calls[1].kernel))
    if (n->op == Op::Index) {
      EXPECT_EQ(n->n_src, 2u);
      for (const Linear::Term& t : linear_of(UOp(n->src()[1])).terms)
        EXPECT_FALSE(t.factor == 2 && t.node.op() == Op::Range && axis_type(t.node.node()) == AxisType::Weak);
    }
  check(y, 1e-5);
}

TEST(ScheduleFusion, a_deep_chain_is_cut) {
  UOp x = input({4});
  for (int i = 0; i < 100000; ++i) x = x + cst(1, x);
  const auto s = stats_of({x});
  EXPECT_GT(s.n_kernels, 10);
  EXPECT_LT(s.n_kernels, 100);
  EXPECT_LT(s.n_kernel_nodes, 500000);
}

TEST(ScheduleFusion, shared_work_does_not_explode) {
  UOp x = input({64, 64});
  for (int i = 0; i < 60; ++i) x = x * cst(0.5, x) + pm(x, {1, 0}) * cst(0.25, x);
  const auto s = stats_of({x});
  EXPECT_LT(s.n_kernel_nodes, 50000);
  check(x, 1e-4);
}

TEST(ScheduleFusion, many_inputs_are_split) {
  UOp x = input({16});
  for (int i = 0; i < 100; ++i) x = x + input({16}, "REF", DType::Float32, static_cast<uint32_t>(i));
  const auto s = engine::schedule(std::vector<UOp>{x});
  for (const ScheduledCall& c : s.schedule->calls) EXPECT_LE(c.args.size(), 31u);
  check(x);
}

}  // namespace
}  // namespace whit::test
