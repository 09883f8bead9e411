// Tensors on several devices: values, what moves between the devices, aliasing. python/tests/test_multi.py has every op.
#include "base/flags.h"
#include "engine/realize.h"
#include "ir/uop.h"
#include "runtime/device.h"
#include "schedule/multi.h"
#include "tensor_checks.h"

namespace whit {
namespace {

class TensorMulti : public ::testing::Test {
 protected:
  std::string kind = default_device().substr(0, default_device().find(':'));
  std::vector<std::string> two{kind, kind + ":1"}, three{kind, kind + ":1", kind + ":2"};
  Tensor x = f32({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}).realize();

  // Copies and kernels of the schedule for a value.
  static std::pair<int64_t, int64_t> counts(const Tensor& t) {
    const UOp root = t.uop();
    const BoundSchedule s = engine::schedule(std::span(&root, 1));
    int64_t n_copies = 0;
    for (const ScheduledCall& c : s.schedule->calls) n_copies += !c.kernel;
    return {n_copies, static_cast<int64_t>(s.schedule->calls.size()) - n_copies};
  }
};

TEST_F(TensorMulti, ShardAndBack) {
  const Tensor y = x.shard(two, 0);
  EXPECT_EQ(y.devices(), two);
  EXPECT_EQ(*y.device(), two[0] + "," + two[1]);
  EXPECT_EQ(shard_axis(y.uop()), 0);
  expect_tensor(y.sum({0}), {2}, {16, 20});
  expect_tensor(y.to(kind), {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  expect_tensor(x.shard(two).realize() * 2, {4, 2}, {2, 4, 6, 8, 10, 12, 14, 16});
}

TEST_F(TensorMulti, Errors) {
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { (void)x.shard(three, 0); }), "[shard] axis 0 of shape (4, 2) does not divide by 3 devices");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { (void)x.shard(two, 0).shard(two, 0); }),
            "[shard] the tensor is on several devices already: " + two[0] + "," + two[1]);
  expect_error(ErrorKind::Value, "[device] ", [&] { (void)x.shard({kind, kind}); });
  expect_error(ErrorKind::Runtime, "[shard] ADD of values on ", [&] { (x.shard(two, 0) + x).realize(); });
  expect_error(ErrorKind::Runtime, "[full_like] a device is given", [&] { (void)x.shard(two, 0).zeros_like({.device = kind}); });
  expect_error(ErrorKind::Runtime, "[assign] the value is cut along axis 1", [&] {
    Tensor y = x.shard(two, 0);
    y.realize().assign(x.shard(two, 1));
  });
}

// Where the pieces fit nothing moves.
TEST_F(TensorMulti, WhatMoves) {
  const Tensor a = x.shard(two, 0).realize(), b = x.shard(two, 1).realize(), w = x.shard(two).realize();
  using Counts = std::pair<int64_t, int64_t>;
  EXPECT_EQ(counts(a * 2 + w), Counts(0, 2));
  EXPECT_EQ(counts((a + 1).reshape({2, 2, 2}).permute({2, 0, 1}).sum({0})), Counts(0, 2));
  EXPECT_EQ(counts(a.sum({1})), Counts(0, 2));
  EXPECT_EQ(counts(a.sum({0})).first, 2);
  EXPECT_EQ(counts(a + b).first, 2);  // half of each half
  EXPECT_EQ(counts(a.flip(0)).first, 2);
}

TEST_F(TensorMulti, AllReduce) {
  std::vector<std::string> devices = three;
  const Tensor v = f32({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 4}).shard(devices, 0).realize();
  for (const char* const how : {"RING", "ALL2ALL", "TREE"}) {
    const FlagScope scope(how, int64_t{2});
    expect_tensor(v.sum({0}), {4}, {15, 18, 21, 24});
    expect_tensor(v.max({0}), {4}, {9, 10, 11, 12});
  }
  const FlagScope ring("RING", int64_t{2});
  EXPECT_EQ(counts(v.sum({0})).first, 3 * 4);  // chunks, each 2 steps to be summed and 2 to be shared
}

TEST_F(TensorMulti, Memory) {
  for (const std::optional<int64_t> axis : {std::optional<int64_t>(0), std::optional<int64_t>(1), std::optional<int64_t>()}) {
    Tensor y = x.shard(two, axis).realize();
    const Tensor old = y + 1, row = y[1], kept = y.to(kind).realize();
    y.assign(y * 2);
    y.set({Slice{1, 3}, 0}, 0);
    expect_tensor(y, {4, 2}, {2, 4, 0, 8, 0, 12, 14, 16});
    expect_tensor(old, {4, 2}, {2, 3, 4, 5, 6, 7, 8, 9});
    expect_tensor(row, {2}, {0, 8});
    expect_tensor(kept, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    expect_tensor(x, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Tensor like = y.full_like(3);
    EXPECT_EQ(like.devices(), two);
    EXPECT_EQ(shard_axis(like.uop()), axis.value_or(-1));
  }
}

TEST_F(TensorMulti, GradientAndJit) {
  Tensor w = f32({1, 2}, {2}).shard(two).realize();
  TinyJit step([&](std::span<const Tensor> in) {
    Tensor loss = (in[0] * w).square().sum();
    const Tensor g = loss.gradient({w})[0];  // before realize, which leaves the number alone
    return std::vector{loss.realize(), w.assign(w - g * 0.001).realize()};
  });
  std::vector<double> want{1, 2};
  for (int i = 0; i < 5; ++i) {
    const auto out = step({(x + i).shard(two, 0)});
    double loss = 0, g[2] = {};
    for (int k = 0; k < 8; ++k) {
      const double v = k + 1 + i, p = v * want[static_cast<size_t>(k % 2)];
      loss += p * p;
      g[k % 2] += 2 * p * v;
    }
    for (size_t k = 0; k < 2; ++k) want[k] -= 0.001 * g[k];
    EXPECT_NEAR(out[0].item(), loss, 1e-4 * loss);
    expect_tensor(out[1], {2}, want, 1e-5);
    expect_tensor(w, {2}, want, 1e-5);
  }
}

}  // namespace
}  // namespace whit
