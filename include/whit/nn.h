// Layers. Each is a struct of tensors with a call operator; what trains and what does not says Tensor::is_param.
// Batch statistics and dropout follow the flag TRAINING.
#pragma once
#include "whit/state.h"
#include "whit/tensor.h"

namespace whit::nn {

struct ConvConfig {
  IntList stride = 1;
  IntList padding = 0;
  bool same_padding = false;  ///< pads so that stride 1 keeps the size
  IntList dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};
struct ConvTransposeConfig {
  IntList stride = 1;
  IntList padding = 0;
  IntList output_padding = 0;
  IntList dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};
struct NormConfig {
  double eps = 1e-5;
  bool affine = true;
};
struct BatchNormConfig {
  double eps = 1e-5;
  bool affine = true;
  bool track_running_stats = true;
  double momentum = 0.1;
};

/// y = x W^T + b; W (out, in), uniform in +-1/sqrt(in).
struct Linear {
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);
  Tensor operator()(const Tensor& x) const;
  void visit(Walk& w) { w("weight", weight), w("bias", bias); }
  Tensor weight, bias;
};

/// Convolution of as many axes as the kernel has; weight (out, in/groups, k..).
struct Conv {
  Conv(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvConfig& config = {});
  Tensor operator()(const Tensor& x) const;
  void visit(Walk& w) { w("weight", weight), w("bias", bias); }
  Tensor weight, bias;
  ConvOptions options;
};
struct Conv1d : Conv {
  Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvConfig& config = {})
      : Conv(in_channels, out_channels, IntList{kernel_size}, config) {}
};
struct Conv2d : Conv {
  Conv2d(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvConfig& config = {});
};

/// weight (in, out/groups, k..).
struct ConvTranspose {
  ConvTranspose(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvTransposeConfig& config = {});
  Tensor operator()(const Tensor& x) const;
  void visit(Walk& w) { w("weight", weight), w("bias", bias); }
  Tensor weight, bias;
  ConvTransposeOptions options;
};
struct ConvTranspose1d : ConvTranspose {
  ConvTranspose1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvTransposeConfig& config = {})
      : ConvTranspose(in_channels, out_channels, IntList{kernel_size}, config) {}
};
struct ConvTranspose2d : ConvTranspose {
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvTransposeConfig& config = {});
};

/// Normalises over all axes but axis 1: by the batch's statistics under TRAINING, else by the running ones.
struct BatchNorm {
  explicit BatchNorm(int64_t size, const BatchNormConfig& config = {});
  Tensor operator()(const Tensor& x);
  void visit(Walk& w);
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  BatchNormConfig config;
};
using BatchNorm2d = BatchNorm;
using BatchNorm3d = BatchNorm;

struct LayerNorm {
  explicit LayerNorm(const IntList& normalized_shape, const NormConfig& config = {});
  Tensor operator()(const Tensor& x) const;
  void visit(Walk& w) { w("weight", weight), w("bias", bias); }
  Tensor weight, bias;
  Dims normalized_shape;
  double eps;
};
/// LayerNorm over the channels of (batch, channel, height, width).
struct LayerNorm2d : LayerNorm {
  using LayerNorm::LayerNorm;
  Tensor operator()(const Tensor& x) const;
};
struct GroupNorm {
  GroupNorm(int64_t num_groups, int64_t num_channels, const NormConfig& config = {});
  Tensor operator()(const Tensor& x) const;
  void visit(Walk& w) { w("weight", weight), w("bias", bias); }
  Tensor weight, bias;
  int64_t num_groups;
  double eps;
};
/// GroupNorm with a group a channel.
struct InstanceNorm : GroupNorm {
  explicit InstanceNorm(int64_t num_features, const NormConfig& config = {}) : GroupNorm(num_features, num_features, config) {}
};
struct RMSNorm {
  explicit RMSNorm(int64_t dim, const NormConfig& config = {.eps = 1e-6});
  Tensor operator()(const Tensor& x) const;
  void visit(Walk& w) { w("weight", weight); }
  Tensor weight;
  double eps;
};

/// Rows of a table by number. errors: Type for an index that is no integer
struct Embedding {
  Embedding(int64_t vocab_size, int64_t embed_size);
  Tensor operator()(const Tensor& index) const;
  void visit(Walk& w) { w("weight", weight); }
  Tensor weight;
};

/// Gates in the order input, forget, cell, output.
struct LSTMCell {
  LSTMCell(int64_t input_size, int64_t hidden_size, bool with_bias = true);
  /// (h, c) after one step; undefined tensors stand for zeros.
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {}, const Tensor& c = {}) const;
  void visit(Walk& w) { w("weight_ih", weight_ih), w("weight_hh", weight_hh), w("bias_ih", bias_ih), w("bias_hh", bias_hh); }
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;
};

}  // namespace whit::nn
