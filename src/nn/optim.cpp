#include "whit/optim.h"

#include <cmath>

#include "base/error.h"
#include "base/flags.h"

namespace whit::nn {

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(const std::vector<Tensor>& all, double learning_rate, std::optional<bool> fused)
    : fused_(fused.value_or(flag::FUSE_OPTIM() != 0)) {
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

std::vector<Tensor> Optimizer::new_state() const {
  const DType dt = dtype_by_name(flag::OPTIM_DTYPE());
  std::vector<Tensor> out;
  int64_t n_all = 0;
  for (const Tensor& t : params) {
    n_all += t.numel();
    if (!fused_) out.push_back(t.zeros_like({.dtype = dt}));
  }
  if (fused_) out.push_back(Tensor::zeros(n_all, {.device = params[0].device(), .dtype = dt}));
  for (Tensor& t : out) t.is_param_(false);
  return out;
}

std::vector<Tensor> Optimizer::schedule_step() {
  WHIT_USER(flag::TRAINING(), Runtime, "[optim] a step outside of training; set the flag TRAINING to 1");
  std::vector<Tensor> values, grads, flat, flat_grads;
  Dims sizes;
  for (size_t i = 0; i < params.size(); ++i) {
    values.push_back(params[i].detach());
    grads.push_back(params[i].grad());
    WHIT_USER(grads.back().defined(), Assertion, "[optim] parameter {} of shape {} has no gradient; {}", i, params[i].shape(),
              params[i].is_cut_off() ? "what it led to was realised before backward" : "call backward first");
    if (!fused_) continue;
    flat.push_back(values.back().flatten());
    flat_grads.push_back(grads.back().flatten());
    sizes.push_back(params[i].numel());
  }
  std::vector<Tensor> ups =
      fused_ ? updates(std::array{Tensor::cat(flat)}, std::array{Tensor::cat(flat_grads)})[0].split(sizes) : updates(values, grads);
  for (size_t i = 0; i < params.size(); ++i) params[i].assign(values[i] - ups[i].reshape(params[i].shape()).cast(params[i].dtype()));
  std::vector<Tensor> out;
  Walk state;
  visit_state(state);
  for (auto& [name, t] : std::move(state).take()) out.push_back(t);
  out.insert(out.end(), params.begin(), params.end());
  out.insert(out.end(), buffers.begin(), buffers.end());
  return out;
}

// ---- the rules

// The ratio where both norms are positive, else 1.
static Tensor trust(const Tensor& a, const Tensor& b, const Tensor& ratio) { return (a.gt(0) & b.gt(0)).where(ratio, 1.0); }
static Tensor norm(const Tensor& x) { return x.square().sum().sqrt(); }

std::vector<Tensor> lars_updates(std::span<const Tensor> values, std::span<const Tensor> grads, std::span<Tensor> b, const Tensor& lr,
                                 const LARSConfig& config) {
  std::vector<Tensor> out;
  const double wd = config.weight_decay;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor t = values[i].detach();
    Tensor g = grads[i], rate = lr;
    if (config.tcoef != 0) {
      const Tensor r1 = norm(t), r2 = norm(g);
      rate = lr * trust(r1, r2, r1 * config.tcoef / (r2 + r1 * wd));
    }
    if (config.pre_wd && wd > 0) g = g + t * wd;
    // Classic momentum collects steps, each of the rate of its time; the other kind collects gradients.
    if (config.classic) g = g * rate;
    if (!b.empty()) {
      b[i].assign((b[i] * config.momentum + g).cast(b[i].dtype()));
      g = config.nesterov ? g + b[i] * config.momentum : b[i];
    }
    if (!config.ns_coefficients.empty()) g = g.reshape({g.size(0), -1}).newton_schulz(config.ns_steps, config.ns_coefficients).reshape(g.shape());
    if (!config.classic) g = g * rate;
    if (!config.pre_wd && wd > 0) g = g + t * (lr * wd);
    out.push_back(g.cast(t.dtype()));
  }
  return out;
}

std::vector<Tensor> lamb_updates(std::span<const Tensor> values, std::span<const Tensor> grads, Tensor& b1_t, Tensor& b2_t, std::span<Tensor> m,
                                 std::span<Tensor> v, const Tensor& lr, const LAMBConfig& config) {
  b1_t *= config.b1;
  b2_t *= config.b2;
  std::vector<Tensor> out;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor t = values[i].detach(), g = grads[i].cast(m[i].dtype());
    m[i].assign((m[i] * config.b1 + g * (1 - config.b1)).cast(m[i].dtype()));
    v[i].assign((v[i] * config.b2 + g * g * (1 - config.b2)).cast(v[i].dtype()));
    Tensor up = m[i] / (Tensor(1.0) - b1_t) / ((v[i] / (Tensor(1.0) - b2_t)).sqrt() + config.eps);
    if (config.weight_decay > 0) up = up + t * config.weight_decay;
    Tensor rate = lr;
    if (!config.adam) {
      const Tensor r1 = norm(t), r2 = norm(up);
      rate = lr * trust(r1, r2, r1 / r2);
    }
    out.push_back((up * rate).cast(t.dtype()));
  }
  return out;
}

LARS::LARS(const std::vector<Tensor>& all, const LARSConfig& config) : Optimizer(all, config.lr, config.fused), config_(config) {
  WHIT_USER(config.momentum >= 0, Value, "[optim] momentum is {}; expected none below 0", config.momentum);
  WHIT_USER(config.weight_decay >= 0, Value, "[optim] weight_decay is {}; expected none below 0", config.weight_decay);
  if (config.momentum > 0) b_ = new_state();
}
std::vector<Tensor> LARS::updates(std::span<const Tensor> values, std::span<const Tensor> grads) {
  return lars_updates(values, grads, b_, lr, config_);
}

LAMB::LAMB(const std::vector<Tensor>& all, const LAMBConfig& config) : Optimizer(all, config.lr, config.fused), config_(config) {
  WHIT_USER(config.weight_decay >= 0, Value, "[optim] weight_decay is {}; expected none below 0", config.weight_decay);
  const TensorOptions one{.device = params[0].device(), .dtype = DType::Float32};
  b1_t_ = Tensor::ones(1, one).is_param_(false);
  b2_t_ = Tensor::ones(1, one).is_param_(false);
  m_ = new_state();
  v_ = new_state();
}
std::vector<Tensor> LAMB::updates(std::span<const Tensor> values, std::span<const Tensor> grads) {
  return lamb_updates(values, grads, b1_t_, b2_t_, m_, v_, lr, config_);
}

// ---- gradients

Tensor clip_grad_norm_(std::span<const Tensor> params, double max_norm, double norm_type, bool error_if_nonfinite) {
  std::vector<Tensor> norms, grads;
  for (const Tensor& p : params) {
    if (!p.grad().defined()) continue;
    const Tensor a = p.grad().cast(least_upper_dtype(DType::Float32, p.grad().dtype())).abs();
    grads.push_back(p.grad());
    norms.push_back(std::isinf(norm_type) ? a.max() : norm_type == 2 ? a.square().sum() : a.pow(norm_type).sum());
    norms.back() = norms.back().to(grads[0].device());
  }
  if (norms.empty()) return Tensor(0.0);
  const Tensor all = Tensor::stack(norms);
  const Tensor total = std::isinf(norm_type) ? all.max() : norm_type == 2 ? all.sum().sqrt() : all.sum().pow(1 / norm_type);
  if (error_if_nonfinite)
    WHIT_USER(std::isfinite(total.item()), Runtime, "[clip_grad_norm_] the norm of order {} of the gradients is {}; expected a finite one", norm_type,
              total.item());
  const Tensor scale = (Tensor(max_norm) / (total + 1e-6)).minimum(1.0);
  for (Tensor& g : grads) g.assign((g * scale.to(g.device())).cast(g.dtype()));
  return total;
}

void clip_grad_value_(std::span<const Tensor> params, double clip_value) {
  for (const Tensor& p : params)
    if (Tensor g = p.grad(); g.defined()) g.assign(g.clamp(-clip_value, clip_value));
}

}  // namespace whit::nn
