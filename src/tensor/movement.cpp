// Movement: views wherever the elements stay, and what is composed of them.
#include <algorithm>
#include <numeric>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

using Pairs = std::span<const std::optional<std::pair<int64_t, int64_t>>>;

constexpr size_t kJoinAtOnce = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Tensor pad_zeros(const Tensor& x, std::span<const int64_t> before_after) {
  bool any = false;
  Dims dims;
  for (size_t i = 0; i < x.ndim(); ++i) {
    any |= before_after[2 * i] != 0 || before_after[2 * i + 1] != 0;
    dims.push_back(x.shape()[i] + before_after[2 * i] + before_after[2 * i + 1]);
  }
  if (!any) return x;
  if (x.numel() == 0) return wrap(broadcast_scalar(constant(x.dtype(), 0), dims));
  return wrap(pad(x.uop(), before_after));
}

Tensor shrink_pairs(const Tensor& x, std::span<const int64_t> begin_end) {
  return move_view(x, [&](const UOp& u) { return shrink(u, begin_end); });
}

// One axis shrunk to [begin, end).
Tensor part(const Tensor& x, size_t axis, int64_t begin, int64_t end) {
  return move_view(x, [&](const UOp& u) { return cut(u, axis, begin, end); });
}

Tensor pad_by_mode(const Tensor& x, std::span<const int64_t> before_after, const std::string& mode) {
  Tensor out = x;
  for (size_t axis = 0; axis < x.ndim(); ++axis) {
    const int64_t before = before_after[2 * axis], after = before_after[2 * axis + 1], n = x.shape()[axis];
    if (before == 0 && after == 0) continue;
    const bool reflects = mode == "reflect", repeats = mode == "replicate";
    WHIT_USER(!reflects || (before < n && after < n), Value,
              "[pad] reflect by ({}, {}) needs padding smaller than the size {}", before, after, n);
    WHIT_USER(!repeats || n > 0, Value, "[pad] replicate of an axis of size 0");
    WHIT_USER(reflects || repeats || (before <= n && after <= n), Value,
              "[pad] circular by ({}, {}) wraps more than once around the size {}", before, after, n);
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

}  // namespace

// ---- primitives

Tensor Tensor::reshape(const IntList& to) const {
  Dims dims;
  int64_t unknown = -1, known = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == -1) {
      WHIT_USER(unknown < 0, Runtime, "[reshape] shape {} has more than one -1", dims_str(to));
      unknown = static_cast<int64_t>(i);
    } else {
      WHIT_USER(to[i] >= 0, Value, "[reshape] negative size in shape {}", dims_str(to));
      known *= to[i];
    }
    dims.push_back(to[i]);
  }
  if (unknown >= 0) {
    WHIT_USER(known != 0 ? numel() % known == 0 : numel() == 0, Value,
              "[reshape] {} elements of shape {} do not fit {}", numel(), shape().str(), dims_str(to));
    dims[static_cast<size_t>(unknown)] = known == 0 ? 0 : numel() / known;
  }
  WHIT_USER(detail::prod(dims) == numel(), Value, "[reshape] {} elements of shape {} do not fit {}", numel(),
            shape().str(), dims_str(to));
  if (Shape(dims) == shape()) return *this;
  return move_view(*this, [&](const UOp& u) { return shaped(u, dims); });
}

Tensor Tensor::expand(const IntList& to) const {
  const Shape& s = shape();
  WHIT_USER(to.size() >= s.size(), Value, "[expand] shape {} has fewer axes than {}", dims_str(to), s.str());
  const size_t left = to.size() - s.size();
  Dims dims;
  for (size_t i = 0; i < to.size(); ++i) {
    const int64_t have = i < left ? 1 : s[i - left];
    const int64_t want = to[i] == -1 ? have : to[i];
    WHIT_USER(want >= 0 && (have == want || have == 1), Value, "[expand] axis {} of shape {} cannot become {} (of {})",
              i, s.str(), to[i], dims_str(to));
    dims.push_back(want);
  }
  if (Shape(dims) == s) return *this;
  return move_view(*this, [&](const UOp& u) { return broadcast_to(u, dims); });
}

Tensor Tensor::permute(const IntList& order) const {
  Dims axes;
  for (const int64_t a : order) axes.push_back(resolve_axis("permute", a, shape()));
  Dims sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool ok = axes.size() == ndim();
  for (size_t i = 0; ok && i < sorted.size(); ++i) ok = sorted[i] == static_cast<int64_t>(i);
  WHIT_USER(ok, Runtime, "[permute] {} is no permutation of the {} axes of {}", dims_str(order), ndim(), shape().str());
  if (std::is_sorted(axes.begin(), axes.end())) return *this;
  return move_view(*this, [&](const UOp& u) { return permuted(u, axes); });
}

Tensor Tensor::flip(const IntList& axes) const {
  Dims all;
  for (const int64_t a : axes) all.push_back(resolve_axis("flip", a, shape()));
  std::sort(all.begin(), all.end());
  for (size_t i = 1; i < all.size(); ++i)
    WHIT_USER(all[i] != all[i - 1], Runtime, "[flip] axis {} is given twice", all[i]);
  if (all.empty() || ndim() == 0) return *this;
  return move_view(*this, [&](const UOp& u) { return whit::flip(u, all); });
}

Tensor Tensor::shrink(Pairs begin_end) const {
  WHIT_USER(begin_end.size() == ndim(), Value, "[shrink] {} pairs for shape {}; expected {}", begin_end.size(),
            shape().str(), ndim());
  Dims be;
  for (size_t i = 0; i < ndim(); ++i) {
    const auto [b, e] = begin_end[i].value_or(std::pair<int64_t, int64_t>(0, shape()[i]));
    WHIT_USER(0 <= b && b <= e && e <= shape()[i], Value, "[shrink] [{}, {}) is no part of axis {} of shape {}", b, e,
              i, shape().str());
    be.push_back(b);
    be.push_back(e);
  }
  return shrink_pairs(*this, be);
}

Tensor Tensor::shrink_to(std::span<const std::optional<int64_t>> to) const {
  WHIT_USER(to.size() == ndim(), Value, "[shrink_to] {} sizes for shape {}; expected {}", to.size(), shape().str(),
            ndim());
  std::vector<std::optional<std::pair<int64_t, int64_t>>> be;
  for (const auto& n : to) be.push_back(n ? std::optional(std::pair<int64_t, int64_t>(0, *n)) : std::nullopt);
  return shrink(be);
}

// ---- padding

Tensor Tensor::pad_axes(Pairs padding, const PadOptions& o) const {
  WHIT_USER(padding.size() == ndim(), Value, "[pad] {} pairs for shape {}; expected {}", padding.size(), shape().str(),
            ndim());
  WHIT_USER(o.mode == "constant" || o.mode == "reflect" || o.mode == "replicate" || o.mode == "circular",
            NotImplemented, "[pad] mode '{}'; expected constant, reflect, replicate or circular", o.mode);
  Dims before_after, begin_end;
  for (size_t i = 0; i < ndim(); ++i) {
    const auto [b, a] = padding[i].value_or(std::pair<int64_t, int64_t>(0, 0));
    for (const int64_t v : {b, a})
      WHIT_USER(-INT64_MAX / 4 < v && v < INT64_MAX / 4, Value, "[pad] {} is out of range for axis {} of shape {}", v,
                i, shape().str());
    const int64_t n = shape()[i], begin = std::max<int64_t>(0, -b), end = n - std::max<int64_t>(0, -a);
    WHIT_USER(begin <= end, Value, "[pad] ({}, {}) removes more than axis {} of shape {} has", b, a, i, shape().str());
    begin_end.push_back(begin);
    begin_end.push_back(end);
    before_after.push_back(std::max<int64_t>(0, b));
    before_after.push_back(std::max<int64_t>(0, a));
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
  const Tensor out = pad_zeros(inner, before_after);
  if (o.value == 0 || out.is_same(inner)) return out;
  const UOp inside = whit::pad(broadcast_scalar(const_bool(true), inner.shape()), before_after);
  return wrap(inside).where(out, constant(o.value, dtype()));
}

Tensor Tensor::pad(const IntList& padding, const PadOptions& o) const {
  WHIT_USER(padding.size() % 2 == 0, Value, "[pad] {} numbers; expected begin and end of each axis", padding.size());
  WHIT_USER(padding.size() / 2 <= ndim(), Value, "[pad] {} pairs for shape {}", padding.size() / 2, shape().str());
  std::vector<std::optional<std::pair<int64_t, int64_t>>> pairs(ndim());
  for (size_t i = 0; i < padding.size() / 2; ++i)
    pairs[ndim() - 1 - i] = std::pair<int64_t, int64_t>(padding[2 * i], padding[2 * i + 1]);
  return pad_axes(pairs, o);
}

Tensor Tensor::pad_to(std::span<const std::optional<int64_t>> to, double value) const {
  WHIT_USER(to.size() == ndim(), Value, "[pad_to] {} sizes for shape {}; expected {}", to.size(), shape().str(),
            ndim());
  std::vector<std::optional<std::pair<int64_t, int64_t>>> pairs;
  for (size_t i = 0; i < ndim(); ++i) {
    const int64_t n = to[i].value_or(shape()[i]);
    WHIT_USER(n >= shape()[i], Value, "[pad_to] axis {} of shape {} is larger than {}", i, shape().str(), n);
    pairs.emplace_back(std::pair<int64_t, int64_t>(0, n - shape()[i]));
  }
  return pad_axes(pairs, {.value = value});
}

// ---- reshapes

Tensor Tensor::squeeze(std::optional<int64_t> dim) const {
  Dims dims;
  if (!dim) {
    for (const int64_t d : shape())
      if (d != 1) dims.push_back(d);
    return reshape(dims);
  }
  const size_t a = static_cast<size_t>(resolve_axis("squeeze", *dim, shape()));
  if (ndim() == 0 || shape()[a] != 1) return *this;
  for (size_t i = 0; i < ndim(); ++i)
    if (i != a) dims.push_back(shape()[i]);
  return reshape(dims);
}

Tensor Tensor::unsqueeze(int64_t dim) const {
  const int64_t n = static_cast<int64_t>(ndim()) + 1;
  WHIT_USER(-n <= dim && dim < n, Index, "[unsqueeze] axis {} is out of range for shape {}; valid axes are {}..{}", dim,
            shape().str(), -n, n - 1);
  Dims dims(shape().begin(), shape().end());
  dims.insert(dims.begin() + (dim < 0 ? dim + n : dim), 1);
  return reshape(dims);
}

Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  Dims order(ndim(), 0);
  std::iota(order.begin(), order.end(), 0);
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
  Dims dims;
  int64_t joined = 1;
  for (size_t i = 0; i < ndim(); ++i) {
    if (i < a || i > b) {
      dims.push_back(shape()[i]);
    } else {
      joined *= shape()[i];
      if (i == b) dims.push_back(joined);
    }
  }
  return reshape(dims);
}

Tensor Tensor::unflatten(int64_t dim, const IntList& sizes) const {
  const auto a = static_cast<size_t>(resolve_axis("unflatten", dim, shape()));
  Dims dims;
  for (size_t i = 0; i < ndim(); ++i) {
    if (i != a) {
      dims.push_back(shape()[i]);
    } else {
      for (const int64_t s : sizes) dims.push_back(s);
    }
  }
  return reshape(dims);
}

// ---- joining and splitting

Tensor Tensor::stack(std::span<const Tensor> tensors, int64_t dim) {
  WHIT_USER(!tensors.empty(), Value, "[stack] no tensors are given; expected at least one");
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) {
    WHIT_USER(t.shape() == tensors[0].shape(), Value, "[stack] shapes {} and {} differ", tensors[0].shape().str(),
              t.shape().str());
    parts.push_back(t.unsqueeze(dim));
  }
  const int64_t n = static_cast<int64_t>(parts[0].ndim());
  return cat(parts, dim < 0 ? dim + n : dim);
}

Tensor Tensor::cat(std::span<const Tensor> tensors, int64_t dim) {
  WHIT_USER(!tensors.empty(), Value, "[cat] no tensors are given; expected at least one");
  const Tensor& first = tensors[0];
  const auto axis = static_cast<size_t>(resolve_axis("cat", dim, first.shape()));
  WHIT_USER(first.ndim() > 0, Value, "[cat] tensors without axes cannot be joined; use stack");
  DType dt = first.dtype();
  int64_t total = 0;
  bool equal_sizes = true;
  for (const Tensor& t : tensors) {
    WHIT_USER(t.ndim() == first.ndim(), Assertion, "[cat] shapes {} and {} differ in rank", first.shape().str(),
              t.shape().str());
    for (size_t i = 0; i < first.ndim(); ++i)
      WHIT_USER(i == axis || t.shape()[i] == first.shape()[i], Assertion,
                "[cat] shapes {} and {} differ in axis {}, which is not the joined axis {}", first.shape().str(),
                t.shape().str(), i, axis);
    dt = least_upper_dtype(dt, t.dtype());
    total += t.shape()[axis];
    equal_sizes &= t.shape()[axis] == first.shape()[axis];
  }
  if (tensors.size() == 1) return first;
  std::vector<Tensor> same;
  for (const Tensor& t : tensors) same.push_back(t.cast(dt));
  if (same.size() > kJoinAtOnce) {  // a kernel's work on an element grows with the number of its inputs
    std::vector<Tensor> groups;
    for (size_t i = 0; i < same.size(); i += kJoinAtOnce)
      groups.push_back(cat(std::span(same).subspan(i, std::min(kJoinAtOnce, same.size() - i)), dim).contiguous());
    return cat(groups, dim);
  }
  std::vector<UOp> values;
  for (const Tensor& t : same) values.push_back(t.uop());
  Dims dims(first.shape().begin(), first.shape().end());
  dims[axis] = total;
  if (equal_sizes) {
    // STACK makes a leading axis; it moves before the joined axis and melts into it.
    const UOp s = UOp::make(Op::Stack, dt, values);
    Dims order;
    for (size_t i = 0; i < first.ndim(); ++i) {
      if (i == axis) order.push_back(0);
      order.push_back(static_cast<int64_t>(i) + 1);
    }
    return wrap(shaped(permuted(s, order), dims));
  }
  // Padded side by side; a mask of the position chooses, so that the sign of a zero and NaN stay.
  Dims lane(first.ndim(), 1);
  lane[axis] = total;
  const UOp pos = broadcast_to(shaped(UOp::make(Op::Lanes, DType::WeakInt, {}, Arg(total)), lane), dims);
  UOp out;
  int64_t at = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const int64_t n = values[k].shape()[axis];
    Dims pads(2 * first.ndim(), 0);
    pads[2 * axis] = at;
    pads[2 * axis + 1] = total - at - n;
    const UOp p = whit::pad(values[k], pads);
    out = out ? whit::where(whit::lt(pos, idx(at)), out, p) : p;
    at += n;
  }
  return wrap(out ? out : values[0]);
}

std::vector<Tensor> Tensor::split(const IntList& sizes, int64_t dim) const {
  const auto axis = must_have_axis("split", dim, shape());
  const int64_t n = shape()[axis];
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
    WHIT_USER(sum == n, Value, "[split] sizes {} sum to {}, axis {} of shape {} has {}", dims_str(sizes), sum, axis,
              shape().str(), n);
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
  return split(ceil_div(n, chunks), dim);
}

std::vector<Tensor> Tensor::meshgrid(std::span<const Tensor> tensors, std::string_view indexing) {
  WHIT_USER(indexing == "ij" || indexing == "xy", Runtime, "[meshgrid] indexing '{}'; expected 'ij' or 'xy'", indexing);
  std::vector<Tensor> out;
  const size_t n = tensors.size();
  if (n == 1) return {tensors[0]};
  Dims dims;
  std::vector<size_t> place(n);
  std::iota(place.begin(), place.end(), 0);
  if (indexing == "xy" && n > 1) std::swap(place[0], place[1]);
  dims.resize(n, 1);
  for (size_t i = 0; i < n; ++i) dims[place[i]] = tensors[i].numel();
  for (size_t i = 0; i < n; ++i) {
    WHIT_USER(tensors[i].ndim() <= 1, Runtime, "[meshgrid] shape {}; expected one axis", tensors[i].shape().str());
    Dims ones(n, 1);
    ones[place[i]] = tensors[i].numel();
    out.push_back(tensors[i].reshape(ones).expand(dims));
  }
  return out;
}

// ---- repetition

Tensor Tensor::repeat(const IntList& repeats) const {
  WHIT_USER(repeats.size() >= ndim(), Value, "[repeat] {} repeats for shape {}; expected at least {}", repeats.size(),
            shape().str(), ndim());
  const size_t left = repeats.size() - ndim();
  Dims split_dims, wide, joined;
  for (size_t i = 0; i < repeats.size(); ++i) {
    WHIT_USER(repeats[i] >= 0, Value, "[repeat] negative repeat {}", repeats[i]);
    const int64_t n = i < left ? 1 : shape()[i - left];
    split_dims.push_back(1);
    split_dims.push_back(n);
    wide.push_back(repeats[i]);
    wide.push_back(n);
    joined.push_back(repeats[i] * n);
  }
  return reshape(split_dims).expand(wide).reshape(joined);
}

Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  WHIT_USER(repeats >= 0, Value, "[repeat_interleave] negative repeat {}", repeats);
  const Tensor x = dim ? *this : flatten();
  const auto axis = must_have_axis("repeat_interleave", dim.value_or(0), x.shape());
  Dims with_one, wide, joined;
  for (size_t i = 0; i < x.ndim(); ++i) {
    with_one.push_back(x.shape()[i]);
    wide.push_back(x.shape()[i]);
    joined.push_back(x.shape()[i] * (i == axis ? repeats : 1));
    if (i == axis) {
      with_one.push_back(1);
      wide.push_back(repeats);
    }
  }
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
  WHIT_USER(ndim() == 1, Value, "[diag] shape {}; expected one axis", shape().str());
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
  const int64_t row0 = std::max<int64_t>(0, -offset), col0 = std::max<int64_t>(0, offset);
  const int64_t n = std::max<int64_t>(0, std::min(rows - row0, cols - col0));
  // A square of n x n, flattened with one column more: the diagonal becomes the first column.
  if (n == 0) {
    x = part(part(x, r, 0, 0), r + 1, 0, std::min<int64_t>(cols, 1));
    Dims empty(x.shape().begin(), x.shape().end() - 1);
    return x.reshape(empty);
  }
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

namespace {
Tensor triangle(const char* op, const Tensor& x, int64_t diagonal, bool upper) {
  WHIT_USER(x.ndim() >= 2, Runtime, "[{}] shape {}; expected at least two axes", op, x.shape().str());
  const int64_t r = x.shape()[x.ndim() - 2], c = x.shape()[x.ndim() - 1];
  if (x.numel() == 0) return x;
  const Tensor row = Tensor::arange(0, r, 1).unsqueeze(1), col = Tensor::arange(0, c, 1).unsqueeze(0);
  const Tensor keep = (row + diagonal).le(col);  // the upper triangle from `diagonal` on
  const Tensor zero = Tensor::constant(0.0, x.dtype());
  return upper ? keep.where(x, zero) : keep.where(zero, x);
}
}  // namespace
Tensor Tensor::triu(int64_t diagonal) const { return triangle("triu", *this, diagonal, true); }
Tensor Tensor::tril(int64_t diagonal) const { return triangle("tril", *this, diagonal + 1, false); }

}  // namespace whit
