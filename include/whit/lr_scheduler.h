// Learning rates that follow a plan. A scheduler assigns the `lr` of its optimiser; `step` is called once after each step
// (or epoch), or what `schedule_step` gives is realised with the step, also inside TinyJit: count and state are tensors.
#pragma once
#include <vector>

#include "whit/optim.h"

namespace whit::nn {

class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  /// Advances the count, assigns the rate, and returns what has to be realised.
  std::vector<Tensor> schedule_step();
  void step() { Tensor::realize_all(schedule_step()); }
  virtual void visit(Walk& w) { w("epoch_counter", epoch_counter); }

  Tensor epoch_counter;  ///< int32 (1,): steps so far

 protected:
  /// The optimiser must outlive the scheduler.
  explicit LRScheduler(Optimizer& optimizer);
  /// The rate for the count as it stands. shapes: (1,)
  virtual Tensor get_lr() const = 0;
  Tensor& assign_lr() { return optimizer_.lr.assign(get_lr().cast(optimizer_.lr.dtype())); }
  Optimizer& optimizer_;
};

class LRSchedulerGroup {
 public:
  explicit LRSchedulerGroup(std::vector<LRScheduler*> schedulers) : schedulers_(std::move(schedulers)) {}
  std::vector<Tensor> schedule_step() {
    std::vector<Tensor> out;
    for (LRScheduler* s : schedulers_)
      for (Tensor& t : s->schedule_step()) out.push_back(std::move(t));
    return out;
  }
  void step() { Tensor::realize_all(schedule_step()); }

 private:
  std::vector<LRScheduler*> schedulers_;
};

/// The plans as functions of the count n, (1,) of integers.
/// lr * gamma at each milestone (once for each time it is listed), else lr.
Tensor multi_step_lr(const Tensor& n, const Tensor& lr, std::span<const int64_t> milestones, double gamma);
/// eta_min + (eta_max - eta_min) (1 + cos(pi n / t_max)) / 2
Tensor cosine_annealing_lr(const Tensor& n, double eta_max, double t_max, double eta_min);
/// base (n + 1) / warmup below `warmup`, then the cosine from base to end over `decay` steps.
Tensor cosine_annealing_lr_with_warmup(const Tensor& n, double base, double end, int64_t warmup, int64_t decay);

struct OneCycleConfig {
  double max_lr = 0;
  double div_factor = 25;         ///< max_lr / div_factor is where it begins
  double final_div_factor = 1e4;  ///< and that by this where it ends
  int64_t total_steps = 0;
  double pct_start = 0.3;  ///< the share of the steps on the way up
  bool cosine = false;     ///< along a cosine, else a line
};
Tensor one_cycle_lr(const Tensor& n, const OneCycleConfig& config);

class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& o, std::vector<int64_t> milestones, double gamma = 0.1)
      : LRScheduler(o), milestones_(std::move(milestones)), gamma_(gamma) {}

 protected:
  Tensor get_lr() const override { return multi_step_lr(epoch_counter, optimizer_.lr, milestones_, gamma_); }

 private:
  std::vector<int64_t> milestones_;
  double gamma_;
};

class CosineAnnealingLR : public LRScheduler {
 public:
  /// Begins at the optimiser's rate, which is read now.
  CosineAnnealingLR(Optimizer& o, int64_t t_max, double eta_min = 0)
      : LRScheduler(o), eta_max_(o.lr.item()), t_max_(static_cast<double>(t_max)), eta_min_(eta_min) {}

 protected:
  Tensor get_lr() const override { return cosine_annealing_lr(epoch_counter, eta_max_, t_max_, eta_min_); }

 private:
  double eta_max_, t_max_, eta_min_;
};

class CosineAnnealingLRWithWarmup : public LRScheduler {
 public:
  CosineAnnealingLRWithWarmup(Optimizer& o, double base_lr, double end_lr, int64_t warmup_steps, int64_t decay_steps)
      : LRScheduler(o), base_(base_lr), end_(end_lr), warmup_(warmup_steps), decay_(decay_steps) {
    assign_lr().realize();  // the plan does not begin at the optimiser's rate
  }

 protected:
  Tensor get_lr() const override { return cosine_annealing_lr_with_warmup(epoch_counter, base_, end_, warmup_, decay_); }

 private:
  double base_, end_;
  int64_t warmup_, decay_;
};

class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& o, const OneCycleConfig& config) : LRScheduler(o), config_(config) { assign_lr().realize(); }

 protected:
  Tensor get_lr() const override { return one_cycle_lr(epoch_counter, config_); }

 private:
  OneCycleConfig config_;
};

struct PlateauConfig {
  bool maximize = false;
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  bool relative = true;  ///< the threshold is a share of the best value
};
/// Multiplies the rate by `factor` when a measure has not improved for more than `patience` steps.
class ReduceLROnPlateau : public LRScheduler {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const PlateauConfig& config = {});
  /// shapes: current () or (1,), the measure of this epoch
  std::vector<Tensor> schedule_step(const Tensor& current);
  void step(const Tensor& current) { Tensor::realize_all(schedule_step(current)); }
  void visit(Walk& w) override { LRScheduler::visit(w), w("best", best), w("bad_epoch", bad_epoch); }

  Tensor best, bad_epoch;  ///< (1,): the best measure, float32; epochs without a better one, int32

 protected:
  Tensor get_lr() const override { return optimizer_.lr; }

 private:
  PlateauConfig config_;
};
/// Assigns `best` and `bad_epoch` for a new measure and gives the new rate.
Tensor plateau_lr(const Tensor& current, const Tensor& lr, Tensor& best, Tensor& bad_epoch, const PlateauConfig& config);

}  // namespace whit::nn
