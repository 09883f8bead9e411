// The shape rule of every op. A wrong shape here is a bug of whoever built the node: the front end checks its user's
// shapes before and words the error.
#include <algorithm>

#include "ir/build.h"

namespace whit::detail {
namespace {

constexpr OpSet kShapeOfFirst{Op::Contiguous, Op::ContiguousBackward, Op::Detach,  Op::Copy, Op::After,
                              Op::Call,       Op::EndRange,           Op::Program, Op::Stage};
constexpr OpSet kScalar{Op::Variable, Op::Bind,  Op::Range, Op::Lane,  Op::Fold,   Op::Store,  Op::End,
                        Op::If,       Op::EndIf, Op::Sink,  Op::Tuple, Op::Linear, Op::Source, Op::Binary};

bool has_negative(std::span<const int64_t> dims) {
  return std::ranges::any_of(dims, [](int64_t d) { return d < 0; });
}

int64_t add(int64_t a, int64_t b) {
  WHIT_USER(!__builtin_add_overflow(a, b, &a), Value, "a size of a shape has more than 63 bits");
  return a;
}
int64_t mul(int64_t a, int64_t b) {
  WHIT_USER(!__builtin_mul_overflow(a, b, &a), Value, "a size of a shape has more than 63 bits");
  return a;
}

Shape elementwise(Op op, std::span<const UOp> src) {
  const Shape* common = nullptr;
  for (const UOp& s : src) {
    if (s.shape().empty()) continue;
    if (!common) {
      common = &s.shape();
    } else {
      WHIT_CHECK(*common == s.shape(), "{} of shapes {} and {}", op, common->str(), s.shape());
    }
  }
  return common ? *common : Shape();
}

// `dims` with the symbols of the axes of `in` that an op leaves alone: axis i shows axis from(i), a fresh one where that
// is past the rank.
template <class From> Shape carried(const Dims& dims, const Shape& in, From&& from) {
  if (!in.is_symbolic()) return dims;
  SmallVec<const Node*, 8> symbols;
  for (size_t i = 0; i < dims.size(); ++i) symbols.push_back(from(i) < in.size() ? in.symbol(from(i)) : nullptr);
  return Shape(dims, symbols);
}
size_t same_axis(size_t i) { return i; }

void check_number(Op op, const Shape& in, size_t axis) {
  WHIT_USER(!in.symbol(axis), NotImplemented, "{} over axis {} of shape {}, whose size is symbolic", op, axis, in);
}

Shape reshaped(const Shape& in, std::span<const int64_t> dims) {
  const Shape s(dims);
  WHIT_CHECK(s.numel() == in.numel() && !has_negative(dims), "RESHAPE of {} to {}", in, s);
  const std::optional<Shape> out = reshaped_sizes(in, dims);
  WHIT_USER(out, NotImplemented, "RESHAPE of {} to {} joins or splits an axis whose size is symbolic", in, s);
  return *out;
}

Shape movement(Op op, std::span<const UOp> src, const Arg& arg) {
  const Shape& in = src[0].shape();
  const auto a = arg.as_ints();
  Dims out(in.begin(), in.end());
  const size_t axis = a.empty() ? 0 : static_cast<size_t>(a[0]);  // of those that are about one axis
  switch (op) {
    case Op::Reshape: return reshaped(in, a);
    case Op::Expand: {
      WHIT_CHECK(a.size() == in.size(), "EXPAND of {} to rank {}", in, a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        WHIT_CHECK(in[i] == a[i] || in[i] == 1, "EXPAND of {} axis {} to {}", in, i, a[i]);
        out[i] = a[i];
      }
      return carried(out, in, same_axis);
    }
    case Op::Permute:
      WHIT_CHECK(a.size() == in.size(), "PERMUTE of rank {} by {} axes", in.size(), a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        const size_t from = static_cast<size_t>(a[i]);
        WHIT_CHECK(from < in.size() && std::ranges::count(a, a[i]) == 1, "PERMUTE of rank {} by {}", in.size(), Shape(a));
        out[i] = in[from];
      }
      return carried(out, in, [&](size_t i) { return static_cast<size_t>(a[i]); });
    case Op::Pad:
    case Op::Shrink: {
      WHIT_CHECK(a.size() == 2 * in.size(), "{} of rank {} with {} numbers", op, in.size(), a.size());
      SmallVec<const Node*, 8> symbols;
      size_t next = 1;
      for (size_t i = 0; i < in.size(); ++i) {
        const int64_t x = a[2 * i], y = a[2 * i + 1];
        if (x == -1) {
          WHIT_CHECK(next + 1 < src.size() && src[next].vmin() >= 0 && src[next + 1].vmin() >= 0 && src[next + 1].vmax() <= y,
                     "{} of axis {} to a size of {} at most", op, i, y);
          out[i] = y;
          symbols.push_back(src[next + 1].is_const() && src[next + 1].vmin() == y ? nullptr : src[next + 1].node());
          next += 2;
          continue;
        }
        symbols.push_back(in.symbol(i));
        if (y != (op == Op::Pad ? 0 : in[i]) || x != 0) check_number(op, in, i);
        if (op == Op::Pad) {
          WHIT_CHECK(x >= 0 && y >= 0, "PAD axis {} by {} and {}", i, x, y);
          out[i] = add(in[i], add(x, y));
        } else {
          WHIT_CHECK(0 <= x && x <= y && y <= in[i], "SHRINK axis {} of {} to [{}, {})", i, in, x, y);
          out[i] = y - x;
        }
      }
      WHIT_CHECK(next == src.size(), "{} with {} sources, expected {}", op, src.size(), next);
      return Shape(out, symbols);
    }
    case Op::Flip:
      for (const int64_t flipped : a) {
        WHIT_CHECK(static_cast<size_t>(flipped) < in.size(), "FLIP of {} axis {}", in, flipped);
        check_number(op, in, static_cast<size_t>(flipped));
      }
      return in;
    case Op::Window:
      WHIT_CHECK(a.size() == 4, "WINDOW with {} numbers", a.size());
      WHIT_CHECK(axis < in.size() && a[1] > 0 && a[2] > 0 && a[3] > 0 && in[axis] > mul(a[3], a[1] - 1),
                 "WINDOW of {} axis {} size {} stride {} dilation {}", in, axis, a[1], a[2], a[3]);
      check_number(op, in, axis);
      out[axis] = (in[axis] - a[3] * (a[1] - 1) - 1) / a[2] + 1;
      out.push_back(a[1]);
      return carried(out, in, same_axis);
    case Op::Unwindow:
      WHIT_CHECK(a.size() == 4, "UNWINDOW with {} numbers", a.size());
      WHIT_CHECK(a[0] >= 0 && axis + 1 < in.size() && a[2] > 0 && a[3] > 0 && add(mul(in[axis] - 1, a[2]), mul(in.back() - 1, a[3])) < a[1],
                 "UNWINDOW of {} axis {} to size {} stride {} dilation {}", in, a[0], a[1], a[2], a[3]);
      check_number(op, in, axis);
      check_number(op, in, in.size() - 1);
      out[axis] = a[1];
      out.pop_back();
      return carried(out, in, same_axis);
    case Op::Shard:
    case Op::Unshard:
      WHIT_CHECK(a.size() == 2 && axis < in.size() && a[1] > 1 && (op == Op::Unshard || in[axis] % a[1] == 0), "{} of {} axis {} by {}", op, in, a[0],
                 a[1]);
      check_number(op, in, axis);
      out[axis] = op == Op::Shard ? in[axis] / a[1] : mul(in[axis], a[1]);
      return carried(out, in, same_axis);
    default: raise(ErrorKind::Internal, "not a unary movement op");
  }
}

}  // namespace

std::optional<Shape> reshaped_sizes(const Shape& in, std::span<const int64_t> dims) {
  SmallVec<const Node*, 8> symbols(dims.size(), nullptr);
  int64_t before = 1;
  for (size_t i = 0; in.is_symbolic() && i < in.size(); before *= in[i++]) {
    if (!in.symbol(i)) continue;
    int64_t n = 1;
    size_t k = 0;
    while (k < dims.size() && (n != before || dims[k] != in[i])) n *= dims[k++];
    if (k == dims.size()) return {};
    symbols[k] = in.symbol(i);
  }
  return Shape(dims, symbols);
}

Shape infer_shape(Op op, DType dtype, std::span<const UOp> src, const Arg& arg) {
  switch (op) {
    case Op::Buffer: return Shape{arg.int_at(2)};
    case Op::Param: {
      Dims d;
      if (arg.kind() == Arg::Kind::Ints) {
        WHIT_CHECK(!arg.as_ints().empty(), "PARAM without a slot");
        d.append(arg.as_ints().begin() + 1, arg.as_ints().end());
      } else {
        for (size_t i = 1; i < arg.as_list().size(); ++i) d.push_back(arg.int_at(i));
      }
      return d;
    }
    case Op::Lanes: return Shape{arg.as_int()};
    case Op::Reg: return arg.int_at(1) > 1 ? Shape{arg.int_at(1)} : Shape();
    case Op::Scratch: return Shape{arg.int_at(1)};
    case Op::Vec: return Shape{static_cast<int64_t>(src.size())};
    case Op::Const:
      WHIT_CHECK(arg.is_invalid() || (is_float(dtype) ? arg.is_float()
                                      : is_int(dtype) ? arg.is_int()
                                                      : arg.is_bool()),
                 "CONST {} with an argument of another kind", dtype);
      return Shape();
    case Op::Bitcast: {
      const Shape& in = src[0].shape();
      const int from = n_bytes(src[0].dtype()), to = n_bytes(dtype);
      if (from == to || in.empty()) return in;
      Dims d(in.begin(), in.end());
      WHIT_CHECK(to != 0 && mul(d.back(), from) % to == 0, "BITCAST of {} {} to {}", in, src[0].dtype(), dtype);
      check_number(op, in, in.size() - 1);
      d.back() = d.back() * from / to;
      return carried(d, in, same_axis);
    }
    case Op::Stack: {
      const Dims d = with_front(static_cast<int64_t>(src.size()), src[0].shape());
      for (const UOp& s : src) WHIT_CHECK(s.shape() == src[0].shape(), "STACK of {} and {}", src[0].shape(), s.shape());
      return carried(d, src[0].shape(), [](size_t i) { return i - 1; });
    }
    case Op::Gather: {
      Dims d(src[1].shape().begin(), src[1].shape().end());
      WHIT_CHECK(!src[0].shape().empty(), "GATHER from a scalar");
      const size_t rank = d.size();
      d.append(src[0].shape().begin() + 1, src[0].shape().end());
      if (!src[0].shape().is_symbolic()) return carried(d, src[1].shape(), same_axis);
      check_number(op, src[0].shape(), 0);
      WHIT_USER(!src[1].shape().is_symbolic(), NotImplemented, "GATHER from {} by {}: both have a symbolic size", src[0].shape(), src[1].shape());
      return carried(d, src[0].shape(), [&](size_t i) { return i < rank ? SIZE_MAX : i - rank + 1; });
    }
    case Op::Scatter: {
      Dims want(src[1].shape().begin(), src[1].shape().end());
      want.append(src[0].shape().begin() + 1, src[0].shape().end());
      for (const UOp& s : src)
        for (size_t i = 0; i < s.shape().size(); ++i) check_number(op, s.shape(), i);
      WHIT_CHECK(src[2].shape() == Shape(want), "SCATTER of {} by {} into {}", src[2].shape(), src[1].shape(), src[0].shape());
      return src[0].shape();
    }
    case Op::Reduce: {
      WHIT_CHECK(!arg.as_list().empty(), "REDUCE without a monoid");
      if (arg.as_list().size() == 1) return src[0].shape();  // of a kernel: over ranges
      Dims d(src[0].shape().begin(), src[0].shape().end());
      for (size_t i = 1; i < arg.as_list().size(); ++i) {
        const int64_t axis = arg.int_at(i);
        WHIT_CHECK(axis >= 0 && static_cast<size_t>(axis) < d.size(), "REDUCE axis {} of {}", axis, src[0].shape());
        check_number(op, src[0].shape(), static_cast<size_t>(axis));
        d[static_cast<size_t>(axis)] = 1;
      }
      return carried(d, src[0].shape(), same_axis);
    }
    case Op::Index: return src[1].shape();
    case Op::Load:
      if (arg.is_int()) return arg.as_int() > 1 ? Shape{arg.as_int()} : Shape();
      return src[0].shape();
    case Op::GetTuple: {
      const UOp& t = src[0];
      const UOp body = t.op() == Op::Call ? t.src(0) : t;
      const size_t i = static_cast<size_t>(arg.as_int());
      WHIT_CHECK(body.op() == Op::Tuple && i < body.n_src(), "GETTUPLE {} of {}", i, body.op());
      return body.src(i).shape();
    }
    default: break;
  }
  if (is_elementwise(op)) return elementwise(op, src);
  if (kShapeOfFirst.has(op)) return src[0].shape();
  if (kScalar.has(op)) return Shape();
  WHIT_CHECK(is_movement(op), "no shape rule for {}", op);
  return movement(op, src, arg);
}

}  // namespace whit::detail
