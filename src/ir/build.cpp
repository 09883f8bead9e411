#include "ir/build.h"

#include <algorithm>
#include <atomic>

#include "ir/eval.h"
#include "ir/remake.h"

namespace whit {

UOp constant(DType dtype, double v) {
  if (is_float(dtype)) return UOp::make(Op::Const, dtype, {}, round_to(dtype, v));
  return constant(dtype, static_cast<int64_t>(v));
}

UOp constant(DType dtype, int64_t v) {
  if (is_float(dtype)) return constant(dtype, static_cast<double>(v));
  if (dtype == DType::Bool) return UOp::make(Op::Const, dtype, {}, v != 0);
  return UOp::make(Op::Const, dtype, {}, wrap_to(dtype, v));
}

UOp const_like(const UOp& x, double v) { return constant(x.dtype(), v); }

UOp alu(Op op, std::span<const UOp> src) {
  const size_t n = src.size();
  const DType dtype = is_comparison(op) ? DType::Bool : src[op == Op::Where ? 1 : 0].dtype();
  if (op == Op::Where) {
    WHIT_CHECK(src[0].dtype() == DType::Bool && src[1].dtype() == src[2].dtype(), "WHERE of {}, {}, {}", src[0].dtype(), src[1].dtype(),
               src[2].dtype());
  } else {
    for (size_t i = 1; i < n; ++i) WHIT_CHECK(src[i].dtype() == src[0].dtype(), "{} of {} and {}", op, src[0].dtype(), src[i].dtype());
  }
  if (n == 2 && dtype == DType::WeakInt) {
    const UOp &a = src[0], &b = src[1];
    if (a.is_const() && b.is_const() && !a.arg().is_invalid() && !b.arg().is_invalid()) return fold_constants(op, dtype, src);
    if (is_const_int(b, 0) && (op == Op::Add || op == Op::Sub)) return a;
    if (is_const_int(a, 0) && op == Op::Add) return b;
    if (is_const_int(b, 1) && (op == Op::Mul || op == Op::FloorDiv || op == Op::Cdiv)) return a;
    if (is_const_int(a, 1) && op == Op::Mul) return b;
    if (op == Op::Mul && (is_const_int(a, 0) || is_const_int(b, 0)) && a.shape() == b.shape()) return idx(0);
    if (op == Op::FloorMod && is_const_int(b, 1) && a.shape().empty()) return idx(0);
  }
  if (is_commutative(op) && src[0].is_const() && !src[1].is_const()) return UOp::make(op, dtype, {src[1], src[0]});
  return UOp::make(op, dtype, src);
}

std::vector<UOp> with_front(const UOp& first, std::span<const UOp> rest) {
  std::vector<UOp> all{first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

UOp cast(const UOp& x, DType dtype) { return x.dtype() == dtype ? x : UOp::make(Op::Cast, dtype, {x}); }

UOp range(int64_t size, int64_t id, AxisType type) { return UOp::make(Op::Range, DType::WeakInt, {}, Dims{id, static_cast<int64_t>(type), size}); }

UOp param(int64_t slot, DType dtype, std::span<const int64_t> dims) { return UOp::make(Op::Param, dtype, {}, with_front(slot, dims)); }

UOp index(const UOp& buf, const UOp& flat, const UOp& gate) {
  if (!gate || is_const_int(gate, 1)) return UOp::make(Op::Index, buf.dtype(), {buf, flat});
  return UOp::make(Op::Index, buf.dtype(), {buf, flat, gate});
}
UOp load(const UOp& at) { return UOp::make(Op::Load, at.dtype(), {at}); }
UOp store(const UOp& target, const UOp& value) { return UOp::make(Op::Store, DType::Void, {target, value}); }

UOp end(const UOp& s, std::span<const UOp> ranges) { return UOp::make(Op::End, DType::Void, with_front(s, ranges)); }

UOp reduce(const UOp& x, std::string_view monoid, std::span<const UOp> ranges) {
  if (ranges.empty()) return x;
  return UOp::make(Op::Reduce, x.dtype(), with_front(x, ranges), Arg::list({Arg(monoid)}));
}

UOp stages_in_scratch(const UOp& root) {
  const NodeList order = toposort(root);
  int64_t next = 0;
  for (const Node* n : order)
    if (n->op == Op::Scratch) next = std::max(next, n->arg.int_at(0) + 1);
  Remade made;
  for (const Node* n : order) {
    made.update(n);
    if (n->op != Op::Stage) continue;
    const std::vector<UOp> src = made.src(n), ranges(src.begin() + 1, src.end());
    UOp flat = idx(0);
    int64_t n_elems = 1;
    for (const UOp& r : ranges) {
      flat = flat * range_size(r.node()) + r;
      n_elems *= range_size(r.node());
    }
    const UOp scratch = UOp::make(Op::Scratch, n->dtype, {}, Dims{next++, n_elems});
    made.set(n, UOp::make(Op::After, n->dtype, {scratch, end(store(index(scratch, flat), src[0]), ranges)}));
  }
  return made.of(root.node());
}

UOp buffer(DType dtype, int64_t n_elems, std::string_view device) {
  static std::atomic<int64_t> next{1};
  WHIT_CHECK(!is_weak(dtype), "a buffer of {}", dtype);
  return UOp::make(Op::Buffer, dtype, {}, Arg::list({next.fetch_add(1), device, n_elems}));
}

namespace {
bool same_dims(const Shape& s, std::span<const int64_t> dims) { return std::equal(s.begin(), s.end(), dims.begin(), dims.end()); }
UOp move(Op op, const UOp& x, std::span<const int64_t> arg) { return UOp::make(op, x.dtype(), {x}, arg); }
}  // namespace

UOp reshape(const UOp& x, std::span<const int64_t> dims) {
  if (same_dims(x.shape(), dims)) return x;
  if (x.op() == Op::Reshape) return reshape(x.src(0), dims);
  return move(Op::Reshape, x, dims);
}
UOp expand(const UOp& x, std::span<const int64_t> dims) { return same_dims(x.shape(), dims) ? x : move(Op::Expand, x, dims); }
UOp permute(const UOp& x, std::span<const int64_t> axes) {
  if (std::ranges::is_sorted(axes)) return x;
  if (x.op() != Op::Permute) return move(Op::Permute, x, axes);
  Dims joined;
  for (const int64_t a : axes) joined.push_back(x.arg().int_at(static_cast<size_t>(a)));
  return permute(x.src(0), joined);
}
UOp shaped(const UOp& x, std::span<const int64_t> dims) { return same_dims(x.shape(), dims) ? x : move(Op::Reshape, x, dims); }
UOp permuted(const UOp& x, std::span<const int64_t> axes) { return std::ranges::is_sorted(axes) ? x : move(Op::Permute, x, axes); }
Dims moved_axis(size_t rank, size_t from, size_t to) {
  Dims order;
  for (size_t axis = 0; axis < rank; ++axis)
    if (axis != from) order.push_back(static_cast<int64_t>(axis));
  order.insert(order.begin() + to, static_cast<int64_t>(from));
  return order;
}
Dims with_front(int64_t first, std::span<const int64_t> rest) {
  Dims all{first};
  all.append(rest.begin(), rest.end());
  return all;
}
Dims along(size_t rank, size_t axis, int64_t n) {
  Dims dims(rank, 1);
  dims[axis] = n;
  return dims;
}
UOp pad(const UOp& x, std::span<const int64_t> before_after) {
  return std::ranges::all_of(before_after, [](int64_t n) { return n == 0; }) ? x : move(Op::Pad, x, before_after);
}
UOp shrink(const UOp& x, std::span<const int64_t> begin_end) {
  bool whole = true;
  for (size_t i = 0; i < x.shape().size(); ++i) whole &= begin_end[2 * i] == 0 && begin_end[2 * i + 1] == x.shape()[i];
  return whole ? x : move(Op::Shrink, x, begin_end);
}
UOp cut(const UOp& x, size_t axis, int64_t begin, int64_t end) {
  Dims begin_end;
  for (size_t i = 0; i < x.shape().size(); ++i) {
    begin_end.push_back(i == axis ? begin : 0);
    begin_end.push_back(i == axis ? end : x.shape()[i]);
  }
  return shrink(x, begin_end);
}
namespace {
// `begin` and `size` make a box of x.
UOp move_box(Op op, const UOp& x, std::span<const Sint> begin, std::span<const Sint> size) {
  const Shape& in = x.shape();
  WHIT_CHECK(begin.size() == in.size() && size.size() == in.size(), "{} of rank {} with {} places and {} sizes", op, in.size(), begin.size(),
             size.size());
  Dims arg;
  SmallVec<UOp, 5> src{x};
  bool changes = false;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool moves = begin[i] != Sint(0) || size[i] != size_of(in, i);
    changes |= moves;
    if (begin[i].is_symbolic() || (moves && (size[i].is_symbolic() || in.symbol(i)))) {
      arg.push_back(-1);
      arg.push_back(size[i].is_symbolic() ? std::max<int64_t>(2, size[i].max()) : size[i].max());
      src.push_back(begin[i].uop());
      src.push_back(size[i].uop());
    } else if (op == Op::Shrink) {
      arg.push_back(begin[i].max());
      arg.push_back(begin[i].max() + (size[i].is_symbolic() ? in[i] : size[i].max()));
    } else {
      arg.push_back(begin[i].max());
      arg.push_back(moves ? size[i].max() - begin[i].max() - in[i] : 0);
    }
  }
  return changes ? UOp::make(op, x.dtype(), std::span<const UOp>(src), arg) : x;
}
}  // namespace
UOp shrink_to(const UOp& x, std::span<const Sint> begin, std::span<const Sint> size) { return move_box(Op::Shrink, x, begin, size); }
UOp pad_to(const UOp& x, std::span<const Sint> before, std::span<const Sint> size) { return move_box(Op::Pad, x, before, size); }
UOp sized(const UOp& most, const Shape& shape) { return shape.is_symbolic() ? shrink_to(most, Sints(shape.size(), 0), sizes_of(shape)) : most; }
UOp whole(const UOp& x) {
  const Shape& s = x.shape();
  return s.is_symbolic() ? pad_to(x, Sints(s.size(), 0), Sints(s.begin(), s.end())) : x;
}
std::pair<Sint, Sint> box_of(const Node* n, size_t axis) {
  const auto a = n->arg.as_ints();
  if (a[2 * axis] != -1) return {a[2 * axis], size_of(n->shape, axis)};
  size_t next = 1;
  for (size_t i = 0; i < axis; ++i) next += a[2 * i] == -1 ? 2 : 0;
  return {UOp(n->src()[next]), size_of(n->shape, axis)};
}
UOp flip(const UOp& x, std::span<const int64_t> axes) { return axes.empty() ? x : move(Op::Flip, x, axes); }
UOp window(const UOp& x, int64_t axis, int64_t k, int64_t stride, int64_t dilation) { return move(Op::Window, x, Dims{axis, k, stride, dilation}); }
UOp unwindow(const UOp& x, int64_t axis, int64_t n, int64_t stride, int64_t dilation) {
  return move(Op::Unwindow, x, Dims{axis, n, stride, dilation});
}
UOp shard(const UOp& x, int64_t axis, int64_t n_devices) { return move(Op::Shard, x, Dims{axis, n_devices}); }
UOp unshard(const UOp& x, int64_t axis, int64_t n_devices) { return move(Op::Unshard, x, Dims{axis, n_devices}); }
UOp gather(const UOp& x, const UOp& index) { return UOp::make(Op::Gather, x.dtype(), {x, index}); }
UOp scatter(const UOp& base, const UOp& index, const UOp& src, const char* how) {
  return UOp::make(Op::Scatter, base.dtype(), {base, index, src}, Arg(how));
}
UOp reduce_axes(const UOp& x, std::string_view monoid, std::span<const int64_t> axes) {
  if (axes.empty()) return x;
  SmallVec<Arg, 8> a{Arg(monoid)};
  for (const int64_t axis : axes) a.push_back(axis);
  return UOp::make(Op::Reduce, x.dtype(), {x}, Arg(std::span<const Arg>(a.data(), a.size())));
}
UOp broadcast_scalar(const UOp& scalar, std::span<const int64_t> dims) { return expand(reshape(scalar, Dims(dims.size(), 1)), dims); }
UOp broadcast_scalar(const UOp& scalar, const Shape& shape) { return sized(broadcast_scalar(scalar, std::span<const int64_t>(shape)), shape); }

UOp variable(std::string_view name, int64_t lo, int64_t hi) {
  WHIT_USER(lo <= hi, Value, "[Variable] {}: the least value {} is above the largest {}", name, lo, hi);
  return UOp::make(Op::Variable, DType::WeakInt, {}, Arg::list({name, lo, hi}));
}
UOp bind(const UOp& v, int64_t value) {
  WHIT_USER(v.op() == Op::Variable, Assertion, "[bind] a {}; expected a Variable without a value", v.op());
  WHIT_USER(v.vmin() <= value && value <= v.vmax(), Assertion, "[bind] {} is out of the range {}..{} of '{}'", value, v.vmin(), v.vmax(),
            v.arg().at(0).as_str());
  return UOp::make(Op::Bind, DType::WeakInt, {v}, value);
}

}  // namespace whit
