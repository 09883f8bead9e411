// Every tensor op through rangeify and the kernel interpreter, against the tensor interpreter.
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

TEST(EngineValues, elementwise) {
  const UOp a = input({3, 4}), b = input({3, 4}, "REF", DType::Float32, 2);
  EXPECT_EQ(check(a * b + cst(1, a)), 1);
  EXPECT_EQ(check(where(lt(a, b), a, b)), 1);
  EXPECT_EQ(check(cast(a, DType::Int32)), 1);
}

TEST(EngineValues, a_constant_and_lanes) {
  EXPECT_EQ(check(broadcast_scalar(constant(DType::Float32, 2.5), dims({2, 3}))), 1);
  EXPECT_EQ(check(lanes(7)), 1);
  EXPECT_EQ(check(constant(DType::Int64, 3)), 1);
}

TEST(EngineValues, movement) {
  const UOp a = input({4, 6});
  EXPECT_EQ(check(contiguous(pm(a, {1, 0}))), 1);
  EXPECT_EQ(check(rs(pm(a, {1, 0}), {3, 8}) + cst(1, a)), 1);
  EXPECT_EQ(check(pd(a, {1, 2, 0, 3})), 1);
  EXPECT_EQ(check(sh(a, {1, 3, 2, 6})), 1);
  EXPECT_EQ(check(fl(a, {0, 1})), 1);
  EXPECT_EQ(check(ex(rs(a, {4, 1, 6}), {4, 3, 6})), 1);
  EXPECT_EQ(check(rs(sh(pd(fl(pm(a, {1, 0}), {0}), {1, 1, 2, 0}), {0, 7, 1, 5}), {2, 14})), 1);
}

TEST(EngineValues, window_and_unwindow) {
  const UOp a = input({2, 9});
  for (const auto& [k, s, d] : {std::tuple{3, 1, 1}, {3, 2, 1}, {2, 2, 1}, {3, 1, 2}, {2, 3, 1}, {3, 2, 2}, {1, 2, 1}}) {
    const UOp w = window(a, 1, k, s, d);
    check(w);
    check(unwindow(contiguous(w), 1, 9, s, d));
    check(unwindow(w * cst(2, w), 1, 9, s, d));
    check(sum(unwindow(w * w, 1, 9, s, d), {0}));
  }
}

TEST(EngineValues, stack_and_bitcast) {
  const UOp a = input({3, 4}), b = input({3, 4}, "REF", DType::Float32, 2);
  const UOp s = UOp::make(Op::Stack, DType::Float32, {a, b, a + b});
  check(s);
  check(pm(s, {1, 0, 2}));
  check(sh(s, {1, 2, 0, 3, 0, 4}));
  check(UOp::make(Op::Bitcast, DType::Int32, {a}));
  check(UOp::make(Op::Bitcast, DType::UInt8, {a}));
  check(UOp::make(Op::Bitcast, DType::UInt64, {a}));
  check(UOp::make(Op::Bitcast, DType::Float64, {contiguous(UOp::make(Op::Bitcast, DType::UInt16, {a}))}));
}

TEST(EngineValues, reduce) {
  const UOp a = input({3, 4, 5});
  EXPECT_EQ(check(sum(a, {1})), 1);
  EXPECT_EQ(check(sum(a, {0, 2})), 1);
  EXPECT_EQ(check(max(a, {0, 1, 2})), 1);
  EXPECT_EQ(check(reduce_axes(a, "min", dims({2})) * cst(2, a)), 1);
  EXPECT_EQ(check(sum(sum(a, {2}), {1})), 1);
  EXPECT_EQ(check(sum(max(a, {2}), {1})), 1);
  EXPECT_EQ(check(reduce_axes(cst(1.25, a) + a * cst(0.125, a), "mul", dims({2})), 1e-5), 1);
}

TEST(EngineValues, reduce_over_nothing_and_empty_tensors) {
  const UOp e = input({0, 3});
  EXPECT_EQ(check(sum(e, {0})), 1);
  EXPECT_EQ(check(max(e, {0})), 1);
  const UOp y = engine::realize(e + cst(1, e));
  EXPECT_EQ(y.shape().numel(), 0);
}

TEST(EngineValues, gather) {
  const UOp x = input({5, 3});
  const UOp at = ints({2, 2}, {4, 0, -1, 7});
  EXPECT_EQ(check(gather(x, at)), 1);
  EXPECT_EQ(check(gather(x * cst(2, x), at)), 1);
  EXPECT_EQ(check(gather(x, at + constant(DType::Int32, 1))), 1);
  const UOp table = ints({5}, {3, 1, 4, 1, 0});
  EXPECT_EQ(check(gather(x, gather(table, at))), 1);
  EXPECT_EQ(check(sum(gather(x, at), {1})), 1);
  check(gather(exp2(x), at));
}

// Found by the fuzzer: the distance to such a row is past 64 bits.
TEST(EngineValues, rows_far_outside) {
  const UOp a = input({5, 3, 4}), b = input({1, 3, 4}, "REF", DType::Float32, 2);
  for (const int64_t row : {INT64_MIN, -INT64_MAX, int64_t{-1}, int64_t{4}, int64_t{5}, INT64_MAX}) {
    check(UOp::make(Op::Gather, DType::Float32, {a, constant(DType::Int64, row)}));
    const UOp at = broadcast_scalar(constant(DType::Int64, row), dims({1}));
    check(UOp::make(Op::Scatter, DType::Float32, {a, at, b}, "set"));
    check(UOp::make(Op::Scatter, DType::Float32, {a, at, b}, "add"));
  }
}

TEST(EngineValues, scatter) {
  const UOp base = input({5, 3}), v = input({4, 3}, "REF", DType::Float32, 3);
  const UOp at = ints({4}, {1, 4, 1, 9});
  check(scatter(base, at, v, "add"));
  check(scatter(base, at, v, "set"));
  check(scatter(base * cst(2, base), at, v * v, "add") + base);
  check(scatter(broadcast_scalar(constant(DType::Float32, 0), dims({5, 3})), at, v, "add"));
  const UOp flat = rs(input({6}), {6});
  check(scatter(flat, ints({2, 2}, {0, 5, 0, 2}), input({2, 2}), "add"));
}

TEST(EngineValues, matmul_forms) {
  const UOp a = input({4, 5}), b = input({5, 6});
  const auto product = [&] { return sum(ex(rs(a, {4, 1, 5}), {4, 6, 5}) * ex(rs(pm(b, {1, 0}), {1, 6, 5}), {4, 6, 5}), {2}); };
  EXPECT_EQ(check(product()), 1);
  EXPECT_EQ(check(max(product() + cst(2, a), {1})), 2);
}

TEST(EngineValues, a_root_twice_and_roots_of_roots) {
  const UOp a = input({4, 5});
  const UOp y = a * cst(2, a), z = y + cst(1, a);
  EXPECT_EQ(check(std::vector<UOp>{y, z, y, rs(z, {20})}), 1);
  const UOp again = engine::realize(y);
  EXPECT_TRUE(engine::is_buffer_view(again));
  EXPECT_EQ(again, engine::realize(y));
  EXPECT_EQ(engine::schedule(std::vector<UOp>{z * y}).inputs.size(), 2u);  // reads both, computes neither
}

TEST(EngineValues, calls_are_inlined) {
  const UOp a = input({4});
  const int64_t n[] = {4};
  const UOp p = param(0, DType::Float32, n), q = param(1, DType::Float32, n);
  const UOp body = p * q + p;
  const UOp call = UOp::make(Op::Call, DType::Float32, {body, a, a + a});
  const UOp outer = UOp::make(Op::Call, DType::Float32, {UOp::make(Op::Call, DType::Float32, {body, q, p}), a, call});
  const auto want = expected(std::vector<UOp>{outer});
  expect_near(values(engine::realize(outer)), want[0], 1e-6);
}

TEST(EngineValues, copy_between_devices) {
  const UOp a = input({4, 3});
  const UOp c = UOp::make(Op::Copy, DType::Float32, {a * cst(3, a)}, "REF:1");
  const UOp y = engine::realize(c + cst(1, a));
  EXPECT_EQ(device_name(y->device), "REF:1");
  std::vector<double> want = values(a);
  for (double& v : want) v = v * 3 + 1;
  expect_near(values(y), want, 0);
  EXPECT_THROW(engine::realize(c + a), Error);
}

}  // namespace
}  // namespace whit::test
