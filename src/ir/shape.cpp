// The shape rule of every op. A wrong shape here is a bug of whoever built the node: the front end checks its user's
// shapes before and words the error.
#include <algorithm>

#include "ir/uop.h"

namespace whit::detail {
namespace {

bool has_negative(std::span<const int64_t> dims) {
  return std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; });
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
      WHIT_CHECK(*common == s.shape(), "{} of shapes {} and {}", name(op), common->str(), s.shape().str());
    }
  }
  return common ? *common : Shape();
}

Shape movement(Op op, const Shape& in, const Arg& arg) {
  const auto a = arg.as_ints();
  Dims out(in.begin(), in.end());
  switch (op) {
    case Op::Reshape: {
      Shape s(a);
      WHIT_CHECK(s.numel() == in.numel() && !has_negative(a), "RESHAPE of {} to {}", in.str(), s.str());
      return s;
    }
    case Op::Expand: {
      WHIT_CHECK(a.size() == in.size(), "EXPAND of {} to rank {}", in.str(), a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        WHIT_CHECK(in[i] == a[i] || in[i] == 1, "EXPAND of {} axis {} to {}", in.str(), i, a[i]);
        out[i] = a[i];
      }
      return out;
    }
    case Op::Permute:
      WHIT_CHECK(a.size() == in.size(), "PERMUTE of rank {} by {} axes", in.size(), a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        const size_t from = static_cast<size_t>(a[i]);
        WHIT_CHECK(from < in.size() && std::count(a.begin(), a.end(), a[i]) == 1, "PERMUTE of rank {} by {}", in.size(),
                   Shape(a).str());
        out[i] = in[from];
      }
      return out;
    case Op::Pad:
    case Op::Shrink:
      WHIT_CHECK(a.size() == 2 * in.size(), "{} of rank {} with {} numbers", name(op), in.size(), a.size());
      for (size_t i = 0; i < in.size(); ++i) {
        const int64_t x = a[2 * i], y = a[2 * i + 1];
        if (op == Op::Pad) {
          WHIT_CHECK(x >= 0 && y >= 0, "PAD axis {} by {} and {}", i, x, y);
          out[i] = add(in[i], add(x, y));
        } else {
          WHIT_CHECK(0 <= x && x <= y && y <= in[i], "SHRINK axis {} of {} to [{}, {})", i, in.str(), x, y);
          out[i] = y - x;
        }
      }
      return out;
    case Op::Flip:
      for (const int64_t axis : a)
        WHIT_CHECK(static_cast<size_t>(axis) < in.size(), "FLIP of {} axis {}", in.str(), axis);
      return in;
    case Op::Window: {
      WHIT_CHECK(a.size() == 4, "WINDOW with {} numbers", a.size());
      const size_t axis = static_cast<size_t>(a[0]);
      WHIT_CHECK(axis < in.size() && a[1] > 0 && a[2] > 0 && a[3] > 0 && in[axis] > mul(a[3], a[1] - 1),
                 "WINDOW of {} axis {} size {} stride {} dilation {}", in.str(), axis, a[1], a[2], a[3]);
      out[axis] = (in[axis] - a[3] * (a[1] - 1) - 1) / a[2] + 1;
      out.push_back(a[1]);
      return out;
    }
    case Op::Unwindow: {
      WHIT_CHECK(a.size() == 4, "UNWINDOW with {} numbers", a.size());
      const size_t axis = static_cast<size_t>(a[0]);
      WHIT_CHECK(a[0] >= 0 && axis + 1 < in.size() && a[2] > 0 && a[3] > 0 &&
                     add(mul(in[axis] - 1, a[2]), mul(in.back() - 1, a[3])) < a[1],
                 "UNWINDOW of {} axis {} to size {} stride {} dilation {}", in.str(), a[0], a[1], a[2], a[3]);
      out[axis] = a[1];
      out.pop_back();
      return out;
    }
    case Op::Shard:
    case Op::Unshard: {
      const size_t axis = static_cast<size_t>(a[0]);
      WHIT_CHECK(a.size() == 2 && axis < in.size() && a[1] > 1 && (op == Op::Unshard || in[axis] % a[1] == 0),
                 "{} of {} axis {} by {}", name(op), in.str(), a[0], a[1]);
      out[axis] = op == Op::Shard ? in[axis] / a[1] : mul(in[axis], a[1]);
      return out;
    }
    default:
      raise(ErrorKind::Internal, "not a unary movement op");
  }
}

}  // namespace

Shape infer_shape(Op op, DType dtype, std::span<const UOp> src, const Arg& arg) {
  switch (op) {
    case Op::Buffer:
      return Shape{arg.int_at(2)};
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
    case Op::Lanes:
      return Shape{arg.as_int()};
    case Op::Reg:
      return arg.int_at(1) > 1 ? Shape{arg.int_at(1)} : Shape();
    case Op::Scratch:
      return Shape{arg.int_at(1)};
    case Op::Vec:
      return Shape{static_cast<int64_t>(src.size())};
    case Op::Lane:
    case Op::Fold:
      return Shape();
    case Op::Const:
      WHIT_CHECK(arg.is_invalid() || (is_float(dtype) ? arg.is_float()
                                      : is_int(dtype) ? arg.is_int()
                                                      : arg.is_bool()),
                 "CONST {} with an argument of another kind", name(dtype));
      return Shape();
    case Op::Variable:
    case Op::Range:
      return Shape();
    case Op::Bitcast: {
      const Shape& in = src[0].shape();
      const int from = n_bytes(src[0].dtype()), to = n_bytes(dtype);
      if (from == to || in.empty()) return in;
      Dims d(in.begin(), in.end());
      WHIT_CHECK(to != 0 && mul(d.back(), from) % to == 0, "BITCAST of {} {} to {}", in.str(), name(src[0].dtype()),
                 name(dtype));
      d.back() = d.back() * from / to;
      return d;
    }
    case Op::Contiguous:
    case Op::ContiguousBackward:
    case Op::Detach:
    case Op::Copy:
    case Op::After:
    case Op::Call:
    case Op::EndRange:
    case Op::Program:
      return src[0].shape();
    case Op::Stack: {
      Dims d{static_cast<int64_t>(src.size())};
      d.append(src[0].shape().begin(), src[0].shape().end());
      for (const UOp& s : src)
        WHIT_CHECK(s.shape() == src[0].shape(), "STACK of {} and {}", src[0].shape().str(), s.shape().str());
      return d;
    }
    case Op::Gather: {
      Dims d(src[1].shape().begin(), src[1].shape().end());
      WHIT_CHECK(!src[0].shape().empty(), "GATHER from a scalar");
      d.append(src[0].shape().begin() + 1, src[0].shape().end());
      return d;
    }
    case Op::Scatter: {
      Dims want(src[1].shape().begin(), src[1].shape().end());
      want.append(src[0].shape().begin() + 1, src[0].shape().end());
      WHIT_CHECK(src[2].shape() == Shape(want), "SCATTER of {} by {} into {}", src[2].shape().str(),
                 src[1].shape().str(), src[0].shape().str());
      return src[0].shape();
    }
    case Op::Reduce: {
      WHIT_CHECK(!arg.as_list().empty(), "REDUCE without a monoid");
      if (arg.as_list().size() == 1) return src[0].shape();  // of a kernel: over ranges
      Dims d(src[0].shape().begin(), src[0].shape().end());
      for (size_t i = 1; i < arg.as_list().size(); ++i) {
        const int64_t axis = arg.int_at(i);
        WHIT_CHECK(axis >= 0 && static_cast<size_t>(axis) < d.size(), "REDUCE axis {} of {}", axis,
                   src[0].shape().str());
        d[static_cast<size_t>(axis)] = 1;
      }
      return d;
    }
    case Op::Stage:
      return src[0].shape();
    case Op::Index:
      return src[1].shape();
    case Op::Load:
      if (arg.is_int()) return arg.as_int() > 1 ? Shape{arg.as_int()} : Shape();
      return src[0].shape();
    case Op::Store:
    case Op::End:
    case Op::If:
    case Op::EndIf:
    case Op::Sink:
    case Op::Tuple:
    case Op::Linear:
    case Op::Source:
    case Op::Binary:
      return Shape();
    case Op::GetTuple: {
      const UOp& t = src[0];
      const UOp body = t.op() == Op::Call ? t.src(0) : t;
      const size_t i = static_cast<size_t>(arg.as_int());
      WHIT_CHECK(body.op() == Op::Tuple && i < body.n_src(), "GETTUPLE {} of {}", i, name(body.op()));
      return body.src(i).shape();
    }
    default:
      break;
  }
  if (is_movement(op)) return movement(op, src[0].shape(), arg);
  WHIT_CHECK(is_elementwise(op), "no shape rule for {}", name(op));
  return elementwise(op, src);
}

}  // namespace whit::detail
