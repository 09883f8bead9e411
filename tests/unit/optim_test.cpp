// Optimisers, learning-rate plans and clipping against their formulas.
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>

#include "base/flags.h"
#include "tensor_checks.h"

namespace whit {
namespace {

TEST(Optim, SgdWithMomentum) {
  const FlagScope training("TRAINING", int64_t{1});
  Tensor w = f32({1, 2}, 2);
  nn::SGD opt({w}, {.lr = 0.1, .momentum = 0.9});
  for (int i = 0; i < 2; ++i) {
    opt.zero_grad();
    (w * w).sum().backward();
    opt.step();
  }
  // v = 2w; w -= 0.1 v; then v = 0.9 v + 2w
  expect_tensor(w, 2, {0.8 - 0.1 * (0.9 * 2 + 1.6), 1.6 - 0.1 * (0.9 * 4 + 3.2)}, 1e-6);
}

TEST(Optim, AdamAndAdamW) {
  const FlagScope training("TRAINING", int64_t{1});
  for (const bool decay : {false, true}) {
    Tensor w = f32({1}, 1);
    double p = 1, m = 0, v = 0;
    std::unique_ptr<nn::Optimizer> opt;
    if (decay) {
      opt = std::make_unique<nn::AdamW>(std::vector<Tensor>{w}, nn::AdamConfig{.lr = 0.1});
    } else {
      opt = std::make_unique<nn::Adam>(std::vector<Tensor>{w}, nn::AdamConfig{.lr = 0.1});
    }
    for (int i = 1; i <= 3; ++i) {
      opt->zero_grad();
      (w * w).sum().backward();
      opt->step();
      const double g = 2 * p;
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      const double up = m / (1 - std::pow(0.9, i)) / (std::sqrt(v / (1 - std::pow(0.999, i))) + 1e-8);
      p -= 0.1 * (up + (decay ? 0.01 * p : 0));
    }
    expect_tensor(w, 1, {p}, 1e-5);
  }
}

TEST(Optim, FusedIsTheSameUpdate) {
  const FlagScope training("TRAINING", int64_t{1});
  std::vector<std::vector<double>> results;
  for (const bool fused : {false, true}) {
    Tensor a = f32({1, -2}, {1, 2}), b = f32({3}, {});
    nn::SGD sgd({a, b}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .fused = fused});
    nn::AdamW adam({a, b}, {.lr = 0.1, .fused = fused});
    nn::OptimizerGroup both({&sgd, &adam});
    for (int i = 0; i < 3; ++i) {
      both.zero_grad();
      (a.tanh().sum() + b.square()).backward();
      both.step();
    }
    EXPECT_EQ(nn::get_state_dict(both).size(), fused ? 11u : 14u);
    results.push_back(a.to_vector<double>());
    results.push_back(b.to_vector<double>());
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

TEST(Optim, StateHasTheNamesOfPython) {
  Tensor w = f32({1}, 1);
  nn::Adam adam({w, f32({1}, 1).is_param_(false)});
  std::vector<std::string> names;
  for (const auto& [name, t] : nn::get_state_dict(adam)) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("params.0", "buffers.0", "lr", "b1_t", "b2_t", "m.0", "v.0"));
}

TEST(Optim, ACapturedStepLeavesOutGradientsThatNobodyReads) {
  const FlagScope training("TRAINING", int64_t{1});
  const auto captured = [](TinyJit::Body look, Tensor x) {
    Tensor w = Tensor::rand({64, 64}).realize();
    nn::SGD opt({w}, {.lr = 0.1});
    TinyJit step([&](std::span<const Tensor>) {
      opt.zero_grad();
      x.matmul(w).square().sum().backward();
      std::vector<Tensor> all = opt.schedule_step(), out = look({&x, 1});
      all.insert(all.end(), out.begin(), out.end());
      Tensor::realize_all(all);
      return out;
    });
    for (int i = 0; i < 4; ++i) step();
    return step.n_kernels();
  };
  Tensor x = Tensor::rand({64, 64}).realize(), seen = x.clone().realize();
  const int64_t n = captured([](std::span<const Tensor>) { return std::vector<Tensor>{}; }, x);
  EXPECT_LT(n, captured([](std::span<const Tensor> in) { return std::vector<Tensor>{in[0].grad()}; }, seen));
  EXPECT_EQ(seen.grad().numel(), 64 * 64);
  EXPECT_NE(error_of(ErrorKind::Jit, [&] { (void)x.grad(); }).find("was left out by a captured function"), std::string::npos);
  EXPECT_NE(x.repr().find("grad left out"), std::string::npos);
  x.set_grad({});
  x.sum().backward();
  EXPECT_EQ(x.grad().sum().item(), 64 * 64);
}

// Runs `plan` for as many steps and compares the rates with a formula of the step, outside and inside a capture.
template <class MakePlan, class Formula> void expect_plan(const MakePlan& make, const Formula& formula) {
  const FlagScope training("TRAINING", int64_t{1});
  for (const bool captured : {false, true}) {
    Tensor w = f32({1}, 1);
    nn::SGD opt({w}, {.lr = 0.4});
    auto plan = make(opt);
    const auto step = [&](std::span<const Tensor>) {
      opt.zero_grad();
      w.sum().backward();
      std::vector<Tensor> all = opt.schedule_step();
      for (const Tensor& t : plan.schedule_step()) all.push_back(t);
      Tensor::realize_all(all);
      return std::vector<Tensor>{};
    };
    TinyJit jit(step);
    double expected = 1;
    for (int n = 0; n < 7; ++n) {
      expect_tensor(opt.lr, 1, {formula(n)}, 1e-6);
      expected -= formula(n);
      if (captured) {
        jit();
      } else {
        step({});
      }
      expect_tensor(w, 1, {expected}, 1e-5);
    }
  }
}

double cosine(double a, double b, double x) { return b + (a - b) * (1 + std::cos(std::numbers::pi * x)) / 2; }

TEST(LrScheduler, PlansFollowTheirFormulas) {
  expect_plan([](nn::Optimizer& o) { return nn::MultiStepLR(o, {2, 3, 3, 6}, 0.5); },
              [](int n) {
                return 0.4 * std::pow(0.5, n < 2 ? 0 : n < 3 ? 1 : n < 6 ? 3 : 4);
              });
  expect_plan([](nn::Optimizer& o) { return nn::CosineAnnealingLR(o, 5, 0.1); }, [](int n) { return cosine(0.4, 0.1, n / 5.0); });
  expect_plan([](nn::Optimizer& o) { return nn::CosineAnnealingLRWithWarmup(o, 0.8, 0.2, 3, 4); },
              [](int n) { return n < 3 ? 0.8 * (n + 1) / 3 : cosine(0.8, 0.2, (n - 2) / 4.0); });
  for (const bool c : {false, true})
    expect_plan([&](nn::Optimizer& o) { return nn::OneCycleLR(o, {1.0, 4.0, 10.0, 8, 0.25, c}); },
                [&](int n) {
                  const double x = n < 2 ? n / 2.0 : (n - 2) / 6.0, a = n < 2 ? 0.25 : 1.0, b = n < 2 ? 1.0 : 0.025;
                  return c ? cosine(a, b, x) : a + (b - a) * x;
                });
}

TEST(LrScheduler, PlateauCountsEpochsWithoutProgress) {
  nn::SGD opt({f32({1}, 1)}, {.lr = 1});
  nn::ReduceLROnPlateau plan(opt, {.factor = 0.5, .patience = 1, .threshold = 0.1});
  const double losses[] = {4, 3.7, 3.5, 2, std::nan(""), 2.1}, rates[] = {1, 1, 1, 1, 1, 0.5};
  for (size_t i = 0; i < 6; ++i) {
    plan.step(Tensor(losses[i]));
    expect_tensor(opt.lr, 1, {rates[i]}, 1e-6);
  }
  expect_tensor(plan.best, 1, {2});
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { nn::OneCycleLR(opt, {.max_lr = 1, .total_steps = 0}); }),
            "[OneCycleLR] total_steps 0 and pct_start 0.3; expected steps before and after the highest rate");
}

TEST(ClipGrad, NormAndValue) {
  for (const double order : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    Tensor a = f32({3, 0}, 2), b = f32({-4}, 1);
    const Tensor without = f32({1}, 1);
    (a.square().sum() / 2 + b.square().sum() / 2).backward();
    const double norm = order == 2 ? 5 : order == 1 ? 7 : 4;
    expect_tensor(nn::clip_grad_norm_(std::array{a, b, without}, 1, order), {}, {norm}, 1e-5);
    expect_tensor(a.grad(), 2, {3 / norm, 0}, 1e-5);
    expect_tensor(b.grad(), 1, {-4 / norm}, 1e-5);
    nn::clip_grad_value_(std::array{a, b, without}, 0.1);
    expect_tensor(a.grad(), 2, {0.1, 0}, 1e-6);
    expect_tensor(b.grad(), 1, {-0.1}, 1e-6);
  }
  Tensor w = f32({1}, 1);
  (w * std::numeric_limits<double>::infinity()).sum().backward();
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { nn::clip_grad_norm_(std::array{w}, 1, 2, true); }),
            "[clip_grad_norm_] the norm of order 2 of the gradients is inf; expected a finite one");
}

}  // namespace
}  // namespace whit
