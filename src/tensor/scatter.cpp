// gather, scatter and what selects by a mask.
#include <algorithm>

#include "engine/jit.h"
#include "ir/eval.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

void check_index(const char* op, const Tensor& self, const Tensor& index, size_t axis) {
  WHIT_USER(is_int(index.dtype()), Runtime, "[{}] index of {}; expected integers", op, index.dtype());
  WHIT_USER(index.ndim() == self.ndim(), Runtime, "[{}] index {} and tensor {} differ in rank", op, index.shape(), self.shape());
  for (size_t i = 0; i < self.ndim(); ++i)
    WHIT_USER(i == axis || index.shape()[i] <= self.shape()[i], Assertion, "[{}] index {} is larger than tensor {} in axis {}", op, index.shape(),
              self.shape(), i);
}

// The position in a tensor of that shape, flat, of every element that an index names; -1 outside.
Tensor flat_positions(const Shape& shape, const Tensor& index, size_t axis) {
  const DType dt = shape.numel() <= INT32_MAX ? DType::Int32 : DType::Int64;
  const int64_t size = shape[axis];
  const Tensor i = index.cast(DType::Int64);
  const Tensor wrapped = i.lt(0).where(i + size, i);
  const Tensor ok = wrapped.ge(0) & wrapped.lt(size);
  int64_t stride = 1;
  Tensor at(0);
  for (size_t a = shape.size(); a-- > 0; stride *= shape[a]) {
    const int64_t n = index.shape()[a];
    const Tensor part = a == axis ? ok.where(wrapped, 0).cast(dt) : Tensor::arange(0, n, 1, dt).reshape(along(shape.size(), a, n));
    at = at + part * stride;
  }
  return ok.where(at, -1);
}

// How many of the last axes an index is spread over, so that it names rows of those.
size_t n_spread(const Tensor& self, const Tensor& index, size_t axis) {
  UOp u = index.uop();
  while (u.op() == Op::Cast) u = u.src(0);
  size_t n = 0;
  if (u.op() == Op::Expand)
    for (size_t a = self.ndim(); a-- > axis + 1 && u.src(0).shape()[a] == 1 && index.shape()[a] == self.shape()[a];) ++n;
  return n;
}

// Where the elements (or rows) of `src` go in those of self, and both.
struct Sources {
  Tensor at, values, self;
};
Sources sources_of(const char* op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, bool rows) {
  const auto axis = must_have_axis(op, dim, self.shape());
  check_index(op, self, index, axis);
  const Tensor s = src.ndim() == 0 ? src.cast(self.dtype()).expand(index.shape()) : src;
  WHIT_USER(s.dtype() == self.dtype(), Runtime, "[{}] src is {}, the tensor {}", op, s.dtype(), self.dtype());
  WHIT_USER(s.ndim() == self.ndim(), Runtime, "[{}] src {} and tensor {} differ in rank", op, s.shape(), self.shape());
  if (index.numel() == 0 || self.numel() == 0) return {};
  std::vector<std::optional<Sint>> part(index.shape().begin(), index.shape().end());
  for (size_t i = 0; i < self.ndim(); ++i)
    WHIT_USER(index.shape()[i] <= s.shape()[i], Assertion, "[{}] index {} is larger than src {}", op, index.shape(), s.shape());
  const size_t n_rest = rows ? n_spread(self, index, axis) : 0, n_own = self.ndim() - n_rest;
  const Dims own(index.shape().begin(), index.shape().begin() + n_own);
  const Shape shape(std::span<const int64_t>(self.shape().begin(), n_own));
  Dims flat{-1};
  if (n_rest > 0) flat.push_back(self.numel() / shape.numel());
  std::vector<std::optional<Sint>> first(part.begin(), part.begin() + n_own);
  first.resize(part.size(), Sint(1));
  return {flat_positions(shape, index.shrink_to(first).reshape(own), axis).flatten(), s.shrink_to(part).reshape(flat), self.reshape(flat)};
}

// How many results a mask has.
int64_t n_chosen(const char* op, const Tensor& mask, std::optional<int64_t> size) {
  if (size) WHIT_USER(*size >= 0, Value, "[{}] size {}; expected none below 0", op, *size);
  if (size || mask.numel() == 0) return size.value_or(0);
  WHIT_USER(!engine::is_capturing(), Jit,
            "[{}] how many elements a mask chooses depends on data that is read now, and a captured function would not "
            "read it again; give a `size` to nonzero or masked_select, or use where",
            op);
  return mask.sum().item_int();
}

}  // namespace

Tensor Tensor::gather(int64_t dim, const Tensor& index) const {
  const auto axis = static_cast<size_t>(resolve_axis("gather", dim, shape()));
  check_index("gather", *this, index, axis);
  if (index.numel() == 0) return nothing_of(*this, index.shape());
  if (numel() == 0) return wrap(broadcast_scalar(whit::constant(dtype(), 0), index.shape()));
  if (ndim() == 0) return *this;
  const Tensor at = flat_positions(shape(), index, axis);
  return wrap(whit::gather(flatten().uop(), at.uop()));
}

Tensor Tensor::scatter(int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce) const {
  WHIT_USER(reduce.empty() || reduce == "add" || reduce == "multiply", Type, "[scatter] reduce '{}'; expected 'add', 'multiply' or nothing", reduce);
  WHIT_USER(reduce.empty() || (src.ndim() == 0 && !src.device()), Type,
            "[scatter] reduce '{}' takes a number as src; for a tensor there is scatter_reduce", reduce);
  if (!reduce.empty()) return scatter_reduce(dim, index, src.cast(dtype()), reduce == "add" ? "sum" : "prod", true);
  const auto [at, values, self] = sources_of("scatter", *this, dim, index, src, true);
  if (!at.defined()) return *this;
  return wrap(whit::scatter(self.uop(), at.uop(), values.uop(), "set")).reshape(shape());
}

Tensor Tensor::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce, bool include_self) const {
  WHIT_USER(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin", Runtime,
            "[scatter_reduce] reduce '{}'; expected sum, prod, mean, amax or amin", reduce);
  const bool adds = reduce == "sum" || reduce == "mean";
  const auto [at, values, self] = sources_of("scatter_reduce", *this, dim, index, src, adds);
  if (!at.defined()) return *this;
  const int64_t n = self.shape()[0], m = at.numel();
  auto counted = [&](const Tensor& base, const Tensor& what) { return wrap(whit::scatter(base.uop(), at.uop(), what.uop(), "add")); };
  Tensor count =
      counted(wrap(broadcast_scalar(whit::constant(DType::Int32, 0), Dims{n})), wrap(broadcast_scalar(whit::constant(DType::Int32, 1), Dims{m})));
  if (self.ndim() > 1) count = count.unsqueeze(1);
  const Tensor touched = count.gt(0);
  if (adds) {
    const Tensor base = include_self ? self : touched.where(0, self);
    const DType acc = sum_dtype(dtype());
    const Tensor total = counted(base.cast(acc), values.cast(acc)).cast(dtype());
    if (reduce == "sum") return total.reshape(shape());
    const Tensor by = include_self ? count + 1 : count.maximum(1);
    const Tensor mean = is_float(dtype()) ? total / by.cast(dtype()) : total.floordiv(by.cast(dtype()));
    return touched.where(mean, self).reshape(shape());
  }
  // Products and extremes: every target looks at every source.
  const Tensor hit = arange(0, n, 1, at.dtype()).unsqueeze(1).eq(at.unsqueeze(0));
  const char* monoid = reduce == "prod" ? "mul" : reduce == "amax" ? "max" : "min";
  const Tensor identity = wrap(constant_of(monoid_identity(monoid, dtype())));
  const Tensor all = hit.where(values.unsqueeze(0), identity);
  const Tensor best = reduce_tensor(strong(all), monoid, Dims{1}, false);
  return touched.where(include_self ? by_monoid(monoid, self, best) : best, self).reshape(shape());
}

Tensor Tensor::masked_select(const Tensor& mask, std::optional<int64_t> size, const Tensor& fill_value) const {
  WHIT_USER(mask.dtype() == DType::Bool, Runtime, "[masked_select] the mask is {}; expected bool", mask.dtype());
  const Shape dims = broadcast_shapes("masked_select", {&shape(), &mask.shape()});
  const Tensor m = broadcast_to("masked_select", mask, dims).flatten(), x = broadcast_to("masked_select", *this, dims).flatten();
  const int64_t n = n_chosen("masked_select", m, size);
  const Tensor base = full({n}, fill_value, {.dtype = dtype(), .buffer = false});
  if (n == 0 || m.numel() == 0) return base;
  // The k-th chosen element goes to place k; the others nowhere.
  const Tensor place = m.where(m.cumsum(0) - 1, -1).cast(DType::Int32).contiguous();
  return wrap(whit::scatter(base.uop(), place.uop(), x.uop(), "set"));
}

Tensor Tensor::nonzero(std::optional<int64_t> size, const Tensor& fill_value) const {
  const Tensor mask = ne(constant(0.0, dtype())).flatten();
  const int64_t n = n_chosen("nonzero", mask, size);
  std::vector<Tensor> columns;
  int64_t stride = 1;
  const Tensor flat = arange(0, numel(), 1, DType::Int32).masked_select(mask, n, -1);
  const Tensor fill = fill_value.cast(DType::Int32);
  for (size_t a = ndim(); a-- > 0;) {
    const Tensor at = flat.floordiv(constant_int(stride, DType::Int32)).mod(constant_int(std::max<int64_t>(shape()[a], 1), DType::Int32));
    columns.insert(columns.begin(), flat.lt(0).where(fill, at));
    stride *= shape()[a];
  }
  if (columns.empty()) return zeros({n, 0}, {.dtype = DType::Int32, .buffer = false});
  return stack(columns, 1);
}

std::vector<Tensor> Tensor::unique() const {
  const auto [sorted, order] = flatten().sort();
  const int64_t n = numel();
  if (n == 0) return {sorted, order, order};
  const Tensor at = arange(0, n, 1, DType::Int32);
  const Tensor starts = (at.eq(0) | sorted.ne(sorted.roll(1, IntList(0)))).contiguous();
  const Tensor first = at.masked_select(starts);
  const Tensor counts = cat({first, Tensor::full({1}, n, {.dtype = DType::Int32, .buffer = false})});
  const Tensor group = starts.cumsum(0) - 1;
  return {sorted.gather(0, first), order.scatter(0, order, group.cast(DType::Int32)).reshape(shape()), counts.split({1, first.numel()})[1] - first};
}

}  // namespace whit
