// Convolutions and pooling over WINDOW: y[.., o.., k..] = x[.., o*stride + k*dilation ..]. A convolution is one sum over
// the product of windows and weights.
#include <algorithm>

#include "ir/eval.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

// The window axis last. Windows that do not overlap are a reshape, whose gradient is one too.
UOp one_window(const UOp& x, size_t axis, int64_t k, int64_t stride, int64_t dilation) {
  if (stride != k || dilation != 1) return window(x, static_cast<int64_t>(axis), k, stride, dilation);
  const int64_t n = x.shape()[axis] / k;
  Dims dims(x.shape().begin(), x.shape().end());
  dims[axis] = n;
  dims.insert(dims.begin() + axis + 1, k);
  return permuted(shaped(cut(x, axis, 0, n * k), dims), moved_axis(dims.size(), axis + 1, dims.size() - 1));
}

// Sliding windows over the last k.size() axes: [.., out.., k..].
Tensor pool(const char* op, const Tensor& x, std::span<const int64_t> k, std::span<const int64_t> stride, std::span<const int64_t> dilation) {
  const size_t n = k.size(), first = x.ndim() - n;
  UOp u = x.uop();
  for (size_t i = 0; i < n; ++i) {
    WHIT_USER(k[i] > 0 && stride[i] > 0 && dilation[i] > 0, Value, "[{}] kernel {} stride {} dilation {}; expected positive numbers", op, k[i],
              stride[i], dilation[i]);
    WHIT_USER(x.shape()[first + i] >= dilation[i] * (k[i] - 1) + 1, Value,
              "[{}] a window of {} (dilation {}) is larger than axis {} of the padded shape {}", op, k[i], dilation[i], first + i, x.shape());
    u = one_window(u, first + i, k[i], stride[i], dilation[i]);
  }
  return wrap(u);
}

// Padding of the last axes as pairs from the last axis to the first.
Dims resolve_pool_pads(const char* op, const IntList& padding, size_t n_axes) {
  for (const int64_t v : padding) check_step(op, "padding", v);
  if (padding.is_single()) return Dims(2 * n_axes, padding[0]);
  WHIT_USER(padding.size() == n_axes || padding.size() == 2 * n_axes, Value, "[{}] padding has {} numbers; expected 1, {} or {}", op, padding.size(),
            n_axes, 2 * n_axes);
  if (padding.size() == 2 * n_axes) return Dims(padding.begin(), padding.end());
  Dims out;
  for (size_t i = n_axes; i-- > 0;) out.resize(out.size() + 2, padding[i]);
  return out;
}

Tensor biased(const Tensor& y, const Tensor& bias) { return bias.defined() ? y + bias.reshape(along(y.ndim(), 1, bias.shape()[0])) : y; }

// A stride of s makes s outputs of each place: those of a phase are a convolution with every s-th tap, and the phases are channels
// of one convolution.
Tensor phases_transposed(const Tensor& x, const Tensor& weight, int64_t groups, const Dims& stride, const Dims& dilation, const Dims& pads,
                         const Dims& out_pad) {
  const size_t n = stride.size();
  Tensor w = weight;
  Dims order{0, 1}, taps, phases{groups * weight.size(1)}, places{0, 1};
  std::vector<AxisPair> crop(2);
  for (size_t i = 0; i < n; ++i) {
    const int64_t axis = static_cast<int64_t>(2 + 2 * i), s = stride[i], d = dilation[i], size = x.size(2 + i), k = (w.size(axis) - 1) * d + 1;
    const int64_t n_taps = (k + s - 1) / s, end = (size - 1) * s + k - pads[2 * (n - 1 - i) + 1] + out_pad[i];
    std::vector<AxisPair> holes(w.ndim() + 1), more(w.ndim());
    holes[axis + 1] = std::pair<int64_t, int64_t>(0, d - 1);
    more[axis] = std::pair<int64_t, int64_t>(0, n_taps * s - (k + d - 1));
    w = w.unsqueeze(axis + 1).pad_axes(holes).flatten(axis, axis + 1).pad_axes(more).unflatten(axis, {n_taps, s});
    order.insert(order.begin() + 2 + i, axis + 1);
    order.push_back(axis);
    phases.push_back(s);
    places.push_back(static_cast<int64_t>(2 + n + i));
    places.push_back(static_cast<int64_t>(2 + i));
    crop.emplace_back(std::pair(-pads[2 * (n - 1 - i)], end - (size + n_taps - 1) * s));
  }
  Tensor y = x.conv_transpose2d(w.permute(IntList(order)).flatten(1, static_cast<int64_t>(1 + n)), {}, {.groups = groups}).contiguous();
  y = y.unflatten(1, IntList(phases)).permute(IntList(places));
  for (size_t i = 0; i < n; ++i) y = y.flatten(static_cast<int64_t>(2 + i), static_cast<int64_t>(3 + i));
  return y.pad_axes(crop);
}

}  // namespace

Tensor Tensor::conv2d(const Tensor& weight, const Tensor& bias, const ConvOptions& o) const {
  must_be_defined("conv2d", *this);
  must_be_defined("conv2d", weight);
  WHIT_USER(ndim() >= 3 && weight.ndim() == ndim(), Assertion, "[conv2d] input {} and weight {}; expected equal ranks of at least 3", shape(),
            weight.shape());
  if (shape().is_symbolic()) return row_by_row("conv2d", *this, 1, [&](const Tensor& x) { return x.conv2d(weight, bias, o); });
  const size_t n = ndim() - 2;
  const int64_t batch = shape()[0], cin = weight.shape()[1], cout = weight.shape()[0], groups = o.groups;
  WHIT_USER(groups > 0 && groups * cin == shape()[1] && cout % groups == 0, Assertion,
            "[conv2d] input {}, weight {} and groups {} do not match: expected {} input channels and outputs divisible by {}", shape(),
            weight.shape(), groups, groups * cin, groups);
  if (bias.defined())
    WHIT_USER(bias.ndim() == 1 && bias.shape()[0] == cout, Assertion, "[conv2d] bias {} for {} output channels", bias.shape(), cout);
  const Dims k(weight.shape().begin() + 2, weight.shape().end());
  const Dims stride = spread("conv2d", "stride", o.stride, n), dilation = spread("conv2d", "dilation", o.dilation, n);
  const DType out = least_upper_dtype(dtype(), weight.dtype());
  const DType acc = o.dtype.value_or(sum_dtype(out));
  const Dims pads = resolve_pool_pads("conv2d", o.padding, n);
  const auto ones = [](const Dims& d) { return std::ranges::all_of(d, [](int64_t v) { return v == 1; }); };
  if (n == 2 && groups == 1 && ones(stride) && ones(dilation) && dtype() == DType::Float32 && out == dtype() && acc == out && weight.dtype() == out)
    if (const std::optional<Tensor> y = winograd(*this, weight, pads)) return biased(*y, bias);
  const Tensor windows = pool("conv2d", pad(pads).cast(acc), k, stride, dilation);
  // windows: [b, g*cin, o.., k..] -> [b, g, 1, cin, o.., k..]; weight: [1, g, cout/g, cin, 1.., k..]
  Dims x_dims{batch, groups, 1, cin}, w_dims{1, groups, cout / groups, cin}, out_dims{batch, cout}, axes{3};
  x_dims.append(windows.shape().begin() + 2, windows.shape().end());
  w_dims.resize(4 + n, 1);
  w_dims.append(k.begin(), k.end());
  out_dims.append(windows.shape().begin() + 2, windows.shape().end() - n);
  for (size_t i = 4 + n; i < x_dims.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const Tensor product = windows.reshape(x_dims) * weight.cast(acc).reshape(w_dims);
  return biased(product.sum(IntList(axes), false, acc).reshape(out_dims).cast(o.dtype.value_or(out)), bias);
}

Tensor Tensor::conv_transpose2d(const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& o) const {
  WHIT_USER(ndim() >= 3 && weight.ndim() == ndim(), Assertion, "[conv_transpose2d] input {} and weight {}; expected equal ranks of at least 3",
            shape(), weight.shape());
  if (shape().is_symbolic()) return row_by_row("conv_transpose2d", *this, 1, [&](const Tensor& x) { return x.conv_transpose2d(weight, bias, o); });
  const size_t n = ndim() - 2;
  const int64_t groups = o.groups, cin = weight.shape()[0], cout = weight.shape()[1];
  WHIT_USER(!bias.defined() || (bias.ndim() == 1 && bias.shape()[0] == groups * cout), Assertion, "[conv_transpose2d] bias {} for {} output channels",
            bias.shape(), groups * cout);
  WHIT_USER(groups > 0 && cin == shape()[1] && cin % groups == 0, Assertion, "[conv_transpose2d] input {}, weight {} and groups {} do not match",
            shape(), weight.shape(), groups);
  const Dims stride = spread("conv_transpose2d", "stride", o.stride, n);
  const Dims dilation = spread("conv_transpose2d", "dilation", o.dilation, n);
  const Dims out_pad = spread("conv_transpose2d", "output_padding", o.output_padding, n);
  const Dims pads = resolve_pool_pads("conv_transpose2d", o.padding, n);
  if (const auto bad = std::ranges::find_if(stride, [](int64_t s) { return s < 1; }); bad != stride.end())
    WHIT_USER(false, Value, "[conv_transpose2d] stride {}; expected a positive number", *bad);
  if (std::ranges::any_of(stride, [](int64_t s) { return s > 1; }))
    return biased(phases_transposed(*this, weight, groups, stride, dilation, pads, out_pad), bias);
  // The weight of the equivalent convolution: groups apart, channels swapped, taps reversed.
  Dims g_dims{groups, cin / groups, cout}, w_dims{groups * cout, cin / groups}, conv_pads;
  for (Dims* const dims : {&g_dims, &w_dims}) dims->append(weight.shape().begin() + 2, weight.shape().end());
  const Tensor w = weight.reshape(g_dims).transpose(1, 2).reshape(w_dims).flip(axes_from(2, 2 + n));
  for (size_t i = n; i-- > 0;) {
    const int64_t reach = (weight.shape()[2 + i] - 1) * dilation[i];
    const size_t at = 2 * (n - 1 - i);
    conv_pads.push_back(reach - pads[at]);
    conv_pads.push_back(reach - pads[at + 1] + out_pad[i]);
  }
  return conv2d(w, bias, {.groups = groups, .dilation = dilation, .padding = IntList(conv_pads)});
}

// ---- pooling

namespace {

struct PoolSizes {
  size_t n;
  Dims k, stride, dilation, pads;
  Dims padded;  ///< the pads with what ceil_mode adds
};

// More padding at the ends, so that the last partial window counts; a window that would start in it does not.
Dims ceil_pads(const Tensor& x, const PoolSizes& s) {
  Dims out = s.pads;
  for (size_t i = 0; i < s.n; ++i) {
    const size_t at = 2 * (s.n - 1 - i);
    const int64_t size = x.shape()[x.ndim() - s.n + i], before = s.pads[at], after = s.pads[at + 1];
    const int64_t reach = s.dilation[i] * (s.k[i] - 1) + 1, room = size + before + after - reach;
    if (s.stride[i] <= 0 || room + s.stride[i] - 1 < 0) continue;  // pool() refuses them
    int64_t n_out = (room + s.stride[i] - 1) / s.stride[i] + 1;
    if ((n_out - 1) * s.stride[i] >= size + before) --n_out;
    out[at + 1] = after + std::max<int64_t>(0, (n_out - 1) * s.stride[i] + reach - (size + before + after));
  }
  return out;
}

PoolSizes pool_sizes(const char* op, const Tensor& x, const PoolOptions& o) {
  PoolSizes s;
  s.n = o.kernel_size.is_single() ? 2 : o.kernel_size.size();
  WHIT_USER(x.ndim() >= s.n, Value, "[{}] shape {} for a kernel of {} axes", op, x.shape(), s.n);
  s.k = spread(op, "kernel_size", o.kernel_size, s.n);
  s.stride = o.stride ? spread(op, "stride", *o.stride, s.n) : s.k;
  s.dilation = spread(op, "dilation", o.dilation, s.n);
  s.pads = resolve_pool_pads(op, o.padding, s.n);
  s.padded = o.ceil_mode ? ceil_pads(x, s) : s.pads;
  return s;
}

// With a WHERE even where nothing is padded: what pools and their gradients read is a value of its own then, which the step of
// a network with batch norms computes in fewer kernels.
Tensor windows(const char* op, const Tensor& x, const PoolSizes& s, double padding) {
  Tensor padded = x.pad(s.padded);
  if (padding != 0) padded = wrap(broadcast_scalar(const_bool(true), x.shape())).pad(s.padded).where(padded, Tensor::constant(padding, x.dtype()));
  return pool(op, padded, s.k, s.stride, s.dilation);
}

double lowest(DType dt) { return monoid_identity("max", dt).as_double(); }

}  // namespace

Tensor Tensor::avg_pool2d(const PoolOptions& o) const {
  const PoolSizes s = pool_sizes("avg_pool2d", *this, o);
  if (shape().is_symbolic()) return row_by_row("avg_pool2d", *this, ndim() - s.n, [&](const Tensor& x) { return x.avg_pool2d(o); });
  const Tensor x = to_float_dtype(*this), w = windows("avg_pool2d", x, s, 0);
  const IntList axes = axes_from(w.ndim() - s.n, w.ndim());
  if (!o.ceil_mode && o.count_include_pad) return w.mean(axes);
  // How many elements of each window count: with padding, but never what ceil_mode added.
  const Dims own(shape().end() - s.n, shape().end());
  Tensor ones = wrap(broadcast_scalar(constant(1.0, x.dtype()).uop(), own));
  Dims extra = s.padded;
  if (o.count_include_pad) {
    ones = ones.pad(s.pads, {.value = 1.0});
    for (size_t i = 0; i < extra.size(); ++i) extra[i] -= s.pads[i];
  }
  const Tensor count = pool("avg_pool2d", ones.pad(extra), s.k, s.stride, s.dilation);
  return w.sum(axes) / count.sum(IntList(axes_from(s.n, 2 * s.n)));
}

Tensor Tensor::max_pool2d(const PoolOptions& o) const {
  const PoolSizes s = pool_sizes("max_pool2d", *this, o);
  if (shape().is_symbolic()) return row_by_row("max_pool2d", *this, ndim() - s.n, [&](const Tensor& x) { return x.max_pool2d(o); });
  const Tensor w = windows("max_pool2d", *this, s, lowest(dtype()));
  return w.max(IntList(axes_from(w.ndim() - s.n, w.ndim())));
}

std::pair<Tensor, Tensor> Tensor::max_pool2d_indices(const PoolOptions& o) const {
  const PoolSizes s = pool_sizes("max_pool2d", *this, o);
  const Tensor w = windows("max_pool2d", *this, s, lowest(dtype()));
  const IntList axes = axes_from(w.ndim() - s.n, w.ndim());
  const Tensor best = w.max(axes, true);
  // The flat position of every element in its plane; the smallest one that holds the maximum.
  const Dims own(shape().end() - s.n, shape().end());
  const int64_t plane = detail::prod(own);
  const Tensor position = arange(0, plane, 1, DType::Int32).reshape(own);
  const Tensor at = windows("max_pool2d", position, s, static_cast<double>(plane));
  Tensor hit = w.eq(best);
  if (is_float(dtype())) hit = hit | w.isnan();
  return {w.max(axes), hit.where(at, constant_int(plane, DType::Int32)).min(axes)};
}

Tensor Tensor::max_unpool2d(const Tensor& indices, const PoolOptions& o, const std::optional<IntList>& output_size) const {
  const PoolSizes s = pool_sizes("max_unpool2d", *this, o);
  WHIT_USER(indices.shape() == shape(), Runtime, "[max_unpool2d] indices {} for values {}; expected equal shapes", indices.shape(), shape());
  Dims dims(shape().begin(), shape().end() - s.n);
  const int64_t rows = detail::prod(dims);
  if (output_size) {
    WHIT_USER(output_size->size() == ndim() || output_size->size() == s.n, Value, "[max_unpool2d] output_size has {} numbers; expected {} or {}",
              output_size->size(), s.n, ndim());
    dims.append(output_size->end() - s.n, output_size->end());
  } else {
    for (size_t i = 0; i < s.n; ++i) {
      const size_t at = 2 * (s.n - 1 - i);
      dims.push_back((shape()[ndim() - s.n + i] - 1) * s.stride[i] - s.pads[at] - s.pads[at + 1] + s.dilation[i] * (s.k[i] - 1) + 1);
    }
  }
  const int64_t plane = detail::prod(dims) / std::max<int64_t>(rows, 1), n_in = numel() / std::max<int64_t>(rows, 1);
  const Tensor base = zeros({rows, plane}, {.dtype = dtype(), .buffer = false});
  return base.scatter(1, indices.reshape({rows, n_in}).cast(DType::Int32), reshape({rows, n_in})).reshape(dims);
}

}  // namespace whit
