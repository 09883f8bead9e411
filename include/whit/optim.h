// Optimisers. A step updates all parameters in one realize, so that their kernels are joined.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "whit/state.h"
#include "whit/tensor.h"

namespace whit::nn {

/// What the checkpoint of an optimiser holds is what visit shows, by the names that Python's get_state_dict gives.
class Optimizer {
 public:
  virtual ~Optimizer();
  /// Parameters by the rule; then the realized buffers among `params` that do not train (batch statistics).
  /// errors: Runtime when the flag TRAINING is off; Assertion for a parameter without gradient
  void step() { Tensor::realize_all(schedule_step()); }
  /// Builds the step without running it and returns what has to be realised: state, parameters, buffers.
  virtual std::vector<Tensor> schedule_step();
  virtual void zero_grad() {
    for (Tensor& t : params) t.set_grad({});
  }
  virtual void visit(Walk& w) { w("params", params), w("buffers", buffers), w("lr", lr), visit_state(w); }

  std::vector<Tensor> params;   ///< those that train
  std::vector<Tensor> buffers;  ///< the others
  Tensor lr;                    ///< shape (1,); assign to it to change the rate

 protected:
  Optimizer() = default;
  /// `fused` makes one update of all parameters laid end to end, each with its part of the state; absent: flag FUSE_OPTIM.
  /// errors: Assertion without parameters; Value for lr < 0
  Optimizer(const std::vector<Tensor>& all, double learning_rate, std::optional<bool> fused);
  /// Updates state and gives what is taken off each parameter.
  virtual std::vector<Tensor> updates(std::span<const Tensor> values, std::span<const Tensor> grads) = 0;
  /// A zero for each parameter, or one for all when fused, in the dtype of flag OPTIM_DTYPE.
  std::vector<Tensor> new_state() const;
  /// Shows the state in the order of schedule_step's result.
  virtual void visit_state(Walk& w) = 0;

 private:
  bool fused_ = false;
};

/// Several optimisers that step as one. It does not own them.
class OptimizerGroup : public Optimizer {
 public:
  explicit OptimizerGroup(std::vector<Optimizer*> optimizers) : optimizers_(std::move(optimizers)) {
    for (const Optimizer* o : optimizers_) {
      params.insert(params.end(), o->params.begin(), o->params.end());
      buffers.insert(buffers.end(), o->buffers.begin(), o->buffers.end());
    }
  }
  Optimizer& operator[](size_t i) { return *optimizers_[i]; }
  std::vector<Tensor> schedule_step() override {
    std::vector<Tensor> out;
    for (Optimizer* o : optimizers_)
      for (Tensor& t : o->schedule_step()) out.push_back(std::move(t));
    return out;
  }
  void zero_grad() override {
    for (Optimizer* o : optimizers_) o->zero_grad();
  }
  void visit(Walk& w) override {
    for (size_t i = 0; i < optimizers_.size(); ++i) w("optimizers." + std::to_string(i), *optimizers_[i]);
  }

 protected:
  std::vector<Tensor> updates(std::span<const Tensor>, std::span<const Tensor>) override { return {}; }
  void visit_state(Walk&) override {}

 private:
  std::vector<Optimizer*> optimizers_;
};

struct SGDConfig {
  double lr = 0.001;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool classic = false;
  std::optional<bool> fused = {};
};
struct LARSConfig {
  double lr = 0.001;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  int64_t ns_steps = 0;
  std::vector<double> ns_coefficients = {};
  bool nesterov = false;
  bool classic = true;
  bool pre_wd = true;
  double tcoef = 0.001;
  std::optional<bool> fused = {};
};
struct MuonConfig {
  double lr = 0.001;
  double momentum = 0.95;
  double weight_decay = 0.1;
  int64_t ns_steps = 5;
  std::vector<double> ns_coefficients = {3.4445, -4.775, 2.0315};
  bool nesterov = true;
};
struct AdamConfig {
  double lr = 0.001;
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< of AdamW
  std::optional<bool> fused = {};
};
struct LAMBConfig {
  double lr = 0.001;
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool adam = false;
  std::optional<bool> fused = {};
};

/// The rules alone: what is taken off each of `values`. `b`, or b1_t to v, is the state, which is assigned; `b` is empty
/// without momentum.
std::vector<Tensor> lars_updates(std::span<const Tensor> values, std::span<const Tensor> grads, std::span<Tensor> b, const Tensor& lr,
                                 const LARSConfig& config);
std::vector<Tensor> lamb_updates(std::span<const Tensor> values, std::span<const Tensor> grads, Tensor& b1_t, Tensor& b2_t, std::span<Tensor> m,
                                 std::span<Tensor> v, const Tensor& lr, const LAMBConfig& config);

/// errors: Value for momentum or weight_decay < 0
class LARS : public Optimizer {
 public:
  explicit LARS(const std::vector<Tensor>& all, const LARSConfig& config = {});

 protected:
  std::vector<Tensor> updates(std::span<const Tensor> values, std::span<const Tensor> grads) override;
  void visit_state(Walk& w) override { w("b", b_); }

 private:
  LARSConfig config_;
  std::vector<Tensor> b_;
};
class SGD : public LARS {
 public:
  explicit SGD(const std::vector<Tensor>& all, const SGDConfig& c = {})
      : LARS(all, {.lr = c.lr,
                   .momentum = c.momentum,
                   .weight_decay = c.weight_decay,
                   .nesterov = c.nesterov,
                   .classic = c.classic,
                   .tcoef = 0,
                   .fused = c.fused}) {}
};
/// Each parameter is orthogonalised on its own, so that there is no fused form.
class Muon : public LARS {
 public:
  explicit Muon(const std::vector<Tensor>& all, const MuonConfig& c = {})
      : LARS(all, {.lr = c.lr,
                   .momentum = c.momentum,
                   .weight_decay = c.weight_decay,
                   .ns_steps = c.ns_steps,
                   .ns_coefficients = c.ns_coefficients,
                   .nesterov = c.nesterov,
                   .classic = false,
                   .pre_wd = false,
                   .tcoef = 0,
                   .fused = false}) {}
};

/// errors: Value for weight_decay < 0
class LAMB : public Optimizer {
 public:
  explicit LAMB(const std::vector<Tensor>& all, const LAMBConfig& config = {});

 protected:
  std::vector<Tensor> updates(std::span<const Tensor> values, std::span<const Tensor> grads) override;
  void visit_state(Walk& w) override { w("b1_t", b1_t_), w("b2_t", b2_t_), w("m", m_), w("v", v_); }

 private:
  LAMBConfig config_;
  Tensor b1_t_, b2_t_;
  std::vector<Tensor> m_, v_;
};
class Adam : public LAMB {
 public:
  explicit Adam(const std::vector<Tensor>& all, const AdamConfig& c = {})
      : LAMB(all, {.lr = c.lr, .b1 = c.b1, .b2 = c.b2, .eps = c.eps, .adam = true, .fused = c.fused}) {}
};
class AdamW : public LAMB {
 public:
  explicit AdamW(const std::vector<Tensor>& all, const AdamConfig& c = {})
      : LAMB(all, {.lr = c.lr, .b1 = c.b1, .b2 = c.b2, .eps = c.eps, .weight_decay = c.weight_decay, .adam = true, .fused = c.fused}) {}
};

/// Scales the gradients of `params`, in place, so that their joint norm is at most max_norm; returns the norm before.
/// Parameters without gradient are skipped. norm_type may be infinite.
/// errors: Runtime when error_if_nonfinite and the norm, which is computed at once then, is infinite or NaN
Tensor clip_grad_norm_(std::span<const Tensor> params, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
/// Brings every element of the gradients into [-clip_value, clip_value].
void clip_grad_value_(std::span<const Tensor> params, double clip_value);

}  // namespace whit::nn
