// Optimisers. A step updates all parameters in one realize, so that their kernels are joined.
#pragma once
#include <optional>
#include <vector>

#include "whit/tensor.h"

namespace whit::nn {

class Optimizer {
 public:
  virtual ~Optimizer();
  /// Parameters by the rule; then the realized buffers among `params` that do not train (batch statistics).
  /// errors: Runtime when the flag TRAINING is off; Assertion for a parameter without gradient
  void step();
  /// Builds the step without running it and returns what has to be realised.
  std::vector<Tensor> schedule_step();
  void zero_grad();

  std::vector<Tensor> params;   ///< those that train
  std::vector<Tensor> buffers;  ///< the others
  Tensor lr;                    ///< shape (1,); assign to it to change the rate

 protected:
  /// errors: Assertion without parameters; Value for lr < 0
  Optimizer(const std::vector<Tensor>& all, double learning_rate);
  /// Updates state and gives the new values of the parameters.
  virtual std::vector<Tensor> next_params(const std::vector<Tensor>& grads) = 0;
  /// State tensors that belong to the step.
  virtual void append_state(std::vector<Tensor>& out) const = 0;
  /// A zero for each parameter, in the dtype of flag OPTIM_DTYPE.
  std::vector<Tensor> zeros_like_params() const;
};

struct SGDConfig {
  double lr = 0.001;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool classic = false;
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
};
struct LAMBConfig {
  double lr = 0.001;
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  bool adam = false;
};

class LARS : public Optimizer {
 public:
  explicit LARS(const std::vector<Tensor>& all, const LARSConfig& config = {});

 protected:
  std::vector<Tensor> next_params(const std::vector<Tensor>& grads) override;
  void append_state(std::vector<Tensor>& out) const override;

 private:
  LARSConfig config_;
  std::vector<Tensor> b_;
};
class SGD : public LARS {
 public:
  explicit SGD(const std::vector<Tensor>& all, const SGDConfig& config = {});
};
class Muon : public LARS {
 public:
  explicit Muon(const std::vector<Tensor>& all, const MuonConfig& config = {});
};

class LAMB : public Optimizer {
 public:
  explicit LAMB(const std::vector<Tensor>& all, const LAMBConfig& config = {});

 protected:
  std::vector<Tensor> next_params(const std::vector<Tensor>& grads) override;
  void append_state(std::vector<Tensor>& out) const override;

 private:
  LAMBConfig config_;
  Tensor b1_t_, b2_t_;
  std::vector<Tensor> m_, v_;
};
class Adam : public LAMB {
 public:
  explicit Adam(const std::vector<Tensor>& all, const AdamConfig& config = {});
};
class AdamW : public LAMB {
 public:
  explicit AdamW(const std::vector<Tensor>& all, const AdamConfig& config = {});
};

}  // namespace whit::nn
