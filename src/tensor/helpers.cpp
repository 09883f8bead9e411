// Axes, broadcasting and dtypes, as all of the front end sees them.
#include <algorithm>
#include <numeric>

#include "ir/eval.h"
#include "ir/interpret.h"
#include "rules/linear.h"
#include "tensor/impl.h"

namespace whit::detail {

std::string dims_str(std::span<const int64_t> dims) { return Shape(dims).str(); }

int64_t prod(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) WHIT_USER(!__builtin_mul_overflow(n, d, &n), Value, "[tensor] shape {} has more than 2^63 elements", dims_str(dims));
  return n;
}

int64_t resolve_axis(const char* op, int64_t axis, const Shape& shape) {
  const int64_t n = std::max<int64_t>(1, static_cast<int64_t>(shape.size()));
  WHIT_USER(-n <= axis && axis < n, Index, "[{}] axis {} is out of range for shape {}; valid axes are {}..{}", op, axis, shape, -n, n - 1);
  return axis < 0 ? axis + n : axis;
}

size_t must_have_axis(const char* op, int64_t axis, const Shape& shape) {
  WHIT_USER(!shape.empty(), Index, "[{}] axis {} of a tensor without axes; expected at least one", op, axis);
  return static_cast<size_t>(resolve_axis(op, axis, shape));
}

Dims axes_from(size_t first, size_t end) {
  Dims out(end - first);
  std::iota(out.begin(), out.end(), static_cast<int64_t>(first));
  return out;
}

Dims resolve_axes(const char* op, const Axes& axes, const Shape& shape) {
  if (axes.all()) return axes_from(0, shape.size());
  Dims out;
  for (const int64_t a : axes.list()) out.push_back(resolve_axis(op, a, shape));
  if (shape.empty()) return {};
  std::ranges::sort(out);
  for (size_t i = 1; i < out.size(); ++i) WHIT_USER(out[i] != out[i - 1], Runtime, "[{}] axis {} is given twice", op, out[i]);
  return out;
}

void check_step(const char* op, const char* what, int64_t v) {
  constexpr int64_t most = int64_t{1} << 40;
  WHIT_USER(-most <= v && v <= most, Value, "[{}] {} {} is out of range; expected {}..{}", op, what, v, -most, most);
}

Dims spread(const char* op, const char* what, const IntList& list, size_t n) {
  for (const int64_t v : list) check_step(op, what, v);
  if (list.is_single()) return Dims(n, list[0]);
  WHIT_USER(list.size() == n, Value, "[{}] {} has {} numbers; expected 1 or {}", op, what, list.size(), n);
  return Dims(list.begin(), list.end());
}

Shape broadcast_shapes(const char* op, std::initializer_list<const Shape*> shapes) {
  size_t rank = 0;
  for (const Shape* s : shapes) rank = std::max(rank, s->size());
  Dims out(rank, 1);
  SmallVec<const Node*, 8> symbols(rank, nullptr);
  for (const Shape* s : shapes) {
    for (size_t i = 0; i < s->size(); ++i) {
      const size_t k = rank - s->size() + i;
      if (out[k] == 1) {
        out[k] = (*s)[i];
        symbols[k] = s->symbol(i);
      } else if ((*s)[i] != 1 && ((*s)[i] != out[k] || s->symbol(i) != symbols[k])) {
        std::string all;
        for (const Shape* t : shapes) all += (all.empty() ? "" : " and ") + t->str();
        const Sint have = symbols[k] ? Sint(UOp(symbols[k])) : Sint(out[k]);
        raise(ErrorKind::Index, "[{}] shapes {} do not broadcast: {} against {}", op, all, size_of(*s, i).str(), have);
      }
    }
  }
  return Shape(out, symbols);
}

// ---- symbolic sizes

static bool both_numbers(const Sint& a, const Sint& b) { return !a.is_symbolic() && !b.is_symbolic(); }
Sint plus(const Sint& a, const Sint& b) { return both_numbers(a, b) ? Sint(a.max() + b.max()) : linear_sum(a.uop() + b.uop()); }
Sint minus(const Sint& a, const Sint& b) { return both_numbers(a, b) ? Sint(a.max() - b.max()) : linear_sum(a.uop() - b.uop()); }
Sint times(const Sint& a, const Sint& b) { return both_numbers(a, b) ? Sint(prod(Dims{a.max(), b.max()})) : linear_sum(a.uop() * b.uop()); }
Sint product(const Shape& s, std::span<const int64_t> axes) {
  Sint n = 1;
  for (const int64_t a : axes) n = times(n, size_of(s, static_cast<size_t>(a)));
  return n;
}

Shape to_shape(std::span<const Sint> sizes) {
  Dims dims;
  SmallVec<const Node*, 8> symbols;
  for (const Sint& s : sizes) {
    dims.push_back(s.is_symbolic() ? std::max<int64_t>(2, s.max()) : s.max());
    symbols.push_back(s.is_symbolic() ? s.uop().node() : nullptr);  // a symbol is held by the size that it comes from
  }
  return Shape(dims, symbols);
}

bool at_most(const Sint& a, const Sint& b) {
  const Sint rest = minus(b, a);
  return rest.min() >= 0 || with_values(rest).min() >= 0;
}

Tensor whole_axes(const Tensor& x, std::span<const int64_t> axes, const UOp& outside) {
  const Shape& s = x.shape();
  Sints sizes = sizes_of(s), none(s.size(), 0);
  bool any = false;
  for (const int64_t a : axes) {
    any |= s.symbol(static_cast<size_t>(a)) != nullptr;
    sizes[static_cast<size_t>(a)] = s[static_cast<size_t>(a)];
  }
  if (!any) return x;
  const UOp padded = whit::pad_to(x.uop(), none, sizes);
  if (!outside || (outside.is_const() && outside.arg().to_double() == 0)) return wrap(padded);
  const UOp inside = whit::pad_to(broadcast_scalar(const_bool(true), s), none, sizes);
  return wrap(where(inside, padded, outside));
}

Tensor row_by_row(const char* op, const Tensor& x, size_t n, const std::function<Tensor(const Tensor&)>& fn) {
  const Tensor y = fn(wrap(whole(x.uop())));
  Sints sizes = sizes_of(y.shape());
  for (size_t i = 0; i < x.ndim(); ++i) {
    if (!x.shape().symbol(i)) continue;
    WHIT_USER(i < n, NotImplemented, "[{}] over axis {} of shape {}, whose size is symbolic", op, i, x.shape());
    sizes[i] = size_of(x.shape(), i);
  }
  return sized(y, sizes);
}

Tensor part(const Tensor& x, size_t axis, const Sint& begin, const Sint& end) {
  std::vector<AxisPair> pairs(x.ndim());
  pairs[axis] = {begin, end};
  return x.shrink(pairs);
}

Tensor sized(const Tensor& all, std::span<const Sint> sizes) {
  return move_view(all, [&](const UOp& u) { return whit::shrink_to(u, Sints(sizes.size(), 0), sizes); });
}

UOp broadcast_to(const UOp& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  Dims full(shape.size() - x.shape().size(), 1);
  full.append(x.shape().begin(), x.shape().end());
  return whit::sized(expand(shaped(x, full), shape), shape);
}

Tensor broadcast_to(const char* op, const Tensor& x, const Shape& want) {
  WHIT_USER(broadcast_shapes(op, {&x.shape(), &want}) == want, Index, "[{}] shape {} does not broadcast to {}", op, x.shape(), want);
  return move_view(x, [&](const UOp& u) { return broadcast_to(u, want); });
}

UOp base_const(const UOp& x) {
  const Node* n = x.node();
  while (n->op == Op::Reshape || n->op == Op::Expand || n->op == Op::Permute || n->op == Op::Flip || n->op == Op::Shrink || n->op == Op::Detach)
    n = n->src_begin()[0];
  return n->op == Op::Const && !n->arg.is_invalid() ? UOp(n) : UOp();
}

UOp cast_value(const UOp& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (x.is_const() && !x.arg().is_invalid()) return fold_constants(Op::Cast, dtype, std::span<const UOp>(&x, 1));
  if (!x.shape().empty())
    if (const UOp c = base_const(x)) return broadcast_scalar(cast_value(c, dtype), x.shape());
  // A choice between weak constants takes the width now; later it would have lost bits.
  if (x.op() == Op::Where && is_weak(x.dtype()) && base_const(x.src(1)) && base_const(x.src(2)))
    return where(x.src(0), cast_value(x.src(1), dtype), cast_value(x.src(2), dtype));
  return cast(x, dtype);
}

std::vector<UOp> broadcasted(const char* op, std::initializer_list<const Tensor*> xs) {
  std::vector<UOp> out;
  for (const Tensor* x : xs) out.push_back(must_be_defined(op, *x).uop());
  Shape shape = out[0].shape();
  DType dt = out[0].dtype();
  for (const UOp& u : out) {
    if (!(shape == u.shape())) shape = broadcast_shapes(op, {&shape, &u.shape()});
    dt = least_upper_dtype(dt, u.dtype());
  }
  for (UOp& u : out) {
    u = cast_value(u, dt);
    if (!u.shape().empty()) u = broadcast_to(u, shape);
  }
  return out;
}

Tensor nothing_of(const Tensor& x, std::span<const int64_t> dims) {
  const int64_t flat[] = {x.numel()}, none[] = {0, 0};
  return wrap(shaped(shrink(shaped(x.uop(), flat), none), dims));
}

DType strong_of(DType dt) { return strong_dtype(dt, default_int(), default_float()); }
Tensor strong(const Tensor& x) { return x.cast(strong_of(x.dtype())); }
DType wide_float(DType dt) { return is_weak(dt) ? dt : least_upper_dtype(dt, DType::Float32); }
Tensor to_mean_dtype(const Tensor& x) { return is_float(x.dtype()) || is_weak(x.dtype()) ? to_float_dtype(x) : x.cast(DType::Float32); }
Tensor to_float_dtype(const Tensor& x) { return is_float(x.dtype()) ? x : x.cast(least_upper_float(x.dtype(), default_float())); }

Shape reduced_dims(const Shape& s, std::span<const int64_t> axes, bool keepdim) {
  Sints out;
  for (size_t i = 0; i < s.size(); ++i) {
    const bool gone = std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end();
    if (!gone || keepdim) out.push_back(gone ? Sint(1) : size_of(s, i));
  }
  return to_shape(out);
}

Tensor by_monoid(std::string_view monoid, const Tensor& x, const Tensor& y) { return wrap(alu(monoid_op(monoid), broadcasted("reduce", {&x, &y}))); }

Tensor reduce_tensor(const Tensor& x, std::string_view monoid, std::span<const int64_t> axes, bool keepdim) {
  return wrap(shaped(reduce_axes(x.uop(), monoid, axes), reduced_dims(x.shape(), axes, keepdim)));
}

}  // namespace whit::detail

namespace whit {
using namespace detail;

IntList::IntList(std::span<const Sint> l) {
  for (const Sint& s : l) v_.push_back(s.max());
  if (std::ranges::none_of(l, [](const Sint& s) { return s.is_symbolic(); })) return;
  for (const Sint& s : l) symbols_.push_back(s.is_symbolic() ? s.uop() : UOp());
}
Shape IntList::shape() const {
  if (!is_symbolic()) return v_;
  Sints all;
  for (size_t i = 0; i < size(); ++i) all.push_back(at(i));
  return to_shape(all);
}
void IntList::refuse() const { raise(ErrorKind::Value, "a size of {} is symbolic; expected numbers", str()); }

Tensor Tensor::cast(DType to) const {
  if (to == dtype()) return *this;
  WHIT_USER(to != DType::Void, Runtime, "[cast] {} to void; expected a dtype of values", dtype());
  if (to == DType::UInt64 && is_float(dtype()) && n_bytes(dtype()) > 1 && dtype() != DType::Float16) {
    // CAST saturates to int64, so what is past it goes below it and back.
    const Tensor is_past = ge(0x1p63);
    return wrap(cast_value(is_past.where(*this - 0x1p63, *this).uop(), to)) ^ is_past.where(weak_uint(uint64_t{1} << 63), constant_int(0, to));
  }
  return wrap(cast_value(uop(), to));
}

Tensor Tensor::bitcast(DType to) const {
  WHIT_USER(!is_weak(dtype()) && !is_weak(to) && to != DType::Void, Runtime, "[bitcast] {} to {}: a weak dtype and void have no bits", dtype(), to);
  if (to == dtype()) return *this;
  const int from_bytes_n = n_bytes(dtype()), to_bytes_n = n_bytes(to);
  const int64_t n = (shape().empty() ? 1 : shape().back()) * from_bytes_n;
  WHIT_USER(from_bytes_n == to_bytes_n || (!shape().empty() && n % to_bytes_n == 0), Runtime,
            "[bitcast] the last axis of shape {} has {} bytes, no multiple of the {} of {}", shape(), n, to_bytes_n, to);
  return wrap(UOp::make(Op::Bitcast, to, {uop()}));
}

}  // namespace whit
