// New tensors from sizes and numbers.
#include <cmath>

#include "ir/eval.h"
#include "schedule/multi.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

UOp lanes(int64_t n) { return UOp::make(Op::Lanes, DType::WeakInt, {}, Arg(n)); }

void check_sizes(const char* op, const IntList& shape) {
  for (size_t i = 0; i < shape.size(); ++i) WHIT_USER(shape.at(i).min() >= 0, Value, "[{}] negative size in shape {}", op, shape);
}

}  // namespace

TensorOptions detail::like(const char* op, const Tensor& x, const TensorOptions& o) {
  WHIT_USER(!o.device || x.devices().size() <= 1, Runtime, "[{}] a device is given, but the tensor is on {}", op, *x.device());
  return {.device = o.device ? o.device : home_of(x), .dtype = o.dtype.value_or(x.dtype()), .buffer = o.buffer};
}

Tensor Tensor::empty(const IntList& shape, const TensorOptions& o) {
  check_sizes("empty", shape);
  const std::string dev = canonical_name(o.device.value_or(""));
  return fresh_tensor(o.dtype.value_or(default_float()), shape.shape(), dev);
}

static Tensor filled(const IntList& shape, const Tensor& fill_value, const TensorOptions& o, int64_t axis) {
  check_sizes("full", shape);
  WHIT_USER(fill_value.numel() == 1, Value, "[full] the fill value has shape {}; expected one element", fill_value.shape());
  const UOp v = shaped(cast_value(fill_value.uop(), o.dtype.value_or(fill_value.dtype())), Dims());
  const UOp all = broadcast_scalar(v, shape.shape());
  if (!o.buffer) return wrap(all);
  return stored(all, canonical_name(o.device.value_or("")), axis);
}

Tensor Tensor::full(const IntList& shape, const Tensor& fill_value, const TensorOptions& o) { return filled(shape, fill_value, o, -1); }
Tensor Tensor::zeros(const IntList& shape, const TensorOptions& o) { return full(shape, 0.0, o); }
Tensor Tensor::ones(const IntList& shape, const TensorOptions& o) { return full(shape, 1.0, o); }
Tensor Tensor::empty_like(const TensorOptions& o) const {
  const TensorOptions all = like("empty_like", *this, o);
  return fresh_tensor(*all.dtype, shape(), canonical_name(all.device.value_or("")), shard_axis(uop()));
}
Tensor Tensor::full_like(const Tensor& fill_value, const TensorOptions& o) const {
  TensorOptions all = like("full_like", *this, o);
  if (is_weak(*all.dtype) || (!device() && !o.device)) all.buffer = false;
  return filled(shape(), fill_value, all, shard_axis(uop()));
}
Tensor Tensor::zeros_like(const TensorOptions& o) const { return full_like(0, o); }
Tensor Tensor::ones_like(const TensorOptions& o) const { return full_like(1, o); }
Tensor Tensor::const_like(const Tensor& v, std::optional<DType> dt) const {
  return full(shape(), v, {.dtype = dt.value_or(dtype()), .buffer = false});
}

Tensor Tensor::arange(int64_t start, int64_t stop, int64_t step, std::optional<DType> dtype) {
  WHIT_USER(step != 0, Value, "[arange] the step is 0; expected a positive or negative one");
  if (dtype && is_float(*dtype)) return arange_float(static_cast<double>(start), static_cast<double>(stop), static_cast<double>(step), dtype);
  const __int128 span = static_cast<__int128>(stop) - start;
  const __int128 wide = (span + step + (step > 0 ? -1 : 1)) / step;
  const int64_t n = span == 0 || (span > 0) != (step > 0) ? 0 : static_cast<int64_t>(wide);
  DType dt = dtype.value_or(default_int());
  if (n > 0) {
    const int64_t last = static_cast<int64_t>(start + static_cast<__int128>(n - 1) * step);
    const int64_t low = std::min(start, last), high = std::max(start, last);
    if (!dtype && (low < int_min(dt) || high > int_max(dt))) dt = DType::Int64;
    WHIT_USER(low >= int_min(dt) && high <= int_max(dt), Overflow, "[arange] {} .. {} does not fit {}", start, last, dt);
  }
  if (n == 0) return wrap(broadcast_scalar(whit::constant(dt, 0), Dims{0}));
  UOp v = lanes(n);
  if (step != 1) v = alu(Op::Mul, {v, idx(step)});
  if (start != 0) v = alu(Op::Add, {v, idx(start)});
  return wrap(cast_value(v, dt));
}

Tensor Tensor::arange(const UOp& stop, std::optional<DType> dtype) {
  const Sint n(stop);
  WHIT_USER(n.min() >= 0, Value, "[arange] to {}, which may be {}; expected none below 0", n, n.min());
  return sized(arange(0, n.max(), 1, dtype), Sints{n});
}

Tensor Tensor::arange_float(double start, double stop, double step, std::optional<DType> dtype) {
  WHIT_USER(step != 0, Value, "[arange] the step is 0; expected a positive or negative one");
  const DType dt = dtype.value_or(default_float());
  if (!is_float(dt)) return arange_float(start, stop, step, DType::Float64).cast(dt);
  const double count = std::ceil((stop - start) / step);
  const int64_t n = count > 0 ? static_cast<int64_t>(count) : 0;
  if (n == 0) return wrap(broadcast_scalar(whit::constant(dt, 0.0), Dims{0}));
  const DType work = is_weak(dt) || dt == DType::Float64 ? dt : DType::Float32;
  Tensor v = wrap(whit::cast(lanes(n), work));
  if (step != 1) v = v * constant(step, work);
  if (start != 0) v = v + constant(start, work);
  return v.cast(dt);
}

Tensor Tensor::linspace(double start, double stop, int64_t steps, std::optional<DType> dtype) {
  const DType dt = dtype.value_or(default_float());
  WHIT_USER(steps >= 0, Value, "[linspace] {} steps; expected none below 0", steps);
  WHIT_USER(dt != DType::Bool, Value, "[linspace] a bool result; expected a number dtype");
  if (steps == 0) return wrap(broadcast_scalar(whit::constant(dt, 0), Dims{0}));
  if (steps == 1) return wrap(broadcast_scalar(whit::constant(dt, start), Dims{1}));
  const DType work = dt == DType::Float64 || !is_float(dt) ? DType::Float64 : DType::Float32;
  const Tensor i = wrap(whit::cast(lanes(steps), work));
  return (i * constant((stop - start) / static_cast<double>(steps - 1), work) + constant(start, work)).cast(dt);
}

Tensor Tensor::eye(int64_t n, std::optional<int64_t> m, std::optional<DType> dtype) {
  const int64_t cols = m.value_or(n);
  WHIT_USER(n >= 0 && cols >= 0, Value, "[eye] negative size ({}, {})", n, cols);
  const DType dt = dtype.value_or(default_float());
  if (n == 0 || cols == 0) return wrap(broadcast_scalar(whit::constant(dt, 0), Dims{n, cols}));
  const Tensor r = wrap(lanes(n)).unsqueeze(1), c = wrap(lanes(cols)).unsqueeze(0);
  return r.eq(c).cast(dt);
}

Tensor Tensor::one_hot(int64_t num_classes) const {
  WHIT_USER(num_classes >= 0, Value, "[one_hot] {} classes; expected none below 0", num_classes);
  const int64_t axis = static_cast<int64_t>(ndim());
  return one_hot_along("one_hot", unsqueeze(axis), num_classes, axis).where(1, 0);
}

Tensor detail::one_hot_along(const char* op, const Tensor& index, int64_t n, int64_t dim) {
  WHIT_USER(!is_float(index.dtype()), Runtime, "[{}] {} classes; expected integers", op, index.dtype());
  const DType dt = index.dtype() == DType::Bool ? default_int() : index.dtype();
  return index.cast(dt).eq(wrap(shaped(cast(lanes(n), dt), along(index.ndim(), static_cast<size_t>(dim), n))));
}

}  // namespace whit
