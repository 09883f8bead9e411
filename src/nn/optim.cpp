#include "whit/optim.h"

#include <cmath>

#include "base/error.h"
#include "base/flags.h"

namespace whit::nn {

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const std::vector<Tensor>& all, double learning_rate) {
  WHIT_USER(learning_rate >= 0, Value, "[optim] lr is {}; expected none below 0", learning_rate);
  auto add = [](std::vector<Tensor>& list, const Tensor& t) {
    for (const Tensor& have : list)
      if (have.is_same(t)) return;
    list.push_back(t);
  };
  for (const Tensor& t : all) add(t.is_param() ? params : buffers, t);
  WHIT_USER(!params.empty(), Assertion, "[optim] no parameters: an optimiser needs at least one");
  const DType dt = least_upper_dtype(DType::Float32, default_float());
  lr = Tensor::full(1, learning_rate, {.device = params[0].device(), .dtype = dt}).is_param_(false);
}

void Optimizer::zero_grad() {
  for (Tensor& t : params) t.set_grad({});
}

std::vector<Tensor> Optimizer::zeros_like_params() const {
  const DType dt = dtype_by_name(flag::OPTIM_DTYPE());
  std::vector<Tensor> out;
  for (const Tensor& t : params)
    out.push_back(Tensor::zeros(t.shape(), {.device = t.device(), .dtype = dt}).is_param_(false));
  return out;
}

std::vector<Tensor> Optimizer::schedule_step() {
  WHIT_USER(flag::TRAINING(), Runtime, "[optim] a step outside of training; set the flag TRAINING to 1");
  std::vector<Tensor> grads;
  for (size_t i = 0; i < params.size(); ++i) {
    grads.push_back(params[i].grad());
    WHIT_USER(grads.back().defined(), Assertion,
              "[optim] parameter {} of shape {} has no gradient; call backward first", i, params[i].shape().str());
  }
  const std::vector<Tensor> next = next_params(grads);
  for (size_t i = 0; i < params.size(); ++i) params[i].assign(next[i].cast(params[i].dtype()));
  std::vector<Tensor> out;
  append_state(out);
  out.insert(out.end(), params.begin(), params.end());
  out.insert(out.end(), buffers.begin(), buffers.end());
  return out;
}

void Optimizer::step() { Tensor::realize_all(schedule_step()); }

// ---- LARS and its special cases

namespace {
// |x| as a trust ratio sees it.
Tensor norm(const Tensor& x) { return x.square().sum().sqrt(); }
}  // namespace

LARS::LARS(const std::vector<Tensor>& all, const LARSConfig& config) : Optimizer(all, config.lr), config_(config) {
  WHIT_USER(config.momentum >= 0, Value, "[optim] momentum is {}; expected none below 0", config.momentum);
  WHIT_USER(config.weight_decay >= 0, Value, "[optim] weight_decay is {}; expected none below 0", config.weight_decay);
  if (config.momentum > 0) b_ = zeros_like_params();
}
void LARS::append_state(std::vector<Tensor>& out) const { out.insert(out.end(), b_.begin(), b_.end()); }

std::vector<Tensor> LARS::next_params(const std::vector<Tensor>& grads) {
  std::vector<Tensor> out;
  const double wd = config_.weight_decay;
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor t = params[i].detach(), g = grads[i], rate = lr;
    if (config_.tcoef != 0) {
      const Tensor r1 = norm(t), r2 = norm(g);
      const Tensor ratio = r1 * config_.tcoef / (r2 + r1 * wd);
      rate = lr * (r1.gt(0) & r2.gt(0)).where(ratio, 1.0);
    }
    if (config_.pre_wd && wd > 0) g = g + t * wd;
    if (config_.classic) g = g * rate;
    if (config_.momentum > 0) {
      b_[i].assign((b_[i] * config_.momentum + g).cast(b_[i].dtype()));
      g = config_.nesterov ? g + b_[i] * config_.momentum : b_[i];
    }
    if (!config_.ns_coefficients.empty())
      g = g.reshape({g.size(0), -1}).newton_schulz(config_.ns_steps, config_.ns_coefficients).reshape(g.shape());
    if (!config_.pre_wd && wd > 0) t = t * (Tensor(1.0) - lr * wd);
    if (!config_.classic) g = g * rate;
    out.push_back(t - g);
  }
  return out;
}

SGD::SGD(const std::vector<Tensor>& all, const SGDConfig& c)
    : LARS(all, {.lr = c.lr,
                 .momentum = c.momentum,
                 .weight_decay = c.weight_decay,
                 .nesterov = c.nesterov,
                 .classic = c.classic,
                 .tcoef = 0}) {}
Muon::Muon(const std::vector<Tensor>& all, const MuonConfig& c)
    : LARS(all, {.lr = c.lr,
                 .momentum = c.momentum,
                 .weight_decay = c.weight_decay,
                 .ns_steps = c.ns_steps,
                 .ns_coefficients = c.ns_coefficients,
                 .nesterov = c.nesterov,
                 .classic = false,
                 .pre_wd = false,
                 .tcoef = 0}) {}

// ---- LAMB and its special cases

LAMB::LAMB(const std::vector<Tensor>& all, const LAMBConfig& config) : Optimizer(all, config.lr), config_(config) {
  WHIT_USER(config.weight_decay >= 0, Value, "[optim] weight_decay is {}; expected none below 0", config.weight_decay);
  const TensorOptions one{.device = params[0].device(), .dtype = DType::Float32};
  b1_t_ = Tensor::ones(1, one).is_param_(false);
  b2_t_ = Tensor::ones(1, one).is_param_(false);
  m_ = zeros_like_params();
  v_ = zeros_like_params();
}
void LAMB::append_state(std::vector<Tensor>& out) const {
  out.push_back(b1_t_);
  out.push_back(b2_t_);
  out.insert(out.end(), m_.begin(), m_.end());
  out.insert(out.end(), v_.begin(), v_.end());
}

std::vector<Tensor> LAMB::next_params(const std::vector<Tensor>& grads) {
  b1_t_ *= config_.b1;
  b2_t_ *= config_.b2;
  const Tensor c1 = (Tensor(1.0) - b1_t_).reciprocal(), c2 = (Tensor(1.0) - b2_t_).reciprocal();
  std::vector<Tensor> out;
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor t = params[i].detach(), g = grads[i].cast(m_[i].dtype());
    m_[i].assign(m_[i] * config_.b1 + g * (1 - config_.b1));
    v_[i].assign(v_[i] * config_.b2 + g * g * (1 - config_.b2));
    Tensor up = m_[i] * c1 / ((v_[i] * c2).sqrt() + config_.eps);
    if (config_.weight_decay > 0) up = up + t * config_.weight_decay;
    Tensor rate = lr;
    if (!config_.adam) {
      const Tensor r1 = norm(t), r2 = norm(up);
      rate = lr * (r1.gt(0) & r2.gt(0)).where(r1 / r2, 1.0);
    }
    out.push_back(t - up * rate);
  }
  return out;
}

Adam::Adam(const std::vector<Tensor>& all, const AdamConfig& c)
    : LAMB(all, {.lr = c.lr, .b1 = c.b1, .b2 = c.b2, .eps = c.eps, .adam = true}) {}
AdamW::AdamW(const std::vector<Tensor>& all, const AdamConfig& c)
    : LAMB(all, {.lr = c.lr, .b1 = c.b1, .b2 = c.b2, .eps = c.eps, .weight_decay = c.weight_decay, .adam = true}) {}

}  // namespace whit::nn
