// Transforms: random functions under random compositions of grad, jvp, vjp, vmap and TinyJit, against finite differences and
// loops over plain numbers. Seeds: see fuzz_run.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "fuzz_run.h"
#include "whit/jit.h"
#include "whit/transform.h"

using namespace whit;

namespace {

constexpr int64_t kSize = 3;
using Numbers = std::vector<double>;
using NumberFn = std::function<Numbers(const Numbers&)>;
using OneFn = std::function<Tensor(const Tensor&)>;

Tensor tensor_of(const Numbers& x) { return Tensor::from(x, {static_cast<int64_t>(x.size())}); }

// A smooth map of kSize numbers, as tensors and as numbers.
struct Function {
  std::string text;
  OneFn tensors;
  NumberFn numbers;
};

template <class F> Numbers each(const Numbers& x, F&& f) {
  Numbers y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back(f(i));
  return y;
}

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed) {}

  int below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }
  double number() { return std::uniform_real_distribution<double>(-1, 1)(rng_); }
  Numbers numbers(int64_t n = kSize) {
    Numbers x(static_cast<size_t>(n));
    for (double& v : x) v = number();
    return x;
  }

  Function step() {
    const double a = number(), b = number();
    switch (below(12)) {
      case 0:
        return {fmt::format("sin({:.2f}x+{:.2f})", a, b), [=](const Tensor& x) { return (x * a + b).sin(); },
                [=](const Numbers& x) { return each(x, [&](size_t i) { return std::sin(x[i] * a + b); }); }};
      case 1:
        return {"tanh", [](const Tensor& x) { return x.tanh(); },
                [](const Numbers& x) { return each(x, [&](size_t i) { return std::tanh(x[i]); }); }};
      case 2:
        return {"exp(-x*x)", [](const Tensor& x) { return (x * x).neg().exp(); },
                [](const Numbers& x) { return each(x, [&](size_t i) { return std::exp(-x[i] * x[i]); }); }};
      case 3:
        return {"x*roll(x)", [](const Tensor& x) { return x * x.roll(1, IntList(0)); },
                [](const Numbers& x) { return each(x, [&](size_t i) { return x[i] * x[(i + kSize - 1) % kSize]; }); }};
      case 4: {
        const Numbers m = numbers(kSize * kSize);
        const Tensor matrix = Tensor::from(m, {kSize, kSize});
        return {"matmul", [=](const Tensor& x) { return matrix.matmul(x); },
                [=](const Numbers& x) {
                  return each(x, [&](size_t i) {
                    double sum = 0;
                    for (size_t j = 0; j < kSize; ++j) sum += m[i * kSize + j] * x[j];
                    return sum;
                  });
                }};
      }
      case 5:
        return {"x*mean(x)", [](const Tensor& x) { return x * x.mean(); },
                [](const Numbers& x) { return each(x, [&](size_t i) { return x[i] * (x[0] + x[1] + x[2]) / 3; }); }};
      case 6:
        return {"cumsum", [](const Tensor& x) { return x.cumsum(0); },
                [](const Numbers& x) { return Numbers{x[0], x[0] + x[1], x[0] + x[1] + x[2]}; }};
      case 7: return {"flip", [](const Tensor& x) { return x.flip(0); }, [](const Numbers& x) { return Numbers{x[2], x[1], x[0]}; }};
      case 8:
        return {"log(x*x+1)", [](const Tensor& x) { return (x * x + 1.0).log(); },
                [](const Numbers& x) { return each(x, [&](size_t i) { return std::log(x[i] * x[i] + 1); }); }};
      case 9:
        return {"softmax", [](const Tensor& x) { return x.softmax(0); },
                [](const Numbers& x) {
                  const double sum = std::exp(x[0]) + std::exp(x[1]) + std::exp(x[2]);
                  return each(x, [&](size_t i) { return std::exp(x[i]) / sum; });
                }};
      case 10:
        return {"gather", [](const Tensor& x) { return x[Tensor::from<int32_t>({2, 0, 2})] * x; },
                [](const Numbers& x) { return Numbers{x[2] * x[0], x[0] * x[1], x[2] * x[2]}; }};
      default:
        return {fmt::format("{:.2f}x/(x*x+2)", a), [=](const Tensor& x) { return x * a / (x * x + 2.0); },
                [=](const Numbers& x) { return each(x, [&](size_t i) { return x[i] * a / (x[i] * x[i] + 2); }); }};
    }
  }

  Function chain() {
    Function f = step();
    for (int n = below(3); n > 0; --n) {
      const Function g = step();
      f = {g.text + "." + f.text, [f, g](const Tensor& x) { return g.tensors(f.tensors(x)); },
           [f, g](const Numbers& x) { return g.numbers(f.numbers(x)); }};
    }
    return f;
  }

  // One transform of f, which maps kSize numbers to as many again.
  Function transformed(const Function& f, int& order) {
    const Numbers w = numbers();
    const Tensor tw = tensor_of(w);
    const TensorFn fn = [f](std::span<const Tensor> in) { return std::vector<Tensor>{f.tensors(in[0])}; };
    const auto difference = [f](const Numbers& x, const Numbers& direction) {
      constexpr double h = 1e-3;
      const Numbers up = f.numbers(each(x, [&](size_t i) { return x[i] + h * direction[i]; }));
      const Numbers down = f.numbers(each(x, [&](size_t i) { return x[i] - h * direction[i]; }));
      return each(x, [&](size_t i) { return (up[i] - down[i]) / (2 * h); });
    };
    const NumberFn pulled = [=](const Numbers& x) {
      return each(x, [&](size_t j) {
        Numbers unit(kSize, 0);
        unit[j] = 1;
        const Numbers d = difference(x, unit);
        return d[0] * w[0] + d[1] * w[1] + d[2] * w[2];
      });
    };
    const int n_kinds = has_jit_ ? 4 : 5;  // a jit inside of another is an error
    switch (order < 2 ? below(n_kinds) : 3 + below(n_kinds - 3)) {
      case 0:
        ++order;
        return {"grad(" + f.text + ")",
                [=](const Tensor& x) {
                  const auto loss = [&](std::span<const Tensor> in) { return std::vector{(f.tensors(in[0]) * tw).sum()}; };
                  return grad(loss)(std::vector{x})[0];
                },
                pulled};
      case 1:
        ++order;
        return {"jvp(" + f.text + ")", [=](const Tensor& x) { return jvp(fn, std::vector{x}, std::vector{tw}).tangents[0]; },
                [=](const Numbers& x) { return difference(x, w); }};
      case 2: ++order; return {"vjp(" + f.text + ")", [=](const Tensor& x) { return vjp(fn, std::vector{x}).pullback(std::vector{tw})[0]; }, pulled};
      case 3:  // each row of the outer product of w and x
        return {"vmap(" + f.text + ")", [=](const Tensor& x) { return vmap(fn, std::vector{tw.unsqueeze(1) * x.unsqueeze(0)})[0].sum(0); },
                [=](const Numbers& x) {
                  Numbers sum(kSize, 0);
                  for (const double scale : w) {
                    const Numbers y = f.numbers(each(x, [&](size_t i) { return scale * x[i]; }));
                    for (size_t i = 0; i < y.size(); ++i) sum[i] += y[i];
                  }
                  return sum;
                }};
      default: {
        has_jit_ = true;
        const auto jit = std::make_shared<TinyJit>(
            [=](std::span<const Tensor> in) { return std::vector{(f.tensors(in[0]) + in[0] * 0.0).realize()}; });  // a constant has no device
        return {"jit(" + f.text + ")", [=](const Tensor& x) { return (*jit)({x})[0]; }, f.numbers};
      }
    }
  }

 private:
  std::mt19937_64 rng_;
  bool has_jit_ = false;
};

// "" or what is wrong.
std::string check(uint64_t seed) {
  Maker make(seed);
  Function f = make.chain();
  int order = 0;  // of differentiation: differences of differences of differences say little
  for (int n = 1 + make.below(4); n > 0; --n) f = make.transformed(f, order);
  // Three calls: a jit captures at the second and replays at the third.
  for (int call = 0; call < 3; ++call) {
    const Numbers x = make.numbers(), want = f.numbers(x);
    const Numbers got = f.tensors(tensor_of(x).realize()).to_vector<double>();
    if (got.size() != want.size()) return fmt::format("{}: {} numbers", f.text, got.size());
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::fabs(got[i] - want[i]) <= 1e-4 * std::max(1.0, std::fabs(want[i]))))
        return fmt::format("{}, call {}: element {} is {} instead of {}", f.text, call, i, got[i], want[i]);
  }
  return "";
}

TEST(TransformFuzz, CompositionsEqualDifferencesAndLoops) {
  int64_t n = 0;
  for (test::FuzzRun run(30, 150); run.next(); n = run.n()) {
    const uint64_t seed = run.seed();
    std::string what;
    try {
      what = check(seed);
    } catch (const std::exception& e) {
      what = e.what();
    }
    if (what.empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << what;
  }
  printf("%lld compositions\n", static_cast<long long>(n));
}

}  // namespace
