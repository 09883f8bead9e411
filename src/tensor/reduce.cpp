// Reductions and what is made of them: statistics, softmax, cumulative operations.
#include <algorithm>
#include <bit>

#include "ir/eval.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

// A reduction; one over no elements is the monoid's identity.
Tensor fold(const Tensor& x, std::string_view monoid, std::span<const int64_t> axes, bool keepdim) {
  if (x.numel() == 0) {
    const UOp identity = constant_of(monoid_identity(monoid, x.dtype()));
    const Shape dims = reduced_dims(x.shape(), axes, keepdim);
    const Tensor value = wrap(broadcast_scalar(identity, dims));
    if (!is_float(x.dtype()) || !x.device()) return value;
    // A zero that depends on x keeps the path of the (empty) gradient.
    const int64_t none[] = {0}, one_more[] = {0, 1};
    return value + wrap(shaped(pad(shaped(x.uop(), none), one_more), {}));
  }
  return reduce_tensor(whole_axes(x, axes, constant_of(monoid_identity(monoid, x.dtype()))), monoid, axes, keepdim);
}

// How many elements are joined into one, less `correction`, none below 0.
Tensor count_of(const Shape& s, std::span<const int64_t> axes, DType dt, double correction = 0) {
  const Sint n = product(s, axes);
  if (!n.is_symbolic()) return Tensor::constant(std::max(static_cast<double>(n.max()) - correction, 0.0), dt);
  const Tensor count = wrap(cast(n.uop(), dt));
  return correction == 0 ? count : (count - correction).maximum(0);
}

}  // namespace

Tensor detail::lane_index(const Tensor& x, int64_t axis, DType dt) {
  const auto a = static_cast<size_t>(axis);
  const Sint n = size_of(x.shape(), a);
  Sints sizes(x.ndim(), 1);
  sizes[a] = n;
  return sized(Tensor::arange(0, n.max(), 1, dt).reshape(along(x.ndim(), a, n.max())), sizes);
}

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
Tensor Tensor::max(const Axes& axis, bool keepdim) const { return fold(strong(*this), "max", resolve_axes("max", axis, shape()), keepdim); }
Tensor Tensor::min(const Axes& axis, bool keepdim) const { return fold(strong(*this), "min", resolve_axes("min", axis, shape()), keepdim); }
Tensor Tensor::any(const Axes& axis, bool keepdim) const { return fold(cast(DType::Bool), "max", resolve_axes("any", axis, shape()), keepdim); }
Tensor Tensor::all(const Axes& axis, bool keepdim) const { return fold(cast(DType::Bool), "min", resolve_axes("all", axis, shape()), keepdim); }

Tensor Tensor::mean(const Axes& axis, bool keepdim) const {
  const Dims axes = resolve_axes("mean", axis, shape());
  const Tensor x = strong(*this);
  const DType out = is_float(x.dtype()) ? x.dtype() : DType::Float32;
  const DType acc = sum_dtype(out);
  const Tensor s = fold(x.cast(acc), "add", axes, keepdim);
  return (s / count_of(shape(), axes, acc)).cast(out);
}

std::pair<Tensor, Tensor> Tensor::var_mean(const Axes& axis, bool keepdim, double correction) const {
  const Dims axes = resolve_axes("var", axis, shape());
  const Tensor x = to_mean_dtype(strong(*this));
  const DType out = x.dtype();
  const Tensor wide = x.cast(sum_dtype(out));
  const Tensor m = wide.mean(IntList(axes), true);
  const Tensor d = wide - m;
  const Tensor v = fold(d * d, "add", axes, keepdim) / count_of(shape(), axes, wide.dtype(), correction);
  return {v.cast(out), (keepdim ? m : m.reshape(reduced_dims(shape(), axes, false))).cast(out)};
}
Tensor Tensor::var(const Axes& axis, bool keepdim, double correction) const { return var_mean(axis, keepdim, correction).first; }
Tensor Tensor::std(const Axes& axis, bool keepdim, double correction) const { return var(axis, keepdim, correction).sqrt(); }
std::pair<Tensor, Tensor> Tensor::std_mean(const Axes& axis, bool keepdim, double correction) const {
  const auto [v, m] = var_mean(axis, keepdim, correction);
  return {v.sqrt(), m};
}

// The first index of the largest or smallest element; the first NaN wins over all.
static Tensor arg_extreme(const char* op, const Tensor& self, std::optional<int64_t> axis, bool keepdim, bool largest) {
  const Tensor all = strong(self);
  const Tensor x = axis ? all : all.flatten();
  const int64_t a = resolve_axis(op, axis.value_or(0), x.shape());
  if (x.ndim() == 0) return Tensor::zeros({}, {.dtype = DType::Int32, .buffer = false});
  const int64_t n = x.shape()[static_cast<size_t>(a)];
  const Tensor best = largest ? x.max(a, true) : x.min(a, true);
  Tensor hit = x.eq(best);
  if (is_float(x.dtype())) hit = hit | x.isnan();
  const Tensor index = hit.where(lane_index(x, a), Tensor::constant_int(n, DType::Int32)).min(a, keepdim);
  return axis || !keepdim ? index : index.reshape(Dims(self.ndim(), 1));
}
Tensor Tensor::argmax(std::optional<int64_t> axis, bool keepdim) const { return arg_extreme("argmax", *this, axis, keepdim, true); }
Tensor Tensor::argmin(std::optional<int64_t> axis, bool keepdim) const { return arg_extreme("argmin", *this, axis, keepdim, false); }

Tensor Tensor::normalize(double p, int64_t dim, double eps) const {
  const Tensor x = to_mean_dtype(*this);
  const Tensor norm = p == 0   ? x.ne(0).sum(dim, true).cast(x.dtype())
                      : p == 2 ? (x * x).sum(dim, true).sqrt()
                               : x.abs().pow(p).sum(dim, true).pow(1 / p);
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

static Tensor softmax_of(const char* op, const Tensor& self, int64_t axis, std::optional<DType> dt, bool log) {
  const int64_t a = resolve_axis(op, axis, self.shape());
  const Tensor f = to_float_dtype(strong(self)).cast(dt.value_or(to_float_dtype(strong(self)).dtype()));
  const Tensor x = f.cast(wide_float(f.dtype()));
  const Axes axes = self.ndim() ? Axes(a) : Axes(std::initializer_list<int64_t>{});
  const Tensor shifted = x - x.max(axes, true).detach(), e = shifted.exp(), sum = e.sum(axes, true);
  return (log ? shifted - sum.log() : e * sum.reciprocal()).cast(f.dtype());
}
Tensor Tensor::softmax(int64_t axis, std::optional<DType> dt) const { return softmax_of("softmax", *this, axis, dt, false); }
Tensor Tensor::log_softmax(int64_t axis, std::optional<DType> dt) const { return softmax_of("log_softmax", *this, axis, dt, true); }
Tensor Tensor::softmin(int64_t axis, std::optional<DType> dt) const { return neg().softmax(axis, dt); }

// ---- cumulative

namespace {

constexpr int64_t kBlock = 64, kOneKernel = 512;
constexpr std::string_view kLogAdd = "logaddexp";  // folds as the monoids do

Tensor identity_of(std::string_view monoid, DType dt) { return wrap(constant_of(monoid_identity(monoid == kLogAdd ? "max" : monoid, dt))); }

// The fold of the first 1, 2 .. n elements of the last axis, as one reduction over windows of [.., n, n].
Tensor fold_prefixes(const Tensor& x, std::string_view monoid) {
  const int64_t n = x.shape().back(), axes[] = {static_cast<int64_t>(x.ndim())};
  const Tensor inside = Tensor::arange(0, 2 * n - 1, 1).ge(n - 1);
  Tensor padded = x.pad({n - 1, 0});
  if (monoid != "add") padded = inside.where(padded, identity_of(monoid, x.dtype()));
  const Tensor w = wrap(window(padded.uop(), axes[0] - 1, n, 1, 1));
  return monoid == kLogAdd ? w.logsumexp(-1) : reduce_tensor(w, monoid, axes, false);
}

Tensor scan_last(const Tensor& x, std::string_view monoid) {
  const int64_t n = x.shape().back();
  if (n <= kOneKernel) return fold_prefixes(x, monoid);
  // Blocks first, then the totals of the blocks before.
  const int64_t n_blocks = (n + kBlock - 1) / kBlock;
  const Tensor identity = identity_of(monoid, x.dtype());
  const Tensor padded = Tensor::arange(0, n_blocks * kBlock, 1).lt(n).where(x.pad({0, n_blocks * kBlock - n}), identity);
  Dims dims(x.shape().begin(), x.shape().end());
  dims.back() = n_blocks;
  dims.push_back(kBlock);
  const Tensor inner = fold_prefixes(padded.reshape(dims), monoid).contiguous();
  const Tensor totals = scan_last(inner.split({kBlock - 1, 1}, -1)[1].squeeze(-1), monoid);
  const Tensor before = Tensor::arange(0, n_blocks, 1).lt(1).where(identity, totals.pad({1, -1})).unsqueeze(-1);
  const Tensor joined = monoid == kLogAdd ? inner.logaddexp(before) : by_monoid(monoid, inner, before);
  dims.pop_back();
  dims.back() = n_blocks * kBlock;
  return joined.reshape(dims).split({n, n_blocks * kBlock - n}, -1)[0];
}

Tensor scan(const char* op, const Tensor& x, int64_t axis, std::string_view monoid) {
  const int64_t a = resolve_axis(op, axis, x.shape());
  if (x.ndim() == 0 || x.numel() == 0) return x;
  const Tensor all = x.shape().is_symbolic() ? wrap(whole(x.uop())) : x;
  return sized(scan_last(all.transpose(a, -1), monoid).transpose(a, -1), sizes_of(x.shape()));
}

std::pair<Tensor, Tensor> scan_with_index(const char* op, const Tensor& self, int64_t axis, bool largest) {
  const Tensor x = strong(self);
  const Tensor v = scan(op, x, axis, largest ? "max" : "min");
  if (x.ndim() == 0 || x.numel() == 0) return {v, v.const_like(0, DType::Int32)};
  // The last place where the extreme changed.
  const int64_t a = resolve_axis(op, axis, x.shape());
  const Tensor t = x.transpose(a, -1), before = v.transpose(a, -1).pad({1, -1});
  const Tensor at = Tensor::arange(0, t.shape().back(), 1, DType::Int32);
  Tensor changed = at.eq(0) | (largest ? t.gt(before) : t.lt(before));
  if (is_float(x.dtype())) changed = changed | (t.isnan() & before.isnan().logical_not());
  return {v, scan_last(changed.where(at, Tensor::constant_int(0, DType::Int32)), "max").transpose(a, -1)};
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
  return scan("logcumsumexp", x.cast(wide_float(x.dtype())), axis, kLogAdd).cast(x.dtype());
}

// ---- order

namespace {

constexpr int64_t kSortByRank = 2048;

// out[row, place[row, i]] = values[row, i]
Tensor put(const Tensor& place, const Tensor& values) {
  const int64_t rows = place.shape()[0], n = place.shape()[1];
  const DType dt = rows * n <= INT32_MAX ? DType::Int32 : DType::Int64;
  const Tensor at = (place.cast(dt) + Tensor::arange(0, rows, 1, dt).unsqueeze(1) * n).flatten();
  const Tensor none = wrap(broadcast_scalar(constant(values.dtype(), 0), Dims{rows * n}));
  const Tensor flat = values.expand({rows, n}).flatten();
  return wrap(scatter(none.uop(), at.uop(), flat.uop(), "set")).reshape({rows, n}).contiguous();
}

// Which element comes to each place of a row: equal ones keep their order, NaN comes last.
Tensor order_of(const Tensor& rows, bool descending) {  // [row, n]
  const int64_t n = rows.shape()[1];
  const Tensor numbers = Tensor::arange(0, n, 1, DType::Int32).unsqueeze(0);
  if (n <= kSortByRank) {
    // The rank of an element is how many come before it.
    const Tensor x = rows.unsqueeze(-1), y = rows.unsqueeze(-2);  // [row, i, 1], [row, 1, j]
    Tensor before = descending ? y.gt(x) : y.lt(x), same = y.eq(x);
    if (is_float(rows.dtype())) {
      before = before | (x.isnan() & y.isnan().logical_not());
      same = same | (x.isnan() & y.isnan());
    }
    const Tensor earlier = numbers.lt(numbers.transpose(0, 1));
    return put((before | (same & earlier)).sum(-1).contiguous(), numbers);
  }
  // By the bits of an unsigned key, from the lowest: those with a 0 first.
  constexpr DType kKeys[] = {DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64};
  const DType dt = rows.dtype(), kind = kKeys[std::bit_width(static_cast<unsigned>(n_bytes(dt))) - 1];
  const int64_t n_bits = dt == DType::Bool ? 1 : 8 * n_bytes(dt);
  const auto all = [&](uint64_t v) { return Tensor::constant_int(static_cast<int64_t>(v), kind); };
  const Tensor low = all(0), top = all(uint64_t{1} << (8 * n_bytes(dt) - 1)), ones = all(~uint64_t{0});
  Tensor key = dt == DType::Bool ? rows.cast(kind) : is_float(dt) ? rows.eq(0).where(0, rows).bitcast(kind) : rows;
  if (is_float(dt)) key = (key & top).ne(low).where(key ^ ones, key ^ top);
  if (is_int(dt) && !is_unsigned(dt)) key = rows.bitcast(kind) ^ top;
  if (descending) key = key ^ (dt == DType::Bool ? all(1) : ones);
  if (is_float(dt)) key = rows.isnan().where(ones, key);
  key = key.contiguous();
  Tensor order = numbers.expand(rows.shape());
  for (int64_t i = 0; i < n_bits; ++i) {
    const Tensor bit = (key & all(1)).cast(DType::Int32).contiguous(), up_to = bit.cumsum(1).contiguous();
    const Tensor zeros_before = numbers - up_to + bit, n_zeros = Tensor(n) - up_to.split({n - 1, 1}, 1)[1];
    const Tensor place = bit.ne(0).where(n_zeros + up_to - 1, zeros_before).contiguous();
    key = put(place, key >> all(1));
    order = put(place, order);
  }
  return order;
}

}  // namespace

std::pair<Tensor, Tensor> Tensor::sort(int64_t dim, bool descending) const {
  const int64_t a = resolve_axis("sort", dim, shape());
  if (ndim() == 0 || numel() == 0) return {*this, const_like(0, DType::Int32)};
  const Tensor t = transpose(a, -1);
  const Tensor index = order_of(strong(t).reshape({-1, t.shape().back()}), descending).reshape(t.shape());
  return {t.gather(-1, index).transpose(a, -1), index.transpose(a, -1)};
}
Tensor Tensor::argsort(int64_t dim, bool descending) const { return sort(dim, descending).second; }

std::pair<Tensor, Tensor> Tensor::topk(int64_t k, int64_t dim, bool largest, bool sorted) const {
  WHIT_USER(sorted, NotImplemented, "[topk] sorted=False; only sorted results exist");
  const int64_t a = resolve_axis("topk", dim, shape());
  const int64_t n = ndim() ? shape()[static_cast<size_t>(a)] : 1;
  WHIT_USER(0 <= k && k <= n, Value, "[topk] k is {}, axis {} of shape {} has {}", k, a, shape(), n);
  const auto [v, i] = sort(dim, largest);
  if (ndim() == 0) return {v, i};
  return {v.split({k, n - k}, a)[0], i.split({k, n - k}, a)[0]};
}

}  // namespace whit
