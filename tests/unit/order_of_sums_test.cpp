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

TEST(OrderOfSums, OfProductsDoesNotDependOnWhatIsFused) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 7, 64}, {1, 12, 100}, {3, 5, 64}, {4, 4, 128}, {17, 3, 33}}) {
    const Tensor x = Tensor::randn({m, k}).realize(), w = Tensor::randn({k, n}).realize(), v = Tensor::randn({m, n}).realize();
    for (const bool turned : {false, true}) {
      const Tensor b = turned ? w.transpose().contiguous().realize().transpose() : w;
      const Bits product = x.matmul(b).to_vector<float>();
      const auto same = [&](const auto& other) {
        const Tensor a = x.matmul(b);
        EXPECT_EQ(beside(a, other(a)), product) << m << " " << n << " " << k;
      };
      same([&](const Tensor& a) { return (a + v).exp(); });
      same([&](const Tensor& a) { return a.sum(1); });
      same([&](const Tensor& a) { return a.softmax(1) * v.sin(); });
      EXPECT_EQ((x.matmul(b) + v * 0).to_vector<float>(), product);
    }
  }
}

// Vectors of partial sums are folded one by one or together, by how many there are: with the same bits.
TEST(OrderOfSums, OfAnElementDoesNotDependOnHowManyAreFolded) {
  const Tensor x = Tensor::randn({5, 128}).realize(), w = Tensor::randn({9, 128}).realize();
  const auto product = [&](int64_t m, int64_t n) {
    const auto first = [](const Tensor& t, int64_t n_rows) { return t.shrink_to(std::vector<std::optional<Sint>>{n_rows, {}}).contiguous(); };
    return first(x, m).matmul(first(w, n).transpose()).to_vector<float>();
  };
  const std::vector<float> all = product(5, 9);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{2, 2}, {3, 5}, {4, 4}, {5, 3}, {3, 9}}) {
    const std::vector<float> some = product(m, n);
    for (int64_t i = 0; i < m * n; ++i)
      EXPECT_EQ(some[static_cast<size_t>(i)], all[static_cast<size_t>(i / n * 9 + i % n)]) << m << " " << n << " " << i;
  }
}

}  // namespace whit
