#include "whit/lr_scheduler.h"

#include <limits>
#include <numbers>

#include "base/error.h"

namespace whit::nn {
namespace {

// From `a` to `b` as x goes from 0 to 1: along half a cosine, or straight.
Tensor anneal(double a, double b, const Tensor& x, bool cosine) {
  return cosine ? (x * std::numbers::pi).cos() * ((a - b) / 2) + (a + b) / 2 : x * (b - a) + a;
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer)
    : epoch_counter(Tensor::zeros(1, {.device = optimizer.lr.device(), .dtype = DType::Int32}).is_param_(false)), optimizer_(optimizer) {}

std::vector<Tensor> LRScheduler::schedule_step() {
  epoch_counter += 1;
  return {epoch_counter, assign_lr()};
}

Tensor multi_step_lr(const Tensor& n, const Tensor& lr, std::span<const int64_t> milestones, double gamma) {
  Tensor out = lr;
  for (const int64_t m : milestones) out = n.eq(m).where(out * gamma, out);
  return out;
}

Tensor cosine_annealing_lr(const Tensor& n, double eta_max, double t_max, double eta_min) {
  WHIT_USER(t_max > 0, Value, "[CosineAnnealingLR] T_max is {}; expected a positive number", t_max);
  return anneal(eta_max, eta_min, n / t_max, true);
}

Tensor cosine_annealing_lr_with_warmup(const Tensor& n, double base, double end, int64_t warmup, int64_t decay) {
  WHIT_USER(warmup > 0 && decay > 0, Value, "[CosineAnnealingLRWithWarmup] {} steps of warm-up and {} of decay; expected positive numbers", warmup,
            decay);
  const Tensor up = (n + 1) * (base / static_cast<double>(warmup));
  return n.lt(warmup).where(up, anneal(base, end, (n + (1 - warmup)) / static_cast<double>(decay), true));
}

Tensor one_cycle_lr(const Tensor& n, const OneCycleConfig& c) {
  const double total = static_cast<double>(c.total_steps), top = total * c.pct_start;
  WHIT_USER(top > 0 && top < total, Value, "[OneCycleLR] total_steps {} and pct_start {}; expected steps before and after the highest rate",
            c.total_steps, c.pct_start);
  const double first = c.max_lr / c.div_factor, last = first / c.final_div_factor;
  return n.lt(top).where(anneal(first, c.max_lr, n / top, c.cosine), anneal(c.max_lr, last, (n - top) / (total - top), c.cosine));
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const PlateauConfig& config) : LRScheduler(optimizer), config_(config) {
  const double worst = std::numeric_limits<double>::infinity() * (config.maximize ? -1 : 1);
  best = Tensor::full(1, worst, {.device = optimizer.lr.device(), .dtype = DType::Float32}).is_param_(false);
  bad_epoch = epoch_counter.zeros_like().is_param_(false);
}

std::vector<Tensor> ReduceLROnPlateau::schedule_step(const Tensor& current) {
  epoch_counter += 1;
  optimizer_.lr.assign(plateau_lr(current, optimizer_.lr, best, bad_epoch, config_));
  return {epoch_counter, best, bad_epoch, optimizer_.lr};
}

Tensor plateau_lr(const Tensor& current, const Tensor& lr, Tensor& best, Tensor& bad_epoch, const PlateauConfig& c) {
  const double sign = c.maximize ? 1 : -1;
  const Tensor bar = c.relative ? best * (1 + sign * c.threshold) : best + sign * c.threshold;
  const Tensor now = current.cast(DType::Float32).reshape(1);
  const Tensor better = c.maximize ? now.gt(bar) : now.lt(bar), bad = better.where(0, bad_epoch + 1);
  const Tensor stuck = bad.gt(c.patience);
  best.assign(better.where(now, best));
  bad_epoch.assign(stuck.where(0, bad).cast(bad_epoch.dtype()));
  return stuck.where(lr * c.factor, lr).cast(lr.dtype());
}

}  // namespace whit::nn
