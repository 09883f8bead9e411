// Indexing and setitem by NumPy's rules. Basic indices are views; index tensors are one GATHER over the indexed axes
// joined together, and one SCATTER when assigned to.
#include <algorithm>

#include "runtime/device.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

struct TensorIndex {
  size_t axis;  ///< of the basic view
  Tensor index;
};

struct Parsed {
  Tensor view;  ///< the basic part
  std::vector<TensorIndex> tensors;
};

// Every step-th element of [begin, end) of an axis.
UOp strided(const UOp& x, size_t axis, int64_t begin, int64_t end, int64_t step) {
  const int64_t size = x.shape()[axis];
  if (step == 1 || end - begin <= 1) return cut(x, axis, begin, end);
  const int64_t n = (end - begin + step - 1) / step;
  Dims split_dims(x.shape().begin(), x.shape().end()), out = split_dims;
  out[axis] = n;
  if (n * step <= size) {
    // Blocks of `step` elements around the wanted ones; which column they are in follows from where the blocks start.
    const int64_t column = std::max<int64_t>(0, begin + n * step - size);
    split_dims[axis] = n;
    split_dims.insert(split_dims.begin() + axis + 1, step);
    const UOp blocks = shaped(cut(x, axis, begin - column, begin - column + n * step), split_dims);
    return shaped(cut(blocks, axis + 1, column, column + 1), out);
  }
  return shaped(window(cut(x, axis, begin, end), static_cast<int64_t>(axis), 1, step, 1), out);
}

Tensor take_slice(const Tensor& x, size_t axis, const Slice& s) {
  if (x.shape().symbol(axis) || (s.start && s.start->is_symbolic()) || (s.stop && s.stop->is_symbolic())) {
    WHIT_USER(s.step.value_or(1) == 1, Value, "[getitem] a slice of symbolic size with step {}; expected 1", *s.step);
    const Sint n = size_of(x.shape(), axis);
    const auto from_end = [&](const Sint& v) { return v.max() < 0 ? plus(v, n) : v; };
    return part(x, axis, from_end(s.start.value_or(0)), from_end(s.stop.value_or(n)));
  }
  const int64_t size = x.shape()[axis], most = std::max<int64_t>(size, 1);
  const int64_t step = std::clamp(s.step.value_or(1), -most, most);  // a longer one finds no second element either
  WHIT_USER(step != 0, Value, "[getitem] the slice step is 0; expected a positive or negative one");
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  auto bound = [&](const std::optional<Sint>& v, int64_t otherwise) {
    return v ? std::clamp(v->max() < 0 ? v->max() + size : v->max(), low, high) : otherwise;
  };
  const int64_t start = bound(s.start, step < 0 ? high : low), stop = bound(s.stop, step < 0 ? low : high);
  if (step > 0) {
    const int64_t end = std::max(start, stop);
    return move_view(x, [&](const UOp& u) { return strided(u, axis, start, end, step); });
  }
  const int64_t n = start > stop ? start - stop : 0;  // elements start, start-1 .. stop+1
  const int64_t axes[] = {static_cast<int64_t>(axis)};
  return move_view(x, [&](const UOp& u) {
    const UOp cut = strided(u, axis, n ? stop + 1 : 0, n ? start + 1 : 0, 1);
    return n ? strided(flip(cut, axes), axis, 0, n, -step) : cut;
  });
}

bool is_mask(const Index& i) { return i.kind() == Index::Kind::Values && i.as_tensor().dtype() == DType::Bool && i.as_tensor().ndim() > 0; }

Parsed parse(const Tensor& self, std::span<const Index> indices) {
  size_t n_used = 0, n_dots = 0;
  for (const Index& i : indices) {
    n_used += i.kind() == Index::Kind::Dots || i.kind() == Index::Kind::Axis ? 0 : is_mask(i) ? i.as_tensor().ndim() : 1;
    n_dots += i.kind() == Index::Kind::Dots;
  }
  WHIT_USER(n_dots <= 1, Index, "[getitem] {} ellipses; an index can only have a single one", n_dots);
  WHIT_USER(n_used <= self.ndim(), Index, "[getitem] too many indices: {} for shape {}", n_used, self.shape());
  Parsed p{self, {}};
  size_t axis = 0, seen = 0;  // axis of the view; axes of self that are done
  for (const Index& i : indices) {
    switch (i.kind()) {
      case Index::Kind::Integer: {
        const Sint n = size_of(p.view.shape(), axis), k = i.as_int().max() < 0 ? plus(i.as_int(), n) : i.as_int();
        WHIT_USER(at_most(0, k) && at_most(plus(k, 1), n), Index, "[getitem] index {} is out of bounds for axis {} of size {}", i.as_int(), seen, n);
        p.view = part(p.view, axis, k, plus(k, 1)).squeeze(static_cast<int64_t>(axis));
        ++seen;
        break;
      }
      case Index::Kind::Range:
        p.view = take_slice(p.view, axis++, i.as_slice());
        ++seen;
        break;
      case Index::Kind::Dots:
        axis += self.ndim() - n_used;
        seen += self.ndim() - n_used;
        break;
      case Index::Kind::Axis: p.view = p.view.unsqueeze(static_cast<int64_t>(axis++)); break;
      case Index::Kind::Values: {
        const Tensor& t = i.as_tensor();
        if (is_mask(i)) {
          // Its true places, read now: one index tensor for each of its axes.
          for (size_t k = 0; k < t.ndim(); ++k)
            WHIT_USER(t.shape()[k] == p.view.shape()[axis + k], Index, "[getitem] a mask of shape {} does not fit the axes from {} on of shape {}",
                      t.shape(), seen, self.shape());
          const Tensor places = t.nonzero();
          for (size_t k = 0; k < t.ndim(); ++k) p.tensors.push_back({axis++, places.get({Slice{}, static_cast<int64_t>(k)})});
          seen += t.ndim();
          break;
        }
        WHIT_USER(is_int(t.dtype()), Index, "[getitem] index tensor of {}; expected integers", t.dtype());
        const auto a = self.device(), b = t.device();
        WHIT_USER(!a || !b || *a == *b || is_file(*a), Runtime, "[getitem] the index is on {}, the tensor on {}", *b, *a);
        p.tensors.push_back({axis++, t});
        ++seen;
        break;
      }
    }
  }
  return p;
}

// The indexed axes first and joined, as GATHER and SCATTER want it.
struct Joined {
  Tensor rows;        ///< [product of the indexed axes, rest..]
  Tensor index;       ///< [broadcast index shape], -1 where any index is out of range
  Dims to_front;      ///< permutation that made rows
  Dims front_dims;    ///< shape after the permutation
  Dims dims;          ///< [index.., rest..]
  Dims result_order;  ///< of dims, to numpy's place
};

Joined join(const Parsed& p) {
  Joined j;
  const Shape& s = p.view.shape();
  Shape index_dims;
  int64_t n_rows = 1;
  bool consecutive = true;
  for (size_t k = 0; k < p.tensors.size(); ++k) {
    index_dims = broadcast_shapes("getitem", {&index_dims, &p.tensors[k].index.shape()});
    j.to_front.push_back(static_cast<int64_t>(p.tensors[k].axis));
    n_rows *= s[p.tensors[k].axis];
    consecutive &= k == 0 || p.tensors[k].axis == p.tensors[k - 1].axis + 1;
  }
  for (size_t i = 0; i < s.size(); ++i)
    if (std::ranges::find(j.to_front, static_cast<int64_t>(i)) == j.to_front.end()) j.to_front.push_back(static_cast<int64_t>(i));
  Dims row_dims{n_rows};
  for (size_t i = 0; i < j.to_front.size(); ++i) {
    j.front_dims.push_back(s[static_cast<size_t>(j.to_front[i])]);
    if (i >= p.tensors.size()) row_dims.push_back(j.front_dims.back());
  }
  j.rows = p.view.permute(j.to_front).reshape(row_dims);
  const DType dt = n_rows <= INT32_MAX ? DType::Int32 : DType::Int64;
  Tensor valid;
  for (const TensorIndex& t : p.tensors) {
    const int64_t size = s[t.axis];
    const Tensor i =
        t.index.cast(t.index.dtype() == DType::Int64 || t.index.dtype() == DType::UInt32 || t.index.dtype() == DType::UInt64 ? DType::Int64 : dt);
    const Tensor wrapped = i.lt(0).where(i + size, i);
    const Tensor ok = wrapped.ge(0) & wrapped.lt(size);
    valid = valid.defined() ? valid & ok : ok;
    j.index = j.index.defined() ? j.index * size + wrapped : wrapped;
  }
  if (p.tensors.size() > 1) j.index = valid.where(j.index, -1);
  j.index = broadcast_to("getitem", j.index, index_dims);
  j.dims = Dims(index_dims.begin(), index_dims.end());
  j.dims.append(row_dims.begin() + 1, row_dims.end());
  // Index axes stand where the first indexed axis was, or in front when something is between them.
  const int64_t n_index = static_cast<int64_t>(index_dims.size());
  const int64_t n_rest = static_cast<int64_t>(s.size() - p.tensors.size());
  const int64_t before = consecutive ? static_cast<int64_t>(p.tensors[0].axis) : 0;
  for (int64_t i = 0; i < before; ++i) j.result_order.push_back(n_index + i);
  for (int64_t i = 0; i < n_index; ++i) j.result_order.push_back(i);
  for (int64_t i = before; i < n_rest; ++i) j.result_order.push_back(n_index + i);
  return j;
}

Dims inverse(const Dims& order) {
  Dims out(order.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) out[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return out;
}

// `value` as something that can stand in a tensor of dtype dt.
Tensor as_value(const Tensor& target, const Tensor& value) {
  const DType dt = target.dtype();
  if (value.dtype() == dt) return value;
  const bool constant = is_weak(value.dtype()) || (value.ndim() == 0 && !value.device());
  WHIT_USER(constant, Runtime, "[setitem] the value is {}, the tensor {}", value.dtype(), dt);
  return value.cast(dt);
}

}  // namespace

Tensor Tensor::get(std::span<const Index> indices) const {
  must_be_defined("getitem", *this);
  const Parsed p = parse(*this, indices);
  if (p.tensors.empty()) return p.view;
  const Joined j = join(p);
  const Dims order = j.result_order;
  if (detail::prod(j.dims) == 0) return nothing_of(j.rows, j.dims).permute(order);
  if (j.rows.numel() == 0) return wrap(broadcast_scalar(whit::constant(dtype(), 0), j.dims)).permute(order);
  return wrap(whit::gather(j.rows.uop(), j.index.uop())).permute(order);
}
Tensor Tensor::get(std::initializer_list<Index> indices) const { return get(std::span<const Index>(indices.begin(), indices.size())); }
Tensor Tensor::operator[](const Index& index) const { return get(std::span<const Index>(&index, 1)); }

Tensor& Tensor::set(std::span<const Index> indices, const Tensor& value) {
  must_be_defined("setitem", *this);
  WHIT_USER(!is_weak(dtype()), Runtime, "[setitem] the tensor is {}, which cannot be stored", dtype());
  const Tensor v = as_value(*this, value);
  if (indices.size() == 1 && is_mask(indices[0]) && v.numel() == 1 && indices[0].as_tensor().shape() == shape())
    return assign(indices[0].as_tensor().where(v.reshape(Dims()), *this));  // needs no count
  const Parsed p = parse(*this, indices);
  if (!p.tensors.empty()) {
    const Joined j = join(p);
    if (detail::prod(j.dims) == 0) return *this;
    // The value in the order of the result, then index axes first.
    Dims placed;
    for (const int64_t a : j.result_order) placed.push_back(j.dims[static_cast<size_t>(a)]);
    const Tensor src = broadcast_to("setitem", v, placed).permute(inverse(j.result_order));
    const Tensor rows = wrap(whit::scatter(j.rows.uop(), j.index.uop(), src.uop(), "set"));
    const Tensor whole = rows.reshape(j.front_dims).permute(inverse(j.to_front));
    return p.view.is_same(*this) ? assign(whole) : set_view(p.view, whole);
  }
  if (p.view.numel() == 0) return *this;
  return set_view(p.view, v);
}
Tensor& Tensor::set(std::initializer_list<Index> indices, const Tensor& value) {
  return set(std::span<const Index>(indices.begin(), indices.size()), value);
}

// Writes through a view of this tensor: into the storage, or into a new value where there is none.
Tensor& Tensor::set_view(const Tensor& view, const Tensor& value) {
  if (impl_->storage) {
    Tensor(view).assign(value);
    return *this;
  }
  const UOp base = impl_->value;
  const Tensor v = broadcast_to("setitem", value, view.shape());
  const UOp chain = view.impl_->value;
  const UOp placed = transpose_chain(chain, base, v.uop());
  const UOp mask = transpose_chain(chain, base, broadcast_scalar(const_bool(true), view.shape()));
  impl_->take(*wrap(alu(Op::Where, {mask, placed, base})).impl_);
  return *this;
}

}  // namespace whit
