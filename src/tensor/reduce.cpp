// Reductions and what is made of them: statistics, softmax, cumulative operations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/eval.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

Tensor strong(const Tensor& x) { return x.cast(strong_dtype(x.dtype(), default_int(), default_float())); }

Dims reduced_dims(const Shape& s, std::span<const int64_t> axes, bool keepdim) {
  Dims out;
  for (size_t i = 0; i < s.size(); ++i) {
    const bool gone = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!gone) out.push_back(s[i]);
    if (gone && keepdim) out.push_back(1);
  }
  return out;
}

// A reduction; one over no elements is the monoid's identity.
Tensor fold(const Tensor& x, std::string_view monoid, std::span<const int64_t> axes, bool keepdim) {
  if (x.numel() == 0) {
    const UOp identity = constant_of(monoid_identity(monoid, x.dtype()));
    const Dims dims = reduced_dims(x.shape(), axes, keepdim);
    const Tensor value = wrap(broadcast_scalar(identity, dims));
    if (!is_float(x.dtype()) || !x.device()) return value;
    // A zero that depends on x keeps the path of the (empty) gradient.
    Dims pads;
    for (const int64_t d : x.shape()) {
      pads.push_back(0);
      pads.push_back(d == 0 ? 1 : 0);
    }
    Dims all;
    for (size_t i = 0; i < x.ndim(); ++i) all.push_back(static_cast<int64_t>(i));
    return value + reduce_tensor(wrap(pad(x.uop(), pads)), "add", all, false);
  }
  return reduce_tensor(x, monoid, axes, keepdim);
}

int64_t count_of(const Shape& s, std::span<const int64_t> axes) {
  int64_t n = 1;
  for (const int64_t a : axes) n *= s[static_cast<size_t>(a)];
  return n;
}

DType wide_float(DType dt) { return is_weak(dt) ? dt : least_upper_dtype(dt, DType::Float32); }

Tensor lane_index(const Tensor& x, int64_t axis, DType dt) {
  Dims dims(x.ndim(), 1);
  const int64_t n = x.shape()[static_cast<size_t>(axis)];
  dims[static_cast<size_t>(axis)] = n;
  return Tensor::arange(0, n, 1, dt).reshape(dims);
}

}  // namespace

Tensor Tensor::sum(const Axes& axis, bool keepdim, std::optional<DType> dt) const {
  const Dims axes = resolve_axes("sum", axis, shape());
  const Tensor x = strong(*this);
  const Tensor r = fold(x.cast(dt.value_or(sum_dtype(x.dtype()))), "add", axes, keepdim);
  return !dt && is_float(x.dtype()) ? r.cast(x.dtype()) : r;
}
Tensor Tensor::prod(const Axes& axis, bool keepdim, std::optional<DType> dt) const {
  const Dims axes = resolve_axes("prod", axis, shape());
  const Tensor x = strong(*this);
  return fold(x.cast(dt.value_or(x.dtype())), "mul", axes, keepdim);
}
Tensor Tensor::max(const Axes& axis, bool keepdim) const {
  return fold(strong(*this), "max", resolve_axes("max", axis, shape()), keepdim);
}
Tensor Tensor::min(const Axes& axis, bool keepdim) const {
  return fold(strong(*this), "min", resolve_axes("min", axis, shape()), keepdim);
}
Tensor Tensor::any(const Axes& axis, bool keepdim) const {
  return fold(cast(DType::Bool), "max", resolve_axes("any", axis, shape()), keepdim);
}
Tensor Tensor::all(const Axes& axis, bool keepdim) const {
  return fold(cast(DType::Bool), "min", resolve_axes("all", axis, shape()), keepdim);
}

Tensor Tensor::mean(const Axes& axis, bool keepdim) const {
  const Dims axes = resolve_axes("mean", axis, shape());
  const Tensor x = strong(*this);
  const DType out = is_float(x.dtype()) ? x.dtype() : DType::Float32;
  const DType acc = sum_dtype(out);
  const Tensor s = fold(x.cast(acc), "add", axes, keepdim);
  return (s / constant(static_cast<double>(count_of(shape(), axes)), acc)).cast(out);
}

std::pair<Tensor, Tensor> Tensor::var_mean(const Axes& axis, bool keepdim, double correction) const {
  const Dims axes = resolve_axes("var", axis, shape());
  const Tensor x = to_float_dtype(strong(*this));
  const DType out = x.dtype();
  const Tensor wide = x.cast(sum_dtype(out));
  const double n = static_cast<double>(count_of(shape(), axes));
  const Tensor m = wide.mean(IntList(axes), true);
  const Tensor d = wide - m;
  const Tensor v = fold(d * d, "add", axes, keepdim) / constant(std::max(n - correction, 0.0), wide.dtype());
  return {v.cast(out), (keepdim ? m : m.reshape(reduced_dims(shape(), axes, false))).cast(out)};
}
Tensor Tensor::var(const Axes& axis, bool keepdim, double correction) const {
  return var_mean(axis, keepdim, correction).first;
}
Tensor Tensor::std(const Axes& axis, bool keepdim, double correction) const {
  return var(axis, keepdim, correction).sqrt();
}
std::pair<Tensor, Tensor> Tensor::std_mean(const Axes& axis, bool keepdim, double correction) const {
  const auto [v, m] = var_mean(axis, keepdim, correction);
  return {v.sqrt(), m};
}

namespace {
// The first index of the largest or smallest element; the first NaN wins over all.
Tensor arg_extreme(const char* op, const Tensor& self, std::optional<int64_t> axis, bool keepdim, bool largest) {
  const Tensor all = strong(self);
  const Tensor x = axis ? all : all.flatten();
  const int64_t a = resolve_axis(op, axis.value_or(0), x.shape());
  if (x.ndim() == 0) return Tensor::zeros({}, {.dtype = DType::Int32, .buffer = false});
  const int64_t n = x.shape()[static_cast<size_t>(a)];
  const Tensor best = largest ? x.max(a, true) : x.min(a, true);
  Tensor hit = x.eq(best);
  if (is_float(x.dtype())) hit = hit | x.isnan();
  const Tensor index = hit.where(lane_index(x, a, DType::Int32), Tensor::constant_int(n, DType::Int32)).min(a, keepdim);
  if (axis || !keepdim) return index;
  return index.reshape(Dims(self.ndim(), 1));
}
}  // namespace
Tensor Tensor::argmax(std::optional<int64_t> axis, bool keepdim) const {
  return arg_extreme("argmax", *this, axis, keepdim, true);
}
Tensor Tensor::argmin(std::optional<int64_t> axis, bool keepdim) const {
  return arg_extreme("argmin", *this, axis, keepdim, false);
}

Tensor Tensor::normalize(double p, int64_t dim, double eps) const {
  const Tensor x = to_float_dtype(*this);
  if (p == 0) {
    const Tensor n = x.ne(0).sum(dim, true).cast(x.dtype());
    return x / n.maximum(eps);
  }
  const Tensor norm = p == 2 ? (x * x).sum(dim, true).sqrt() : x.abs().pow(p).sum(dim, true).pow(1 / p);
  return x / norm.maximum(eps);
}

// ---- softmax family

Tensor Tensor::logsumexp(const Axes& axis, bool keepdim) const {
  const Dims axes = resolve_axes("logsumexp", axis, shape());
  const Tensor f = to_float_dtype(strong(*this));
  const Tensor x = f.cast(wide_float(f.dtype()));
  if (numel() == 0) return fold(x, "max", axes, keepdim).cast(f.dtype());
  const Tensor m = x.max(IntList(axes), true).detach();
  const Tensor safe = m.isinf().where(0.0, m);
  const Tensor s = fold((x - safe).exp(), "add", axes, true).log() + safe;
  return (keepdim ? s : s.reshape(reduced_dims(shape(), axes, false))).cast(f.dtype());
}

namespace {
struct SoftmaxParts {
  Tensor shifted, exps, sum;
  DType out;
};
SoftmaxParts softmax_parts(const char* op, const Tensor& self, int64_t axis, std::optional<DType> dt) {
  const int64_t a = resolve_axis(op, axis, self.shape());
  const Tensor f = to_float_dtype(strong(self)).cast(dt.value_or(to_float_dtype(strong(self)).dtype()));
  const Tensor x = f.cast(wide_float(f.dtype()));
  const Axes axes = self.ndim() ? Axes(a) : Axes(std::initializer_list<int64_t>{});
  const Tensor shifted = x - x.max(axes, true).detach();
  const Tensor e = shifted.exp();
  return {shifted, e, e.sum(axes, true), f.dtype()};
}
}  // namespace
Tensor Tensor::softmax(int64_t axis, std::optional<DType> dt) const {
  const SoftmaxParts p = softmax_parts("softmax", *this, axis, dt);
  return (p.exps * p.sum.reciprocal()).cast(p.out);
}
Tensor Tensor::log_softmax(int64_t axis, std::optional<DType> dt) const {
  const SoftmaxParts p = softmax_parts("log_softmax", *this, axis, dt);
  return (p.shifted - p.sum.log()).cast(p.out);
}
Tensor Tensor::softmin(int64_t axis, std::optional<DType> dt) const { return neg().softmax(axis, dt); }

// ---- cumulative

namespace {

constexpr int64_t kBlock = 256;

// [.., n] -> [.., n, n]: for each position all elements up to it, the identity before the first.
Tensor prefixes(const Tensor& x, std::string_view monoid) {
  const int64_t n = x.shape().back();
  Tensor padded = x.pad({n - 1, 0});
  const Scalar id = monoid_identity(monoid, x.dtype());
  if (is_float(x.dtype()) ? id.f != 0 : id.i != 0) {
    const Tensor inside = Tensor::arange(0, 2 * n - 1, 1).ge(n - 1);
    padded = inside.where(padded, wrap(constant_of(id)));
  }
  return wrap(window(padded.uop(), static_cast<int64_t>(x.ndim()) - 1, n, 1, 1));
}

Tensor scan_last(const Tensor& x, std::string_view monoid) {
  const int64_t n = x.shape().back(), last = static_cast<int64_t>(x.ndim());
  if (n <= 2 * kBlock) {
    const int64_t axes[] = {last};
    return reduce_tensor(prefixes(x, monoid), monoid, axes, false);
  }
  // Blocks first, then the totals of the blocks before.
  const int64_t n_blocks = (n + kBlock - 1) / kBlock;
  const Scalar id = monoid_identity(monoid, x.dtype());
  const Tensor identity = wrap(constant_of(id));
  Tensor padded = x.pad({0, n_blocks * kBlock - n});
  padded = Tensor::arange(0, n_blocks * kBlock, 1).lt(n).where(padded, identity);
  Dims dims(x.shape().begin(), x.shape().end());
  dims.back() = n_blocks;
  dims.push_back(kBlock);
  const Tensor inner = scan_last(padded.reshape(dims), monoid).contiguous();
  const Tensor totals = scan_last(inner.split({kBlock - 1, 1}, -1)[1].squeeze(-1), monoid);
  const Tensor before = Tensor::arange(0, n_blocks, 1).lt(1).where(identity, totals.pad({1, -1})).unsqueeze(-1);
  const Tensor joined = monoid == "add"   ? inner + before
                        : monoid == "mul" ? inner * before
                        : monoid == "max" ? inner.maximum(before)
                                          : inner.minimum(before);
  dims.pop_back();
  dims.back() = n_blocks * kBlock;
  return joined.reshape(dims).split({n, n_blocks * kBlock - n}, -1)[0];
}

Tensor scan(const char* op, const Tensor& x, int64_t axis, std::string_view monoid) {
  const int64_t a = resolve_axis(op, axis, x.shape());
  if (x.ndim() == 0 || x.numel() == 0) return x;
  return scan_last(x.transpose(a, -1), monoid).transpose(a, -1);
}

std::pair<Tensor, Tensor> scan_with_index(const char* op, const Tensor& self, int64_t axis, bool largest) {
  const Tensor x = strong(self);
  const int64_t a = resolve_axis(op, axis, x.shape());
  if (x.ndim() == 0) return {x, Tensor::zeros({}, {.dtype = DType::Int32, .buffer = false})};
  const std::string_view monoid = largest ? "max" : "min";
  const Tensor t = x.transpose(a, -1);
  if (t.numel() == 0) return {x, x.cast(DType::Int32)};
  const Tensor v = scan_last(t, monoid);
  const int64_t n = t.shape().back();
  const Tensor w = prefixes(t, monoid);
  const Tensor at = Tensor::arange(0, n, 1).unsqueeze(1) + Tensor::arange(0, n, 1) - (n - 1);  // [position, window]
  Tensor hit = w.eq(v.unsqueeze(-1));
  if (is_float(x.dtype())) hit = hit | w.isnan();
  const Tensor index = (hit & at.ge(0)).where(at, Tensor::constant_int(n, at.dtype())).min(-1);
  return {v.transpose(a, -1), index.cast(DType::Int32).transpose(a, -1)};
}

}  // namespace

Tensor Tensor::cumsum(int64_t axis) const {
  const Tensor x = strong(*this);
  const Tensor r = scan("cumsum", x.cast(sum_dtype(x.dtype())), axis, "add");
  return is_float(x.dtype()) ? r.cast(x.dtype()) : r;
}
Tensor Tensor::cumprod(int64_t axis) const { return scan("cumprod", strong(*this), axis, "mul"); }
std::pair<Tensor, Tensor> Tensor::cummax(int64_t axis) const { return scan_with_index("cummax", *this, axis, true); }
std::pair<Tensor, Tensor> Tensor::cummin(int64_t axis) const { return scan_with_index("cummin", *this, axis, false); }
Tensor Tensor::logcumsumexp(int64_t axis) const {
  const Tensor x = to_float_dtype(strong(*this));
  const int64_t a = resolve_axis("logcumsumexp", axis, shape());
  if (ndim() == 0 || numel() == 0) return x;
  const Tensor w = prefixes(x.transpose(a, -1), "max");
  return w.logsumexp(-1).transpose(a, -1);
}

// ---- order

std::pair<Tensor, Tensor> Tensor::sort(int64_t dim, bool descending) const {
  const int64_t a = resolve_axis("sort", dim, shape());
  if (ndim() == 0) return {*this, zeros({}, {.dtype = DType::Int32, .buffer = false})};
  if (numel() == 0) return {*this, cast(DType::Int32)};
  // The rank of an element is how many come before it; equal ones keep their order, NaN comes last.
  const Tensor t = transpose(a, -1), x = t.unsqueeze(-1), y = t.unsqueeze(-2);  // [.., i, 1], [.., 1, j]
  const int64_t n = t.shape().back();
  const Tensor i = arange(0, n, 1).unsqueeze(1), j = arange(0, n, 1);
  Tensor before = descending ? y.gt(x) : y.lt(x), same = y.eq(x);
  if (is_float(dtype())) {
    before = before | (x.isnan() & y.isnan().logical_not());
    same = same | (x.isnan() & y.isnan());
  }
  const Tensor rank = (before | (same & j.lt(i))).sum(-1).contiguous();  // [.., i]
  // index[rank] = i, in every row
  const int64_t rows = t.numel() / n;
  const DType dt = t.numel() <= INT32_MAX ? DType::Int32 : DType::Int64;
  const Tensor offset = arange(0, rows, 1, dt).reshape({rows, 1}) * n;
  const Tensor place = (rank.reshape({rows, n}).cast(dt) + offset).flatten();
  const Tensor numbers = arange(0, n, 1, DType::Int32).expand({rows, n}).flatten();
  const Tensor none = full({rows * n}, 0, {.dtype = DType::Int32, .buffer = false});
  const Tensor at = wrap(UOp::make(Op::Scatter, DType::Int32, {none.uop(), place.uop(), numbers.uop()}, Arg("set")))
                        .reshape(t.shape());
  const Tensor index = at.contiguous();
  return {t.gather(-1, index).transpose(a, -1), index.transpose(a, -1)};
}
Tensor Tensor::argsort(int64_t dim, bool descending) const { return sort(dim, descending).second; }

std::pair<Tensor, Tensor> Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted) const {
  WHIT_USER(sorted, NotImplemented, "[topk] sorted=False; only sorted results exist");
  const int64_t a = resolve_axis("topk", dim, shape());
  const int64_t n = ndim() ? shape()[static_cast<size_t>(a)] : 1;
  WHIT_USER(0 <= k && k <= n, Value, "[topk] k is {}, axis {} of shape {} has {}", k, a, shape().str(), n);
  const auto [v, i] = sort(dim, !largest ? false : true);
  if (ndim() == 0) return {v, i};
  return {v.split({k, n - k}, a)[0], i.split({k, n - k}, a)[0]};
}

}  // namespace whit
