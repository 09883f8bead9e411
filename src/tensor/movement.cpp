// Movement: views wherever the elements stay, and what is composed of them.
#include <algorithm>

#include "base/lists.h"
#include "rules/linear.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

using Pairs = std::span<const AxisPair>;

constexpr size_t kJoinAtOnce = 64;

Tensor shrink_pairs(const Tensor& x, std::span<const int64_t> begin_end) {
  return move_view(x, [&](const UOp& u) { return shrink(u, begin_end); });
}

Tensor pad_by_mode(const Tensor& x, std::span<const int64_t> before_after, const std::string& mode) {
  Tensor out = x;
  for (size_t axis = 0; axis < x.ndim(); ++axis) {
    const int64_t before = before_after[2 * axis], after = before_after[2 * axis + 1], n = x.shape()[axis];
    if (before == 0 && after == 0) continue;
    const bool reflects = mode == "reflect", repeats = mode == "replicate";
    WHIT_USER(!reflects || (before < n && after < n), Value, "[pad] reflect by ({}, {}) needs padding smaller than the size {}", before, after, n);
    WHIT_USER(!repeats || n > 0, Value, "[pad] replicate of an axis of size 0");
    WHIT_USER(reflects || repeats || (before <= n && after <= n), Value, "[pad] circular by ({}, {}) wraps more than once around the size {}", before,
              after, n);
    const auto border = [&](int64_t begin, int64_t size) {
      Dims dims(out.shape().begin(), out.shape().end());
      dims[axis] = size;
      const Tensor some = part(out, axis, begin, begin + (repeats ? 1 : size));
      return reflects ? some.flip(static_cast<int64_t>(axis)) : some.expand(dims);
    };
    std::vector<Tensor> parts;
    if (before) parts.push_back(border(reflects ? 1 : repeats ? 0 : n - before, before));
    parts.push_back(out);
    if (after) parts.push_back(border(reflects ? n - 1 - after : repeats ? n - 1 : 0, after));
    out = Tensor::cat(parts, static_cast<int64_t>(axis));
  }
  return out;
}

// Row-major number of the elements of `shape`, as far as they count.
Tensor element_numbers(const Shape& shape) {
  Tensor n = Tensor(0);
  for (size_t i = 0; i < shape.size(); ++i) {
    const UOp lanes = UOp::make(Op::Lanes, DType::WeakInt, {}, Arg(shape[i]));
    n = n * Tensor(size_of(shape, i).uop()) + wrap(shaped(lanes, along(shape.size(), i, shape[i])));
  }
  return n;
}

// A reshape that joins or splits axes of symbolic size.
Tensor gathered(const Tensor& x, const Shape& want) {
  Tensor rest = element_numbers(want), at = Tensor(0);
  int64_t stride = 1;
  for (size_t i = x.ndim(); i-- > 0; stride *= x.shape()[i]) {
    const Tensor n(size_of(x.shape(), i).uop());
    at = at + (i == 0 ? rest : rest.mod(n)) * stride;
    rest = rest.div(n, "floor");
  }
  const Tensor flat = whole_axes(x, axes_from(0, x.ndim())).flatten();
  at = at.cast(flat.numel() <= INT32_MAX ? DType::Int32 : DType::Int64);
  at = broadcast_to("reshape", at, Shape(std::span<const int64_t>(want)));
  return sized(wrap(gather(flat.uop(), at.uop())), sizes_of(want));
}

}  // namespace

// ---- primitives

Tensor Tensor::reshape(const IntList& to) const {
  // Symbolic sizes that stay cancel, so that one unknown is found beside them.
  Sints sizes, left = sizes_of(shape());
  Sint in = 1, out = 1;
  size_t unknown = to.size();
  for (size_t i = 0; i < to.size(); ++i) {
    sizes.push_back(to.at(i));
    if (sizes[i] == Sint(-1)) {
      WHIT_USER(unknown == to.size(), Runtime, "[reshape] shape {} has more than one -1", to);
      unknown = i;
      continue;
    }
    WHIT_USER(sizes[i].min() >= 0, Value, "[reshape] negative size in shape {}", to);
    const auto same = sizes[i].is_symbolic() ? std::ranges::find(left, sizes[i]) : left.end();
    if (same != left.end()) {
      left.erase(same);
    } else {
      out = times(out, sizes[i]);
    }
  }
  for (const Sint& s : left) in = times(in, s);
  if (unknown < to.size()) {
    const int64_t known = std::max<int64_t>(1, out.max());
    const UOp q = in.is_symbolic() && !out.is_symbolic() ? linear_div(in.uop(), known) : UOp();
    sizes[unknown] = q ? Sint(q) : in.is_symbolic() ? in : Sint(in.max() / known);
    out = times(out, sizes[unknown]);
  }
  WHIT_USER(in == out, Value, "[reshape] {} elements of shape {} do not fit {}", in, shape(), to);
  const Shape want = to_shape(sizes);
  if (want == shape()) return *this;
  if (want.numel() != shape().numel() || reshaped_sizes(shape(), want) != want) return gathered(*this, want);
  return move_view(*this, [&](const UOp& u) { return shaped(u, want); });
}

Tensor Tensor::expand(const IntList& to) const {
  const Shape& s = shape();
  WHIT_USER(to.size() >= s.size(), Value, "[expand] shape {} has fewer axes than {}", to, s);
  const size_t left = to.size() - s.size();
  Sints sizes;
  for (size_t i = 0; i < to.size(); ++i) {
    const Sint have = i < left ? Sint(1) : size_of(s, i - left);
    const Sint want = to.at(i) == Sint(-1) ? have : to.at(i);
    WHIT_USER(want.min() >= 0 && (have == want || have == Sint(1)), Value, "[expand] axis {} of shape {} cannot become {} (of {})", i, s, to.at(i),
              to);
    sizes.push_back(want);
  }
  const Shape want = to_shape(sizes);
  if (want == s) return *this;
  return move_view(*this, [&](const UOp& u) { return broadcast_to(u, want); });
}

Tensor Tensor::permute(const IntList& order) const {
  Dims axes;
  for (const int64_t a : order) axes.push_back(resolve_axis("permute", a, shape()));
  WHIT_USER(std::ranges::is_permutation(axes, axes_from(0, ndim())), Runtime, "[permute] {} is no permutation of the {} axes of {}", dims_str(order),
            ndim(), shape());
  if (std::ranges::is_sorted(axes)) return *this;
  return move_view(*this, [&](const UOp& u) { return permuted(u, axes); });
}

Tensor Tensor::flip(const IntList& axes) const {
  const Dims all = resolve_axes("flip", axes, shape());
  if (all.empty() || ndim() == 0) return *this;
  if (shape().is_symbolic()) {  // what counts stands at the end then
    const Shape& s = shape();
    Sints begin(ndim(), 0);
    for (const int64_t a : all) begin[static_cast<size_t>(a)] = minus(s[static_cast<size_t>(a)], size_of(s, static_cast<size_t>(a)));
    return wrap(whit::shrink_to(whit::flip(whole_axes(*this, all).uop(), all), begin, sizes_of(s)));
  }
  return move_view(*this, [&](const UOp& u) { return whit::flip(u, all); });
}

Tensor Tensor::shrink(Pairs begin_end) const {
  WHIT_USER(begin_end.size() == ndim(), Value, "[shrink] {} pairs for shape {}; expected {}", begin_end.size(), shape(), ndim());
  Sints begin, sizes;
  for (size_t i = 0; i < ndim(); ++i) {
    const Sint n = size_of(shape(), i);
    const auto [b, e] = begin_end[i].value_or(std::pair<Sint, Sint>(0, n));
    WHIT_USER(at_most(0, b) && at_most(b, e) && at_most(e, n), Value, "[shrink] [{}, {}) is no part of axis {} of shape {}", b, e, i, shape());
    begin.push_back(b);
    sizes.push_back(minus(e, b));
  }
  return move_view(*this, [&](const UOp& u) { return whit::shrink_to(u, begin, sizes); });
}

Tensor Tensor::shrink_to(std::span<const std::optional<Sint>> to) const {
  WHIT_USER(to.size() == ndim(), Value, "[shrink_to] {} sizes for shape {}; expected {}", to.size(), shape(), ndim());
  std::vector<AxisPair> be = mapped(to, [&](const auto& n) { return n ? AxisPair({0, *n}) : std::nullopt; });
  return shrink(be);
}

// ---- padding

Tensor Tensor::pad_axes(Pairs padding, const PadOptions& o) const {
  WHIT_USER(padding.size() == ndim(), Value, "[pad] {} pairs for shape {}; expected {}", padding.size(), shape(), ndim());
  WHIT_USER(o.mode == "constant" || o.mode == "reflect" || o.mode == "replicate" || o.mode == "circular", NotImplemented,
            "[pad] mode '{}'; expected constant, reflect, replicate or circular", o.mode);
  Dims before_after, begin_end;
  Sints place, rest;  // what comes before and behind each axis
  for (size_t i = 0; i < ndim(); ++i) {
    const auto [before, after] = padding[i].value_or(std::pair<Sint, Sint>(0, 0));
    const bool symbolic = shape().symbol(i) || before.is_symbolic() || after.is_symbolic();
    const bool none = before == Sint(0) && after == Sint(0);
    WHIT_USER(!symbolic || none || (o.mode == "constant" && at_most(0, before) && at_most(0, after)), NotImplemented,
              "[pad] ({}, {}) of axis {} of shape {} by mode '{}'; only zeros or more by 'constant' go with symbolic sizes", before, after, i,
              shape(), o.mode);
    const int64_t b = symbolic ? 0 : before.max(), a = symbolic ? 0 : after.max();
    for (const int64_t v : {b, a})
      WHIT_USER(-INT64_MAX / 4 < v && v < INT64_MAX / 4, Value, "[pad] {} is out of range for axis {} of shape {}", v, i, shape());
    const int64_t n = shape()[i], begin = std::max<int64_t>(0, -b), end = n - std::max<int64_t>(0, -a);
    WHIT_USER(begin <= end, Value, "[pad] ({}, {}) removes more than axis {} of shape {} has", b, a, i, shape());
    begin_end.push_back(begin);
    begin_end.push_back(end);
    before_after.push_back(std::max<int64_t>(0, b));
    before_after.push_back(std::max<int64_t>(0, a));
    place.push_back(symbolic ? before : Sint(before_after[2 * i]));
    rest.push_back(symbolic ? after : Sint(before_after[2 * i + 1]));
  }
  // What shrinks is what is left after the other modes have looked at all of the axis.
  if (o.mode != "constant") {
    Tensor out = pad_by_mode(*this, before_after, o.mode);
    Dims be;
    for (size_t i = 0; i < ndim(); ++i) {
      be.push_back(begin_end[2 * i]);
      be.push_back(out.shape()[i] - (shape()[i] - begin_end[2 * i + 1]));
    }
    return shrink_pairs(out, be);
  }
  const Tensor inner = shrink_pairs(*this, begin_end);
  Sints sizes = sizes_of(inner.shape());
  for (size_t i = 0; i < ndim(); ++i) sizes[i] = plus(plus(place[i], sizes[i]), rest[i]);
  const Shape want = to_shape(sizes);
  if (want == inner.shape()) return inner;
  const auto padded = [&](const UOp& u) {
    return inner.numel() == 0 ? broadcast_scalar(whit::constant(u.dtype(), 0), want) : whit::pad_to(u, place, sizes);
  };
  const Tensor out = wrap(padded(inner.uop()));
  if (o.value == 0) return out;
  return wrap(padded(broadcast_scalar(const_bool(true), inner.shape()))).where(out, constant(o.value, dtype()));
}

Tensor Tensor::pad(const IntList& padding, const PadOptions& o) const {
  WHIT_USER(padding.size() % 2 == 0, Value, "[pad] {} numbers; expected begin and end of each axis", padding.size());
  WHIT_USER(padding.size() / 2 <= ndim(), Value, "[pad] {} pairs for shape {}", padding.size() / 2, shape());
  std::vector<AxisPair> pairs(ndim());
  for (size_t i = 0; i < padding.size() / 2; ++i) pairs[ndim() - 1 - i] = {padding.at(2 * i), padding.at(2 * i + 1)};
  return pad_axes(pairs, o);
}

Tensor Tensor::pad_to(std::span<const std::optional<Sint>> to, double value) const {
  WHIT_USER(to.size() == ndim(), Value, "[pad_to] {} sizes for shape {}; expected {}", to.size(), shape(), ndim());
  std::vector<AxisPair> pairs;
  for (size_t i = 0; i < ndim(); ++i) {
    const Sint have = size_of(shape(), i), n = to[i].value_or(have);
    WHIT_USER(at_most(have, n), Value, "[pad_to] axis {} of shape {} is larger than {}", i, shape(), n);
    pairs.emplace_back(std::pair(Sint(0), minus(n, have)));
  }
  return pad_axes(pairs, {.value = value});
}

// ---- reshapes

Tensor Tensor::squeeze(std::optional<int64_t> dim) const {
  Sints sizes = sizes_of(shape());
  if (!dim) {
    for (size_t i = sizes.size(); i-- > 0;)
      if (sizes[i] == Sint(1)) sizes.erase(sizes.begin() + i);
    return reshape(sizes);
  }
  const size_t a = static_cast<size_t>(resolve_axis("squeeze", *dim, shape()));
  if (ndim() == 0 || sizes[a] != Sint(1)) return *this;
  sizes.erase(sizes.begin() + a);
  return reshape(sizes);
}

Tensor Tensor::unsqueeze(int64_t dim) const {
  const int64_t n = static_cast<int64_t>(ndim()) + 1;
  WHIT_USER(-n <= dim && dim < n, Index, "[unsqueeze] axis {} is out of range for shape {}; valid axes are {}..{}", dim, shape(), -n, n - 1);
  Sints sizes = sizes_of(shape());
  sizes.insert(sizes.begin() + (dim < 0 ? dim + n : dim), 1);
  return reshape(sizes);
}

Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  Dims order = axes_from(0, ndim());
  const auto a = static_cast<size_t>(resolve_axis("transpose", dim0, shape()));
  const auto b = static_cast<size_t>(resolve_axis("transpose", dim1, shape()));
  if (ndim() == 0) return *this;
  std::swap(order[a], order[b]);
  return permute(order);
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  const auto a = static_cast<size_t>(resolve_axis("flatten", start_dim, shape()));
  const auto b = static_cast<size_t>(resolve_axis("flatten", end_dim, shape()));
  if (ndim() == 0) return reshape(1);
  WHIT_USER(a <= b, Value, "[flatten] start axis {} is behind end axis {}", a, b);
  const Sints all = sizes_of(shape());
  Sints sizes(all.begin(), all.begin() + a + 1);
  for (size_t i = a + 1; i <= b; ++i) sizes[a] = times(sizes[a], all[i]);
  sizes.append(all.begin() + b + 1, all.end());
  return reshape(sizes);
}

Tensor Tensor::unflatten(int64_t dim, const IntList& to) const {
  const size_t a = must_have_axis("unflatten", dim, shape());
  const Sints all = sizes_of(shape());
  Sints sizes(all.begin(), all.begin() + a);
  for (size_t k = 0; k < to.size(); ++k) sizes.push_back(to.at(k));
  sizes.append(all.begin() + a + 1, all.end());
  return reshape(sizes);
}

// ---- joining and splitting

Tensor Tensor::stack(std::span<const Tensor> tensors, int64_t dim) {
  WHIT_USER(!tensors.empty(), Value, "[stack] no tensors are given; expected at least one");
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    WHIT_USER(t.shape() == tensors[0].shape(), Value, "[stack] shapes {} and {} differ", tensors[0].shape(), t.shape());
    parts.push_back(t.unsqueeze(dim));
  }
  return cat(parts, dim);
}

Tensor Tensor::cat(std::span<const Tensor> tensors, int64_t dim) {
  WHIT_USER(!tensors.empty(), Value, "[cat] no tensors are given; expected at least one");
  const Tensor& first = tensors[0];
  const auto axis = static_cast<size_t>(resolve_axis("cat", dim, first.shape()));
  WHIT_USER(first.ndim() > 0, Value, "[cat] tensors without axes cannot be joined; use stack");
  DType dt = first.dtype();
  Sint total = 0;
  bool equal_sizes = true;
  for (const Tensor& t : tensors) {
    WHIT_USER(t.ndim() == first.ndim(), Assertion, "[cat] shapes {} and {} differ in rank", first.shape(), t.shape());
    for (size_t i = 0; i < first.ndim(); ++i)
      WHIT_USER(i == axis || size_of(t.shape(), i) == size_of(first.shape(), i), Assertion,
                "[cat] shapes {} and {} differ in axis {}, which is not the joined axis {}", first.shape(), t.shape(), i, axis);
    dt = least_upper_dtype(dt, t.dtype());
    total = plus(total, size_of(t.shape(), axis));
    equal_sizes &= t.shape()[axis] == first.shape()[axis] && !t.shape().symbol(axis);
  }
  if (tensors.size() == 1) return first;
  std::vector<Tensor> same = mapped(tensors, [&](const Tensor& t) { return t.cast(dt); });
  if (same.size() > kJoinAtOnce) {  // a kernel's work on an element grows with the number of its inputs
    std::vector<Tensor> groups;
    for (size_t i = 0; i < same.size(); i += kJoinAtOnce)
      groups.push_back(cat(std::span(same).subspan(i, std::min(kJoinAtOnce, same.size() - i)), dim).contiguous());
    return cat(groups, dim);
  }
  std::vector<UOp> values = mapped(same, [&](const Tensor& t) { return t.uop(); });
  Sints sizes = sizes_of(first.shape());
  sizes[axis] = total;
  const Shape shape = to_shape(sizes);
  if (equal_sizes) {
    // STACK makes a leading axis; it moves before the joined axis and melts into it.
    return wrap(shaped(permuted(UOp::make(Op::Stack, dt, values), moved_axis(first.ndim() + 1, 0, axis)), shape));
  }
  // Padded side by side; a mask of the position chooses, so that the sign of a zero and NaN stay.
  const UOp lanes = UOp::make(Op::Lanes, DType::WeakInt, {}, Arg(shape[axis]));
  const UOp pos = broadcast_to(shaped(lanes, along(first.ndim(), axis, shape[axis])), Shape(std::span<const int64_t>(shape)));
  UOp out;
  Sint at = 0;
  Sints place(first.ndim(), 0);
  for (const UOp& v : values) {
    place[axis] = at;
    const UOp p = whit::pad_to(v, place, sizes);
    out = out ? whit::where(sized(wrap(whit::lt(pos, at.uop())), sizes).uop(), out, p) : p;
    at = plus(at, size_of(v.shape(), axis));
  }
  return wrap(out ? out : values[0]);
}

std::vector<Tensor> Tensor::split(const IntList& sizes, int64_t dim) const {
  const auto axis = must_have_axis("split", dim, shape());
  const int64_t n = size_of(shape(), axis).number();
  Dims parts;
  if (sizes.is_single()) {
    WHIT_USER(sizes[0] > 0 || n == 0, Value, "[split] size {}; expected a positive one", sizes[0]);
    for (int64_t at = 0; at < n; at += sizes[0]) parts.push_back(std::min(sizes[0], n - at));
    if (n == 0) parts.push_back(0);
  } else {
    int64_t sum = 0;
    for (const int64_t s : sizes) {
      WHIT_USER(s >= 0, Value, "[split] negative size {}", s);
      sum += s;
    }
    WHIT_USER(sum == n, Value, "[split] sizes {} sum to {}, axis {} of shape {} has {}", dims_str(sizes), sum, axis, shape(), n);
    parts = Dims(sizes.begin(), sizes.end());
  }
  std::vector<Tensor> out;
  int64_t at = 0;
  for (const int64_t s : parts) {
    out.push_back(part(*this, axis, at, at + s));
    at += s;
  }
  return out;
}

std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const {
  WHIT_USER(chunks > 0, Value, "[chunk] {} chunks; expected a positive number", chunks);
  const int64_t n = shape()[must_have_axis("chunk", dim, shape())];
  if (n == 0) return split(IntList(Dims(static_cast<size_t>(chunks), 0)), dim);
  return split((n + chunks - 1) / chunks, dim);
}

std::vector<Tensor> Tensor::meshgrid(std::span<const Tensor> tensors, std::string_view indexing) {
  WHIT_USER(indexing == "ij" || indexing == "xy", Runtime, "[meshgrid] indexing '{}'; expected 'ij' or 'xy'", indexing);
  std::vector<Tensor> out;
  const size_t n = tensors.size();
  if (n == 1) return {tensors[0]};
  Dims dims(n, 1);
  const auto place = [&](size_t i) { return indexing == "xy" && i < 2 ? 1 - i : i; };
  for (size_t i = 0; i < n; ++i) dims[place(i)] = tensors[i].numel();
  for (size_t i = 0; i < n; ++i) {
    WHIT_USER(tensors[i].ndim() <= 1, Runtime, "[meshgrid] shape {}; expected one axis", tensors[i].shape());
    out.push_back(tensors[i].reshape(along(n, place(i), tensors[i].numel())).expand(dims));
  }
  return out;
}

// ---- repetition

Tensor Tensor::repeat(const IntList& repeats) const {
  WHIT_USER(repeats.size() >= ndim(), Value, "[repeat] {} repeats for shape {}; expected at least {}", repeats.size(), shape(), ndim());
  const size_t left = repeats.size() - ndim();
  Sints split_sizes, wide, joined;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const Sint times_i = repeats.at(i), n = i < left ? Sint(1) : size_of(shape(), i - left);
    WHIT_USER(times_i.min() >= 0, Value, "[repeat] negative repeat {}", times_i);
    for (const Sint& one : {Sint(1), n}) split_sizes.push_back(one);
    for (const Sint& one : {times_i, n}) wide.push_back(one);
    joined.push_back(times(times_i, n));
  }
  return reshape(split_sizes).expand(wide).reshape(joined);
}

Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  WHIT_USER(repeats >= 0, Value, "[repeat_interleave] negative repeat {}", repeats);
  const Tensor x = dim ? *this : flatten();
  const auto axis = must_have_axis("repeat_interleave", dim.value_or(0), x.shape());
  Sints with_one = sizes_of(x.shape()), wide = with_one, joined = with_one;
  with_one.insert(with_one.begin() + axis + 1, 1);
  wide.insert(wide.begin() + axis + 1, repeats);
  joined[axis] = times(joined[axis], repeats);
  return x.reshape(with_one).expand(wide).reshape(joined);
}

Tensor Tensor::roll(const IntList& shifts, const std::optional<IntList>& dims) const {
  if (numel() == 0) return *this;
  if (!dims) {
    WHIT_USER(shifts.size() == 1, Runtime, "[roll] {} shifts without axes; expected one", shifts.size());
    return flatten().roll(shifts, IntList(0)).reshape(shape());
  }
  WHIT_USER(shifts.size() == dims->size(), Runtime, "[roll] {} shifts for {} axes", shifts.size(), dims->size());
  Tensor out = *this;
  for (size_t i = 0; i < shifts.size(); ++i) {
    const auto axis = must_have_axis("roll", (*dims)[i], shape());
    const int64_t n = shape()[axis], by = ((shifts[i] % n) + n) % n;
    if (by == 0) continue;
    out = cat({part(out, axis, n - by, n), part(out, axis, 0, n - by)}, static_cast<int64_t>(axis));
  }
  return out;
}

Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const {
  const size_t axis = must_have_axis("unfold", dim, shape());
  WHIT_USER(size >= 0, Runtime, "[unfold] size {}; expected none below 0", size);
  WHIT_USER(step > 0, Runtime, "[unfold] step {}; expected a positive one", step);
  const int64_t n = shape()[axis];
  WHIT_USER(size <= n, Runtime, "[unfold] size {} is more than the {} of axis {}", size, n, axis);
  return wrap(window(uop(), static_cast<int64_t>(axis), size, step, 1));
}

// ---- diagonals

Tensor Tensor::diag() const {
  WHIT_USER(ndim() == 1, Value, "[diag] shape {}; expected one axis", shape());
  const int64_t n = shape()[0];
  const Tensor zero = constant(0.0, dtype());
  return eye(n, {}, DType::Bool).where(unsqueeze(1).expand({n, n}), zero);
}

Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  const int64_t a = resolve_axis("diagonal", dim1, shape()), b = resolve_axis("diagonal", dim2, shape());
  WHIT_USER(a != b, Runtime, "[diagonal] both axes are {}; expected two different ones", a);
  Dims order;
  for (int64_t i = 0; i < static_cast<int64_t>(ndim()); ++i)
    if (i != a && i != b) order.push_back(i);
  order.push_back(a);
  order.push_back(b);
  Tensor x = permute(order);
  const size_t r = x.ndim() - 2;
  const int64_t rows = x.shape()[r], cols = x.shape()[r + 1];
  const int64_t row0 = std::clamp<int64_t>(-offset, 0, rows), col0 = std::clamp<int64_t>(offset, 0, cols);
  const int64_t n = std::min(rows - row0, cols - col0);
  // A square of n x n, flattened with one column more: the diagonal becomes the first column.
  x = part(part(x, r, row0, row0 + n), r + 1, col0, col0 + n);
  Dims lead(x.shape().begin(), x.shape().end() - 2);
  Dims flat = lead, grid = lead, out = lead;
  flat.push_back(n * n);
  grid.push_back(n);
  grid.push_back(n + 1);
  out.push_back(n);
  x = x.reshape(flat).pad({0, n}).reshape(grid);
  return part(x, r + 1, 0, 1).reshape(out);
}

static Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool upper) {
  WHIT_USER(x.ndim() >= 2, Runtime, "[{}] shape {}; expected at least two axes", op, x.shape());
  if (x.numel() == 0) return x;
  const auto col = static_cast<int64_t>(x.ndim()) - 1;
  const int64_t first = std::clamp(diagonal, -x.shape()[x.ndim() - 2], x.shape()[x.ndim() - 1]) + (upper ? 0 : 1);
  const Tensor keep = (lane_index(x, col - 1) + first).le(lane_index(x, col));  // the upper triangle from `first` on
  const Tensor zero = Tensor::constant(0.0, x.dtype());
  return upper ? keep.where(x, zero) : keep.where(zero, x);
}
Tensor Tensor::triu(int64_t diagonal) const { return triangle("triu", *this, diagonal, true); }
Tensor Tensor::tril(int64_t diagonal) const { return triangle("tril", *this, diagonal, false); }

}  // namespace whit
