// What networks are made of besides contractions: normalisation, attention, losses, interpolation.
#include <cmath>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

Tensor Tensor::linear(const Tensor& weight, const Tensor& bias, std::optional<DType> dt) const {
  const Tensor x = dt ? cast(*dt) : *this;
  const Tensor w = dt ? weight.cast(*dt) : weight;
  const Tensor y = w.ndim() == 1 ? x * w : x.dot(w);
  if (!bias.defined()) return y;
  return y + (dt ? bias.cast(*dt) : bias);
}

Tensor Tensor::layernorm(const IntList& axis, double eps) const {
  Dims axes = resolve_axes("layernorm", Axes(axis), shape());
  const Tensor f = to_mean_dtype(*this), x = f.cast(sum_dtype(f.dtype()));
  const Tensor centered = x - x.mean(IntList(axes), true);
  return (centered * ((centered * centered).mean(IntList(axes), true) + eps).rsqrt()).cast(f.dtype());
}

Tensor Tensor::batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& invstd, const IntList& axis) const {
  const Dims axes = resolve_axes("batchnorm", Axes(axis), shape());
  Dims dims(ndim(), 1);
  for (const int64_t a : axes) dims[static_cast<size_t>(a)] = shape()[static_cast<size_t>(a)];
  Tensor x = *this - mean.reshape(dims);
  if (weight.defined()) x = x * weight.reshape(dims);
  x = x * (invstd.ndim() == axes.size() ? invstd.reshape(dims) : invstd);
  return bias.defined() ? x + bias.reshape(dims) : x;
}

Tensor Tensor::scaled_dot_product_attention(const Tensor& key, const Tensor& value, const AttentionOptions& o) const {
  WHIT_USER(ndim() >= 2 && key.ndim() >= 2 && value.ndim() >= 2, Value,
            "[scaled_dot_product_attention] query {}, key {}, value {}; expected at least two axes", shape(), key.shape(), value.shape());
  WHIT_USER(!o.is_causal || !o.attn_mask, Runtime, "[scaled_dot_product_attention] is_causal and a mask are both given");
  Tensor k = key, v = value;
  if (o.enable_gqa) {
    const int64_t heads = size(-3), k_heads = k.size(-3), v_heads = v.size(-3);
    WHIT_USER(k_heads > 0 && v_heads > 0 && heads % k_heads == 0 && heads % v_heads == 0, Value,
              "[scaled_dot_product_attention] {} query heads over {} key and {} value heads", heads, k_heads, v_heads);
    k = k.repeat_interleave(heads / k_heads, -3);
    v = v.repeat_interleave(heads / v_heads, -3);
  }
  const DType wide = least_upper_dtype(least_upper_dtype(dtype(), k.dtype()), DType::Float32);
  Tensor qk = matmul(k.transpose(-2, -1), wide) * (1.0 / std::sqrt(static_cast<double>(size(-1))));
  if (o.is_causal) {
    const auto col = static_cast<int64_t>(qk.ndim()) - 1;
    qk = lane_index(qk, col).le(lane_index(qk, col - 1)).where(qk, -INFINITY);
  }
  if (o.attn_mask) {
    const Tensor& m = *o.attn_mask;
    qk = m.dtype() == DType::Bool ? m.where(qk, -INFINITY) : qk + m;
  }
  return qk.cast(dtype()).softmax(-1).dropout(o.dropout_p).matmul(v);
}

// ---- losses

namespace {
void check_reduction(const char* op, std::string_view reduction) {
  WHIT_USER(reduction == "mean" || reduction == "sum" || reduction == "none", Value, "[{}] reduction '{}'; expected 'mean', 'sum' or 'none'", op,
            reduction);
}
// Reduces a loss as "mean", "sum" or "none" says.
Tensor reduce_loss(const char* op, const Tensor& x, std::string_view reduction) {
  check_reduction(op, reduction);
  return reduction == "mean" ? x.mean() : reduction == "sum" ? x.sum() : x;
}

// The logarithms of the probabilities of labels along an axis, mixed with their mean over all classes.
Tensor label_scores(const char* op, const Tensor& log_probs, const Tensor& y, int64_t axis, double smoothing) {
  const Tensor hit = one_hot_along(op, y.unsqueeze(axis), log_probs.size(axis), axis);
  const Tensor chosen = hit.where(log_probs, 0.0).sum(axis);
  return smoothing == 0 ? chosen : chosen * (1 - smoothing) + log_probs.mean(axis) * smoothing;
}
void check_smoothing(const char* op, double smoothing) {
  WHIT_USER(0 <= smoothing && smoothing <= 1, Assertion, "[{}] label_smoothing {}; expected 0..1", op, smoothing);
}
}  // namespace

Tensor Tensor::binary_crossentropy(const Tensor& y, std::string_view reduction) const {
  const Tensor loss = (y * log()).neg() - (Tensor(1) - y) * (Tensor(1) - *this).log();
  return reduce_loss("binary_crossentropy", loss, reduction);
}

Tensor Tensor::binary_crossentropy_logits(const Tensor& y, std::string_view reduction, const Tensor& pos_weight) const {
  const Tensor yes = pos_weight.defined() ? pos_weight * y : y;
  const Tensor loss = (yes * logsigmoid() + (Tensor(1) - y) * neg().logsigmoid()).neg();
  return reduce_loss("binary_crossentropy_logits", loss, reduction);
}

Tensor Tensor::sparse_categorical_crossentropy(const Tensor& y, int64_t ignore_index, double label_smoothing, std::string_view reduction) const {
  constexpr const char* op = "sparse_categorical_crossentropy";
  check_smoothing(op, label_smoothing);
  check_reduction(op, reduction);
  WHIT_USER(ndim() == y.ndim() + 1, Runtime, "[{}] logits {} and labels {}: expected one label a row", op, shape(), y.shape());
  for (size_t i = 0; i < y.ndim(); ++i)
    WHIT_USER(shape()[i] == y.shape()[i], Runtime, "[{}] logits {} and labels {} differ in axis {}", op, shape(), y.shape(), i);
  Tensor loss = label_scores(op, log_softmax(), y, static_cast<int64_t>(ndim()) - 1, label_smoothing).neg();
  if (ignore_index == -1) return reduce_loss(op, loss, reduction);
  const Tensor counts = y.ne(ignore_index);
  loss = counts.where(loss, 0.0);
  return reduction == "mean" ? loss.sum() / counts.sum().cast(loss.dtype()) : reduce_loss(op, loss, reduction);
}

Tensor Tensor::cross_entropy(const Tensor& y, std::string_view reduction, double label_smoothing) const {
  constexpr const char* op = "cross_entropy";
  check_smoothing(op, label_smoothing);
  check_reduction(op, reduction);
  WHIT_USER(ndim() > 0, Runtime, "[{}] logits without axes", op);
  const int64_t axis = ndim() == 1 ? 0 : 1;
  const Tensor log_probs = log_softmax(axis);
  if (y.ndim() == ndim()) {
    WHIT_USER(y.shape() == shape(), Runtime, "[{}] logits {} and probabilities {} differ", op, shape(), y.shape());
    const Tensor p = y * (1 - label_smoothing) + label_smoothing / static_cast<double>(size(axis));
    return reduce_loss(op, (log_probs * p).sum(axis).neg(), reduction);
  }
  Dims want;
  for (size_t i = 0; i < ndim(); ++i)
    if (static_cast<int64_t>(i) != axis) want.push_back(shape()[i]);
  WHIT_USER(y.shape() == Shape(want), Runtime, "[{}] logits {} and labels {}: expected labels {}", op, shape(), y.shape(), dims_str(want));
  return reduce_loss(op, label_scores(op, log_probs, y, axis, label_smoothing).neg(), reduction);
}

Tensor Tensor::nll_loss(const Tensor& y, const Tensor& weight, std::optional<int64_t> ignore_index, std::string_view reduction) const {
  constexpr const char* op = "nll_loss";
  check_reduction(op, reduction);
  const int64_t axis = ndim() == 1 ? 0 : 1;
  WHIT_USER(y.ndim() + 1 == ndim(), Runtime, "[{}] log probabilities {} and labels {}", op, shape(), y.shape());
  const int64_t classes = size(axis);
  const Tensor hit = one_hot_along(op, y.unsqueeze(axis), classes, axis);
  Tensor w = constant(1.0, dtype()).expand(y.shape());
  if (weight.defined()) w = hit.where(weight.reshape(along(ndim(), static_cast<size_t>(axis), classes)), 0).sum(axis).cast(weight.dtype());
  if (ignore_index) w = y.ne(*ignore_index).where(w, 0.0);
  const Tensor loss = hit.where(*this, 0.0).sum(axis).neg() * w;
  return reduction == "mean" ? loss.sum() / w.sum() : reduce_loss(op, loss, reduction);
}

// ---- interpolation

Tensor Tensor::interpolate(const IntList& size, std::string_view mode, bool align_corners) const {
  WHIT_USER(mode == "linear" || mode == "nearest" || mode == "nearest-exact", Assertion,
            "[interpolate] mode '{}'; expected 'linear', 'nearest' or 'nearest-exact'", mode);
  WHIT_USER(size.size() <= ndim() && !size.empty(), Assertion, "[interpolate] {} sizes for shape {}; expected 1..{}", size.size(), shape(), ndim());
  WHIT_USER(mode == "linear" || !align_corners, Assertion, "[interpolate] align_corners is for mode 'linear' only");
  Tensor x = *this;
  for (size_t i = 0; i < size.size(); ++i) {
    const size_t axis = ndim() - size.size() + i;
    const int64_t n_in = shape()[axis], n_out = size[i];
    WHIT_USER(n_out > 0 && n_in > 0, Value, "[interpolate] axis {} of size {} cannot become {}; expected positive sizes", axis, n_in, n_out);
    const double scale = align_corners ? (n_out > 1 ? static_cast<double>(n_in - 1) / static_cast<double>(n_out - 1) : 0.0)
                                       : static_cast<double>(n_in) / static_cast<double>(n_out);
    const Tensor at = arange(0, n_out, 1, DType::Float32);
    auto take = [&](const Tensor& index) {
      std::vector<Index> all(axis, Index(Slice{}));
      all.emplace_back(index);
      return x.get(all);
    };
    if (mode != "linear") {
      const Tensor where_from = mode == "nearest" ? at * scale : (at + 0.5) * scale;
      x = take(where_from.cast(DType::Int32).clamp(0, n_in - 1));
      continue;
    }
    const Tensor where_from = (align_corners ? at * scale : (at + 0.5) * scale - 0.5).clamp(0, n_in - 1);
    const Tensor low = where_from.floor();
    const Tensor part = (where_from - low).reshape(along(ndim(), axis, n_out));
    x = take(low.cast(DType::Int32)).lerp(take(where_from.ceil().cast(DType::Int32)), part);
  }
  return x.cast(dtype());
}

}  // namespace whit
