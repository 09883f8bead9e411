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

constexpr int64_t kBlock = 16, kOneKernel = 32;
constexpr std::string_view kLogAdd = "logaddexp";  // folds as the monoids do

Tensor identity_of(std::string_view monoid, DType dt) { return wrap(constant_of(monoid_identity(monoid == kLogAdd ? "max" : monoid, dt))); }

// The numbers 0, 1 .. along an axis of a tensor of `n_axes`.
Tensor numbers_along(int64_t n, int64_t axis, size_t n_axes) {
  Dims dims(n_axes, 1);
  dims[static_cast<size_t>(axis)] = n;
  return Tensor::arange(0, n, 1, DType::Int32).reshape(dims);
}

Tensor pad_axis(const Tensor& x, int64_t axis, int64_t before, int64_t after) {
  std::vector<AxisPair> pads(x.ndim());
  pads[static_cast<size_t>(axis)] = std::pair(before, after);
  return x.pad_axes(pads);
}

// The fold of the first 1, 2 .. n elements of an axis, as one reduction over windows of [.., n, n].
Tensor fold_prefixes(const Tensor& x, int64_t axis, std::string_view monoid) {
  const int64_t n = x.size(axis), axes[] = {static_cast<int64_t>(x.ndim())};
  Tensor padded = pad_axis(x, axis, n - 1, 0);
  if (monoid != "add") padded = numbers_along(2 * n - 1, axis, x.ndim()).ge(n - 1).where(padded, identity_of(monoid, x.dtype()));
  const Tensor w = wrap(window(padded.uop(), axis, n, 1, 1));
  return monoid == kLogAdd ? w.logsumexp(-1) : reduce_tensor(w, monoid, axes, false);
}

Tensor scan_axis(const Tensor& x, int64_t axis, std::string_view monoid) {
  const int64_t n = x.size(axis), n_blocks = (n + kBlock - 1) / kBlock;
  if (n <= kOneKernel) return fold_prefixes(x, axis, monoid);
  // Blocks first, then the totals of the blocks before.
  const Tensor identity = identity_of(monoid, x.dtype());
  const int64_t n_more = n_blocks * kBlock - n;
  const Tensor padded = n_more == 0 ? x : numbers_along(n + n_more, axis, x.ndim()).lt(n).where(pad_axis(x, axis, 0, n_more), identity);
  const Tensor inner = fold_prefixes(padded.unflatten(axis, {n_blocks, kBlock}), axis + 1, monoid).contiguous();
  const Tensor totals = scan_axis(inner.split({kBlock - 1, 1}, axis + 1)[1].squeeze(axis + 1).contiguous(), axis, monoid).contiguous();
  const Tensor before = numbers_along(n_blocks, axis, x.ndim()).lt(1).where(identity, pad_axis(totals, axis, 1, -1)).unsqueeze(axis + 1);
  const Tensor joined = monoid == kLogAdd ? inner.logaddexp(before) : by_monoid(monoid, inner, before);
  return joined.flatten(axis, axis + 1).split({n, n_more}, axis)[0];
}

Tensor scan(const char* op, const Tensor& x, int64_t axis, std::string_view monoid) {
  const int64_t a = resolve_axis(op, axis, x.shape());
  if (x.ndim() == 0 || x.numel() == 0) return x;
  return sized(scan_axis(x.shape().is_symbolic() ? wrap(whole(x.uop())) : x, a, monoid), sizes_of(x.shape()));
}

std::pair<Tensor, Tensor> scan_with_index(const char* op, const Tensor& self, int64_t axis, bool largest) {
  const Tensor x = strong(self);
  const Tensor v = scan(op, x, axis, largest ? "max" : "min");
  if (x.ndim() == 0 || x.numel() == 0) return {v, v.const_like(0, DType::Int32)};
  // The last place where the extreme changed.
  const int64_t a = resolve_axis(op, axis, x.shape());
  const Tensor before = pad_axis(v, a, 1, -1), at = numbers_along(x.size(a), a, x.ndim());
  Tensor changed = at.eq(0) | (largest ? x.gt(before) : x.lt(before));
  if (is_float(x.dtype())) changed = changed | (x.isnan() & before.isnan().logical_not());
  return {v, scan_axis(changed.where(at, Tensor::constant_int(0, DType::Int32)), a, "max")};
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

constexpr int64_t kSortByRank = 2048, kLeastToSelect = 256;

// out[row, place[row, i]] = values[row, i] for places below `width`
Tensor put(const Tensor& place, const Tensor& values, int64_t width) {
  const int64_t rows = place.shape()[0], n = place.shape()[1];
  const DType dt = rows * n <= INT32_MAX ? DType::Int32 : DType::Int64;
  Tensor at = place.cast(dt) + Tensor::arange(0, rows, 1, dt).unsqueeze(1) * width;
  if (width < n) at = place.lt(width).where(at, -1);
  const Tensor none = wrap(broadcast_scalar(constant(values.dtype(), 0), Dims{rows * width}));
  const Tensor flat = values.expand({rows, n}).flatten();
  return wrap(scatter(none.uop(), at.flatten().uop(), flat.uop(), "set")).reshape({rows, width}).contiguous();
}

DType key_of(DType dt) {
  constexpr DType kKeys[] = {DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64};
  return kKeys[std::bit_width(static_cast<unsigned>(n_bytes(dt))) - 1];
}
Tensor key_number(uint64_t v, const Tensor& rows) { return Tensor::constant_int(static_cast<int64_t>(v), key_of(rows.dtype())); }
int64_t key_bits(const Tensor& rows) { return rows.dtype() == DType::Bool ? 1 : 8 * n_bytes(rows.dtype()); }

// An unsigned number for each element: the smaller, the earlier it comes. NaN comes last.
Tensor keys_of(const Tensor& rows, bool descending) {
  const DType dt = rows.dtype(), kind = key_of(dt);
  const Tensor top = key_number(uint64_t{1} << (8 * n_bytes(dt) - 1), rows), ones = key_number(~uint64_t{0}, rows);
  Tensor key = dt == DType::Bool ? rows.cast(kind) : is_float(dt) ? rows.eq(0).where(0, rows).bitcast(kind) : rows;
  if (is_float(dt)) key = (key & top).ne(key_number(0, rows)).where(key ^ ones, key ^ top);
  if (is_int(dt) && !is_unsigned(dt)) key = rows.bitcast(kind) ^ top;
  if (descending) key = key ^ (dt == DType::Bool ? key_number(1, rows) : ones);
  if (is_float(dt)) key = rows.isnan().where(ones, key);
  return key.contiguous();
}

// Which element comes to each place of a row: equal ones keep their order, NaN comes last.
Tensor order_of(const Tensor& rows, bool descending) {  // [row, n]
  const int64_t n = rows.shape()[1];
  const Tensor numbers = Tensor::arange(0, n, 1, DType::Int32).unsqueeze(0);
  if (n <= kSortByRank) {
    // The rank of an element is how many come before it.
    const Tensor key = keys_of(rows, descending), x = key.unsqueeze(-1), y = key.unsqueeze(-2);  // [row, i, 1], [row, 1, j]
    const Tensor earlier = numbers.lt(numbers.transpose(0, 1));
    return put((y.lt(x) | (y.eq(x) & earlier)).sum(-1).contiguous(), numbers, n);
  }
  // By the bits of the key, from the lowest: those with a 0 first.
  Tensor key = keys_of(rows, descending);
  const Tensor one = key_number(1, rows);
  Tensor order = numbers.expand(rows.shape());
  for (int64_t i = 0; i < key_bits(rows); ++i) {
    const Tensor bit = (key & one).cast(DType::Int32).contiguous(), up_to = bit.cumsum(1).contiguous();
    const Tensor zeros_before = numbers - up_to + bit, n_zeros = Tensor(n) - up_to.split({n - 1, 1}, 1)[1];
    const Tensor place = bit.ne(0).where(n_zeros + up_to - 1, zeros_before).contiguous();
    key = put(place, key >> one, n);
    order = put(place, order, n);
  }
  return order;
}

// The first k of `order_of`, in any order but that equal ones keep theirs. The k-th key is found bit by bit: how many are smaller?
Tensor select(const Tensor& rows, int64_t k, bool descending) {
  const Tensor key = keys_of(rows, descending);
  Tensor kth = key_number(0, rows).expand({rows.shape()[0], 1}), bit = key_number(uint64_t{1} << (key_bits(rows) - 1), rows).expand(kth.shape());
  for (int64_t i = 0; i < key_bits(rows); ++i) {
    const Tensor higher = kth | bit;
    kth = key.lt(higher).cast(DType::Int32).sum(1, true).lt(k).where(higher, kth).contiguous();
    bit = (bit >> key_number(1, rows)).contiguous();
  }
  const Tensor less = key.lt(kth), same = key.eq(kth);
  const Tensor up_to = Tensor::stack({less, same}).cast(DType::Int32).cumsum(-1).contiguous();
  const Tensor n_less = less.cast(DType::Int32).sum(1, true);
  const Tensor place = less.where(up_to[0], same.where(n_less + up_to[1], k + 1)) - 1;
  return put(place.contiguous(), Tensor::arange(0, rows.shape()[1], 1, DType::Int32).unsqueeze(0), k);
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
  if (n > kLeastToSelect && 4 * k <= n && k > 0 && numel() > 0) {
    const Tensor t = transpose(a, -1), rows = strong(t).reshape({-1, n});
    const Tensor first = select(rows, k, largest), order = order_of(rows.gather(-1, first), largest);
    Dims dims(t.shape().begin(), t.shape().end());
    dims.back() = k;
    const Tensor index = first.gather(-1, order).reshape(dims);
    return {t.gather(-1, index).transpose(a, -1), index.transpose(a, -1)};
  }
  const auto [v, i] = sort(dim, largest);
  if (ndim() == 0) return {v, i};
  return {v.split({k, n - k}, a)[0], i.split({k, n - k}, a)[0]};
}

}  // namespace whit
