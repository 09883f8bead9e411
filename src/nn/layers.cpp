#include <cmath>

#include "base/error.h"
#include "base/flags.h"
#include "ir/build.h"
#include "whit/nn.h"

namespace whit::nn {
namespace {

Tensor uniform(const IntList& shape, double bound) { return Tensor::uniform(shape, -bound, bound); }

// Weight (`rows`, `columns`, kernel..) and bias, uniform in +-1/sqrt(inputs of a window).
void init_conv(Tensor& weight, Tensor& bias, int64_t rows, int64_t columns, const IntList& kernel_size, int64_t in_channels, int64_t n_biases) {
  Dims shape{rows, columns};
  shape.append(kernel_size.begin(), kernel_size.end());
  const double bound = 1 / std::sqrt(static_cast<double>(in_channels * kernel_size.shape().numel()));
  weight = uniform(shape, bound);
  if (n_biases) bias = uniform(n_biases, bound);
}

// The scale and the shift of a norm, which change nothing yet.
void init_norm(Tensor& weight, Tensor& bias, const IntList& shape) {
  weight = Tensor::ones(shape);
  bias = Tensor::zeros(shape);
}

IntList two_axes(const IntList& k) { return k.is_single() ? IntList{k[0], k[0]} : k; }

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  weight = uniform({out_features, in_features}, bound);
  if (with_bias) bias = uniform(out_features, bound);
}
Tensor Linear::operator()(const Tensor& x) const { return x.linear(weight.transpose(), bias); }

Conv::Conv(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvConfig& config) {
  WHIT_USER(config.groups > 0 && in_channels % config.groups == 0, Value, "[Conv] {} channels in {} groups", in_channels, config.groups);
  const size_t n = kernel_size.size();
  options = {.groups = config.groups, .stride = config.stride, .dilation = config.dilation, .padding = config.padding};
  if (config.same_padding) {
    Dims pads;
    for (size_t i = n; i-- > 0;) {
      const int64_t stride = config.stride[config.stride.is_single() ? 0 : i];
      WHIT_USER(stride == 1, Value, "[Conv] padding 'same' with stride {}; expected stride 1", stride);
      const int64_t total = config.dilation[config.dilation.is_single() ? 0 : i] * (kernel_size[i] - 1);
      pads.push_back(total / 2);
      pads.push_back(total - total / 2);
    }
    options.padding = IntList(pads);
  }
  init_conv(weight, bias, out_channels, in_channels / config.groups, kernel_size, in_channels, config.bias ? out_channels : 0);
}
Tensor Conv::operator()(const Tensor& x) const { return x.conv2d(weight, bias, options); }
Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvConfig& config)
    : Conv(in_channels, out_channels, two_axes(kernel_size), config) {}

ConvTranspose::ConvTranspose(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvTransposeConfig& config)
    : options{.groups = config.groups,
              .stride = config.stride,
              .dilation = config.dilation,
              .padding = config.padding,
              .output_padding = config.output_padding} {
  WHIT_USER(config.groups > 0 && out_channels % config.groups == 0, Value, "[ConvTranspose] {} channels in {} groups", out_channels, config.groups);
  init_conv(weight, bias, in_channels, out_channels / config.groups, kernel_size, in_channels, config.bias ? out_channels : 0);
}
Tensor ConvTranspose::operator()(const Tensor& x) const { return x.conv_transpose2d(weight, bias, options); }
ConvTranspose2d::ConvTranspose2d(int64_t in_channels, int64_t out_channels, const IntList& kernel_size, const ConvTransposeConfig& config)
    : ConvTranspose(in_channels, out_channels, two_axes(kernel_size), config) {}

BatchNorm::BatchNorm(int64_t size, const BatchNormConfig& c) : config(c) {
  if (c.affine) init_norm(weight, bias, size);
  if (!c.track_running_stats) return;
  running_mean = Tensor::zeros(size).is_param_(false);
  running_var = Tensor::ones(size).is_param_(false);
  num_batches_tracked = Tensor::zeros(Dims(), {.dtype = DType::Int64}).is_param_(false);
}
Tensor BatchNorm::operator()(const Tensor& x) {
  const int64_t channels = x.size(1);
  const Dims shape = along(x.ndim(), 1, channels);
  const bool training = flag::TRAINING() != 0;
  if (config.track_running_stats && !training) return x.batchnorm(weight, bias, running_mean, (running_var + config.eps).rsqrt());
  Dims axes;
  for (int64_t i = 0; i < static_cast<int64_t>(x.ndim()); ++i)
    if (i != 1) axes.push_back(i);
  const Tensor mean = x.mean(IntList(axes));
  const Tensor centered = x - mean.detach().reshape(shape);  // the variance does not change with the mean
  const Tensor var = (centered * centered).mean(IntList(axes));
  if (config.track_running_stats) {
    const double m = config.momentum, n = static_cast<double>(x.numel());
    running_mean.assign(running_mean * (1 - m) + mean.detach() * m);
    running_var.assign(running_var * (1 - m) + var.detach() * (m * n / (n - static_cast<double>(channels))));
    num_batches_tracked += 1;
  }
  return x.batchnorm(weight, bias, mean, (var + config.eps).rsqrt());
}
void BatchNorm::visit(Walk& w) {
  w("weight", weight), w("bias", bias), w("running_mean", running_mean), w("running_var", running_var);
  w("num_batches_tracked", num_batches_tracked);
}

LayerNorm::LayerNorm(const IntList& shape, const NormConfig& config) : normalized_shape(shape.begin(), shape.end()), eps(config.eps) {
  if (config.affine) init_norm(weight, bias, normalized_shape);
}
Tensor LayerNorm::operator()(const Tensor& x) const {
  const size_t n = normalized_shape.size();
  WHIT_USER(x.ndim() >= n && std::equal(normalized_shape.begin(), normalized_shape.end(), x.shape().end() - n), Assertion,
            "[LayerNorm] the last axes of {} are not {}", x.shape(), Shape(normalized_shape));
  Dims axes;
  for (size_t i = 0; i < n; ++i) axes.push_back(static_cast<int64_t>(x.ndim() - n + i));
  const Tensor y = x.layernorm(axes, eps);
  return weight.defined() ? y * weight + bias : y;
}
Tensor LayerNorm2d::operator()(const Tensor& x) const { return LayerNorm::operator()(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2}); }

GroupNorm::GroupNorm(int64_t groups, int64_t num_channels, const NormConfig& config) : num_groups(groups), eps(config.eps) {
  if (config.affine) init_norm(weight, bias, num_channels);
}
Tensor GroupNorm::operator()(const Tensor& x) const {
  const Tensor y = x.reshape({x.size(0), num_groups, -1}).layernorm(-1, eps).reshape(x.shape());
  if (!weight.defined()) return y;
  const Dims shape = along(x.ndim(), 1, x.size(1));
  return y * weight.reshape(shape) + bias.reshape(shape);
}

RMSNorm::RMSNorm(int64_t dim, const NormConfig& config) : eps(config.eps) {
  if (config.affine) weight = Tensor::ones(dim);
}
Tensor RMSNorm::operator()(const Tensor& x) const {
  const Tensor f = x.cast(DType::Float32);
  const Tensor y = (f * (f.square().mean(-1, true) + eps).rsqrt()).cast(x.dtype());
  return weight.defined() ? y * weight : y;
}

Embedding::Embedding(int64_t vocab_size, int64_t embed_size) : weight(Tensor::glorot_uniform({vocab_size, embed_size})) {}
Tensor Embedding::operator()(const Tensor& index) const {
  WHIT_USER(is_int(index.dtype()), Type, "[Embedding] index of {}; expected integers", index.dtype());
  return weight[index];
}

LSTMCell::LSTMCell(int64_t input_size, int64_t hidden_size, bool with_bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  weight_ih = uniform({hidden_size * 4, input_size}, bound);
  weight_hh = uniform({hidden_size * 4, hidden_size}, bound);
  if (!with_bias) return;
  bias_ih = Tensor::zeros(hidden_size * 4);
  bias_hh = Tensor::zeros(hidden_size * 4);
}
std::pair<Tensor, Tensor> LSTMCell::operator()(const Tensor& x, const Tensor& h, const Tensor& c) const {
  const int64_t hidden = weight_hh.size(1);
  Tensor gates = x.linear(weight_ih.transpose(), bias_ih);
  if (h.defined()) {
    gates = gates + h.linear(weight_hh.transpose(), bias_hh);
  } else if (bias_hh.defined()) {
    gates = gates + bias_hh;
  }
  const std::vector<Tensor> g = gates.split(hidden, 1);
  Tensor cell = g[0].sigmoid() * g[2].tanh();
  if (c.defined()) cell = g[1].sigmoid() * c + cell;
  cell = cell.contiguous();
  return {(g[3].sigmoid() * cell.tanh()).contiguous(), cell};
}

}  // namespace whit::nn
