// The rules of optimisers and learning-rate plans; whit.nn's classes keep the state and call these.
#include "convert.h"
#include "whit/lr_scheduler.h"
#include "whit/optim.h"

namespace whit::python {

void bind_nn(nb::module_& m) {
  m.def("lars_updates", [](nb::handle values, nb::handle grads, nb::handle state, const Tensor& lr, double momentum, double weight_decay,
                           int64_t ns_steps, const std::vector<double>& ns_coefficients, bool nesterov, bool classic, bool pre_wd, double tcoef) {
    std::vector<Tensor> b = to_tensors(state, "LARS");
    return nn::lars_updates(to_tensors(values, "LARS"), to_tensors(grads, "LARS"), b, lr,
                            {.momentum = momentum,
                             .weight_decay = weight_decay,
                             .ns_steps = ns_steps,
                             .ns_coefficients = ns_coefficients,
                             .nesterov = nesterov,
                             .classic = classic,
                             .pre_wd = pre_wd,
                             .tcoef = tcoef});
  });
  m.def("lamb_updates", [](nb::handle values, nb::handle grads, Tensor b1_t, Tensor b2_t, nb::handle first, nb::handle second, const Tensor& lr,
                           double b1, double b2, double eps, double weight_decay, bool adam) {
    std::vector<Tensor> m1 = to_tensors(first, "LAMB"), m2 = to_tensors(second, "LAMB");
    return nn::lamb_updates(to_tensors(values, "LAMB"), to_tensors(grads, "LAMB"), b1_t, b2_t, m1, m2, lr,
                            {.b1 = b1, .b2 = b2, .eps = eps, .weight_decay = weight_decay, .adam = adam});
  });
  m.def("clip_grad_norm_", [](nb::handle params, double max_norm, double norm_type, bool error_if_nonfinite) {
    const std::vector<Tensor> list = to_tensors(params, "clip_grad_norm_");
    return unlocked([&] { return nn::clip_grad_norm_(list, max_norm, norm_type, error_if_nonfinite); });
  });
  m.def("clip_grad_value_", [](nb::handle params, double clip_value) { nn::clip_grad_value_(to_tensors(params, "clip_grad_value_"), clip_value); });

  m.def("multi_step_lr", [](const Tensor& n, const Tensor& lr, const std::vector<int64_t>& milestones, double gamma) {
    return nn::multi_step_lr(n, lr, milestones, gamma);
  });
  m.def("cosine_annealing_lr", &nn::cosine_annealing_lr);
  m.def("cosine_annealing_lr_with_warmup", &nn::cosine_annealing_lr_with_warmup);
  m.def("one_cycle_lr", [](const Tensor& n, double max_lr, double div_factor, double final_div_factor, int64_t total_steps, double pct_start,
                           bool cosine) { return nn::one_cycle_lr(n, {max_lr, div_factor, final_div_factor, total_steps, pct_start, cosine}); });
  m.def("plateau_lr", [](nb::handle current, const Tensor& lr, Tensor best, Tensor bad_epoch, bool maximize, double factor, int64_t patience,
                         double threshold, bool relative) {
    return nn::plateau_lr(to_tensor(current, "ReduceLROnPlateau"), lr, best, bad_epoch, {maximize, factor, patience, threshold, relative});
  });
}

}  // namespace whit::python
