// The order in which a sum adds its terms is its own: what a kernel computes beside it, before or after, changes no bit.
#include "unit/tensor_checks.h"

namespace whit {
namespace {

using Bits = std::vector<float>;

Bits normed(const Tensor& x) { return x.layernorm().to_vector<float>(); }
Bits sums(const Tensor& x) { return x.sum(1, true).to_vector<float>(); }

// `a` and what is computed with it, as one graph.
Bits beside(const Tensor& a, const Tensor& other) {
  Tensor::realize_all(std::vector{a, other});
  return a.to_vector<float>();
}

}  // namespace

TEST(OrderOfSums, DoesNotDependOnWhatIsFused) {
  const int64_t rows = 64;
  for (const int64_t n : {9, 12, 18, 24, 31, 64, 100}) {
    const Tensor x = Tensor::randn({rows, n}).realize(), t = Tensor::randn({n, rows}).realize();
    const Tensor v = Tensor::randn({rows, 1}).realize();
    const Bits norm = normed(x), sum = sums(x);
    const auto layer_norm = [&](const auto& other) {
      const Tensor a = x.layernorm();
      EXPECT_EQ(beside(a, other(a)), norm) << n;
    };
    layer_norm([&](const Tensor& a) { return (a.sin() * v.exp() + a.tanh()).exp(); });
    layer_norm([&](const Tensor& a) { return a.sum(0); });
    layer_norm([&](const Tensor& a) { return a + t.transpose(0, 1); });
    layer_norm([&](const Tensor& a) { return (a * 2).exp2().sum(1); });
    const std::vector<Tensor> parts{x.layernorm(), t.transpose(0, 1).sin()};
    const std::vector<std::optional<Sint>> columns{rows, n}, column{rows, 1};
    EXPECT_EQ(Tensor::cat(parts, 1).shrink_to(columns).to_vector<float>(), norm) << n;

    const auto row_sum = [&](const auto& other) {
      const Tensor a = x.sum(1, true);
      EXPECT_EQ(beside(a, other(a)), sum) << n;
    };
    row_sum([&](const Tensor& a) { return (x - a).exp() * t.transpose(0, 1).sin(); });
    row_sum([&](const Tensor&) { return x.exp().sum(1); });
    row_sum([&](const Tensor& a) { return a.sin().exp().sin(); });
    const Tensor spread = x.sum(1, true) + t.transpose(0, 1).sin() * 0;
    EXPECT_EQ(spread.shrink_to(column).to_vector<float>(), sum) << n;
  }
}

}  // namespace whit
