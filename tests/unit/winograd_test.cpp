// 3x3 convolutions by Winograd: values and gradients beside float64, and which convolutions take it.
#include "base/flags.h"
#include "unit/tensor_checks.h"

namespace whit {
namespace {

struct Case {
  int64_t batch, cin, cout, height, width;
  std::vector<int64_t> pads;  // as of conv2d: columns before and after, rows before and after
};

// The value and the gradients of input and weight.
std::vector<std::vector<double>> results(const Tensor& x, const Tensor& w, const Tensor& dy, const Case& c) {
  const Tensor y = x.conv2d(w, {.padding = IntList(c.pads)});
  std::vector<std::vector<double>> out{y.to_vector<double>()};
  const std::vector<Tensor> of{x, w};
  for (const Tensor& g : y.gradient(of, dy)) out.push_back(g.to_vector<double>());
  return out;
}

double rms(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

bool is_winograd(const Tensor& y) { return y.uop().op() == Op::GetTuple; }

Tensor convolved(const Case& c) {
  return Tensor::zeros({c.batch, c.cin, c.height, c.width}).conv2d(Tensor::zeros({c.cout, c.cin, 3, 3}), {.padding = IntList(c.pads)});
}

}  // namespace

TEST(Winograd, IsWithinFourTimesTheErrorOfTheDirectSum) {
  for (const Case& c : {Case{2, 32, 24, 12, 9, {1, 1, 1, 1}}, Case{1, 24, 32, 9, 16, {0, 0, 0, 0}}, Case{1, 16, 16, 7, 5, {0, 2, 2, 1}},
                        Case{1, 16, 16, 8, 8, {3, 3, 3, 3}}}) {
    const Tensor x = Tensor::randn({c.batch, c.cin, c.height, c.width}).realize();
    const Tensor w = Tensor::randn({c.cout, c.cin, 3, 3}).realize();
    const Tensor dy = Tensor::randn({c.batch, c.cout, c.height + c.pads[2] + c.pads[3] - 2, c.width + c.pads[0] + c.pads[1] - 2}).realize();
    const auto exact = results(x.cast(DType::Float64), w.cast(DType::Float64), dy.cast(DType::Float64), c);
    const auto by = [&](int64_t how) {
      const FlagScope flag("WINO", how);
      return results(x, w, dy, c);
    };
    const auto direct = by(0), winograd = by(2);
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NE(direct[i], winograd[i]) << "Winograd was not used";
      EXPECT_LT(rms(winograd[i], exact[i]), 4 * rms(direct[i], exact[i])) << "result " << i;
    }
  }
}

TEST(Winograd, IsTakenWhereItPays) {
  EXPECT_TRUE(is_winograd(convolved({8, 64, 64, 56, 56, {1, 1, 1, 1}})));
  EXPECT_TRUE(is_winograd(convolved({1, 128, 128, 28, 28, {1, 1, 1, 1}})));
  // Many weights for few pixels: where they stay what they are.
  EXPECT_TRUE(is_winograd(convolved({1, 512, 512, 7, 7, {1, 1, 1, 1}})));
  {
    const FlagScope training("TRAINING", int64_t{1});
    EXPECT_FALSE(is_winograd(convolved({1, 512, 512, 7, 7, {1, 1, 1, 1}})));
  }
  // Few channels; nothing to share.
  EXPECT_FALSE(is_winograd(convolved({8, 3, 64, 56, 56, {1, 1, 1, 1}})));
  EXPECT_FALSE(is_winograd(convolved({1, 64, 64, 3, 3, {0, 0, 0, 0}})));
  const Tensor x = Tensor::zeros({8, 64, 56, 56});
  EXPECT_FALSE(is_winograd(x.conv2d(Tensor::zeros({64, 64, 3, 3}), {.stride = 2})));
  EXPECT_FALSE(is_winograd(x.conv2d(Tensor::zeros({64, 64, 3, 3}), {.dilation = 2})));
  EXPECT_FALSE(is_winograd(x.conv2d(Tensor::zeros({64, 64, 1, 3}))));
  EXPECT_FALSE(is_winograd(x.cast(DType::Float64).conv2d(Tensor::zeros({64, 64, 3, 3}, {.dtype = DType::Float64}))));
  const FlagScope off("WINO", int64_t{0});
  EXPECT_FALSE(is_winograd(convolved({8, 64, 64, 56, 56, {1, 1, 1, 1}})));
}

TEST(Winograd, IsDifferentiatedTwice) {
  const Tensor x = Tensor::randn({2, 3, 6, 6}).realize(), w = Tensor::randn({4, 3, 3, 3}).realize();
  const auto second = [&](int64_t how) {
    const FlagScope flag("WINO", how);
    const Tensor loss = x.conv2d(w, {.padding = 1}).square().sum();
    const std::vector<Tensor> of{x}, by{w};
    return loss.gradient(of)[0].square().sum().gradient(by)[0].to_vector<double>();
  };
  const auto direct = second(0), winograd = second(2);
  double largest = 0;
  for (const double v : direct) largest = std::max(largest, std::fabs(v));
  for (size_t i = 0; i < direct.size(); ++i) EXPECT_NEAR(winograd[i], direct[i], 1e-5 * largest);
}

}  // namespace whit
