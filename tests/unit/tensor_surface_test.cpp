// The functions of Tensor that no other test of C++ calls; tests/tools/test_checks.py finds what none calls.
#include <algorithm>
#include <set>

#include "tensor_checks.h"

namespace whit {
namespace {

TEST(TensorSurface, Values) {
  expect_tensor(Tensor::constant(2.5, DType::Float32) + f32({1, 2}, 2), 2, {3.5, 4.5});
  float host[3] = {1, 2, 3};
  const Tensor blob = Tensor::from_blob(host, 3, {.device = "CPU", .dtype = DType::Float32});
  expect_tensor(blob + 1.0, 3, {2, 3, 4});
  float out[3];
  blob.copy_to(out, sizeof(out));
  EXPECT_EQ(out[2], 3);
  expect_error(ErrorKind::Value, "[copy_to] the destination has 4 bytes; expected 12", [&] { blob.copy_to(out, 4); });
  EXPECT_EQ(f32({1, 2}, {1, 2}).ndim(), 2u);
  const Tensor x = i32({1, 2, 3}, 3);
  EXPECT_EQ(x.empty_like().shape().str(), x.shape().str());
  expect_tensor(x.ones_like(), 3, {1, 1, 1});
  expect_tensor(x.const_like(7), 3, {7, 7, 7});
  expect_tensor(Tensor::arange_float(0.5, 2), 2, {0.5, 1.5});
  expect_tensor(x.sub(1), 3, {0, 1, 2});
  expect_tensor(x.bitwise_and(2), 3, {0, 2, 2});
  expect_tensor(x.bitwise_or(4), 3, {5, 6, 7});
  expect_tensor(x.bitwise_xor(3), 3, {2, 1, 0});
  expect_tensor(x.lshift(2), 3, {4, 8, 12});
  expect_tensor(x.rshift(1), 3, {0, 1, 1});
  expect_tensor(x.ne(2), 3, {1, 0, 1});
  expect_tensor(x.eq(2), 3, {0, 1, 0});
  EXPECT_EQ(Tensor(x).id(), x.id());
  EXPECT_NE(x.clone().id(), x.id());
  expect_tensor(i32({3, 1, 3, 2}, 4).unique()[0], 3, {1, 2, 3});
  EXPECT_EQ(Tensor::zeros({1 << 12}, {.dtype = DType::UInt8}).hash().shape().str(), "(16,)");
}

TEST(TensorSurface, Devices) {
  const std::vector<std::string> two = {"CPU", "CPU:1"};
  Tensor x = f32({1, 2, 3, 4}, 4).realize();
  x.to_("CPU:1");
  EXPECT_EQ(*x.device(), "CPU:1");
  x.shard_(two, 0);
  EXPECT_EQ(*x.device(), "CPU,CPU:1");
  const Tensor y = f32({10, 20, 30, 40}, 4).shard_like(x);
  EXPECT_EQ(*y.device(), *x.device());
  expect_tensor(x + y, 4, {11, 22, 33, 44});
}

TEST(TensorSurface, RandomNumbers) {
  Tensor::manual_seed(3);
  const auto between = [](const Tensor& t, double low, double high) {
    const std::vector<double> v = t.to_vector<double>();
    EXPECT_GT(std::set<double>(v.begin(), v.end()).size(), v.size() / 4);
    for (const double e : v) EXPECT_TRUE(low <= e && e < high) << e;
  };
  between(Tensor::randint(8, {.low = -50, .high = 50}), -50, 50);
  between(Tensor::uniform({4, 4}, 2, 5), 2, 5);
  between(Tensor::scaled_uniform({4, 4}), -0.25, 0.25);
  const double glorot = std::sqrt(6.0 / 8), kaiming = std::sqrt(2.0 / 1.0001) * std::sqrt(3.0 / 4);
  between(Tensor::glorot_uniform({4, 4}), -glorot, glorot);
  between(Tensor::kaiming_uniform({4, 4}), -kaiming, kaiming);
  const Tensor wide = Tensor::normal(4096, 10, 2), narrow = Tensor::kaiming_normal({1024, 4});
  EXPECT_NEAR(wide.mean().item(), 10, 0.2);
  EXPECT_NEAR(wide.std().item(), 2, 0.2);
  EXPECT_NEAR(narrow.std().item(), std::sqrt(2.0 / 1.0001) / 2, 0.05);
  std::vector<double> order = Tensor::randperm(10).to_vector<double>();
  std::ranges::sort(order);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  between(wide.rand_like(), 0, 1);
  EXPECT_NEAR(wide.randn_like().std().item(), 1, 0.1);
  expect_tensor(f32({0, 1, 0}, 3).multinomial(4, true), 4, {1, 1, 1, 1});
  const auto state = Tensor::random_state();
  const std::vector<double> next = Tensor::rand(5).to_vector<double>();
  Tensor::set_random_state(state);
  EXPECT_EQ(Tensor::rand(5).to_vector<double>(), next);
}

TEST(TensorSurface, AGradientThatRealizeCutOff) {
  const Tensor w = f32({2, 3}, 2).realize(), v = f32({1, 1}, 2).realize();
  Tensor h = w * w;
  h.realize();
  (h * v).sum().backward();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(w.is_cut_off());
  EXPECT_FALSE(v.is_cut_off());
  (w * w).sum().backward();
  EXPECT_FALSE(w.is_cut_off());
  expect_tensor(w.grad(), 2, {4, 6});
}

}  // namespace
}  // namespace whit
