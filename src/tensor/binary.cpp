// Elementwise operations of two and three operands.
#include <cmath>

#include "ir/eval.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

// An op over operands that have met; constants are folded.
Tensor joined(Op op, std::span<const UOp> src) {
  bool all_const = true;
  for (const UOp& s : src) all_const &= s.is_const() && !s.arg().is_invalid();
  if (!all_const) return wrap(alu(op, src));
  const DType dt = is_comparison(op) ? DType::Bool : src[op == Op::Where ? 1 : 0].dtype();
  return wrap(fold_constants(op, dt, src));
}

Tensor binary(const char* text, Op op, const Tensor& x, const Tensor& y) { return joined(op, broadcasted(text, {&x, &y})); }

void must_have_bits(const char* text, const Tensor& x) {
  WHIT_USER(!is_float(x.dtype()), Runtime, "[{}] {} has no bits to work on; expected integers or bool", text, x.dtype());
}

Tensor bits(const char* text, Op op, const Tensor& x, const Tensor& y) {
  must_have_bits(text, x);
  must_have_bits(text, y);
  return binary(text, op, x, y);
}

// A constant exponent, or NaN.
double const_value(const Tensor& x) {
  const UOp c = base_const(x.uop());
  return c ? scalar_of(c).as_double() : std::nan("");
}

Tensor int_power(const Tensor& x, int n) {
  if (n == 1) return x;
  const Tensor half = int_power(x, n / 2), sq = half * half;
  return n % 2 ? sq * x : sq;
}

}  // namespace

Tensor Tensor::add(const Tensor& x) const { return binary("add", Op::Add, *this, x); }
Tensor Tensor::sub(const Tensor& x) const {
  const std::vector<UOp> s = broadcasted("sub", {this, &x});
  return joined(s[0].dtype() == DType::Bool ? Op::Xor : Op::Sub, s);
}
Tensor Tensor::mul(const Tensor& x) const { return binary("mul", Op::Mul, *this, x); }

Tensor Tensor::div(const Tensor& x, std::string_view rounding_mode) const {
  WHIT_USER(rounding_mode.empty() || rounding_mode == "trunc" || rounding_mode == "floor", Runtime,
            "[div] rounding_mode '{}'; expected 'trunc', 'floor' or nothing", rounding_mode);
  if (rounding_mode == "floor") return floordiv(x);
  std::vector<UOp> s = broadcasted("div", {this, &x});
  if (!is_float(s[0].dtype())) {
    if (rounding_mode == "trunc" && s[0].dtype() != DType::Bool) return joined(Op::Cdiv, s);
    for (UOp& u : s) u = cast_value(u, default_float());
  }
  const Tensor q = joined(Op::Fdiv, s);
  return rounding_mode == "trunc" ? q.trunc() : q;
}

Tensor Tensor::floordiv(const Tensor& x) const {
  std::vector<UOp> s = broadcasted("floordiv", {this, &x});
  if (is_float(s[0].dtype())) return joined(Op::Fdiv, s).floor();
  return joined(s[0].dtype() == DType::Bool ? Op::And : Op::FloorDiv, s);
}

static Tensor remainder(const char* text, Op op, const Tensor& x, const Tensor& y) {
  const std::vector<UOp> s = broadcasted(text, {&x, &y});
  if (s[0].dtype() != DType::Bool) return joined(op, s);
  return joined(Op::And, std::vector<UOp>{s[0], alu(Op::Xor, {s[1], const_bool(true)})});
}
Tensor Tensor::mod(const Tensor& x) const { return remainder("mod", Op::FloorMod, *this, x); }
Tensor Tensor::fmod(const Tensor& x) const { return remainder("fmod", Op::Cmod, *this, x); }

Tensor Tensor::pow(const Tensor& x) const {
  must_be_defined("pow", *this);
  must_be_defined("pow", x);
  const double e = const_value(x);
  if (!std::isnan(e)) {
    const bool whole = e == std::floor(e) && std::fabs(e) <= 16;
    WHIT_USER(is_float(dtype()) || e >= 0 || is_float(x.dtype()), Runtime,
              "[pow] the base is {} and the exponent {}; base needs to be float for a negative exponent", dtype(), e);
    if (whole && e != 0) {
      const DType dt = least_upper_dtype(dtype(), x.dtype());
      const Tensor base = broadcast_to("pow", cast(dt), broadcast_shapes("pow", {&shape(), &x.shape()}));
      const Tensor p = int_power(base, static_cast<int>(std::fabs(e)));
      return e < 0 ? p.reciprocal() : p;
    }
  }
  return binary("pow", Op::Pow, *this, x);
}

Tensor Tensor::maximum(const Tensor& x) const { return binary("maximum", Op::Max, *this, x); }
Tensor Tensor::minimum(const Tensor& x) const { return binary("minimum", Op::Min, *this, x); }
Tensor Tensor::bitwise_and(const Tensor& x) const { return bits("bitwise_and", Op::And, *this, x); }
Tensor Tensor::bitwise_or(const Tensor& x) const { return bits("bitwise_or", Op::Or, *this, x); }
Tensor Tensor::bitwise_xor(const Tensor& x) const { return bits("bitwise_xor", Op::Xor, *this, x); }

static Tensor shift(const char* text, Op op, const Tensor& x, const Tensor& y) {
  must_have_bits(text, x);
  must_have_bits(text, y);
  std::vector<UOp> s = broadcasted(text, {&x, &y});
  if (s[0].dtype() == DType::Bool)
    for (UOp& u : s) u = cast_value(u, default_int());
  return joined(op, s);
}
Tensor Tensor::lshift(const Tensor& x) const { return shift("lshift", Op::Shl, *this, x); }
Tensor Tensor::rshift(const Tensor& x) const { return shift("rshift", Op::Shr, *this, x); }

Tensor Tensor::lt(const Tensor& x) const { return binary("lt", Op::CmpLt, *this, x); }
Tensor Tensor::gt(const Tensor& x) const { return binary("gt", Op::CmpLt, x, *this); }
Tensor Tensor::le(const Tensor& x) const {
  const std::vector<UOp> s = broadcasted("le", {this, &x});
  if (is_float(s[0].dtype())) return joined(Op::Or, std::vector<UOp>{joined(Op::CmpLt, s).uop(), joined(Op::CmpEq, s).uop()});
  return joined(Op::CmpLt, std::vector<UOp>{s[1], s[0]}).logical_not();
}
Tensor Tensor::ge(const Tensor& x) const { return x.le(*this); }
Tensor Tensor::eq(const Tensor& x) const { return binary("eq", Op::CmpEq, *this, x); }
Tensor Tensor::ne(const Tensor& x) const { return binary("ne", Op::CmpNe, *this, x); }

Tensor Tensor::where(const Tensor& x, const Tensor& y) const {
  must_be_defined("where", *this);
  WHIT_USER(dtype() == DType::Bool, Runtime, "[where] the condition is {}; expected bool", dtype());
  std::vector<UOp> s = broadcasted("where", {&x, &y});
  const Shape xs = s[0].shape().empty() ? s[1].shape() : s[0].shape();
  const Shape dims = broadcast_shapes("where", {&shape(), &xs});
  UOp c = uop();
  if (!c.shape().empty()) c = broadcast_to(c, dims);
  for (UOp& u : s)
    if (!u.shape().empty()) u = broadcast_to(u, dims);
  return joined(Op::Where, std::vector<UOp>{c, s[0], s[1]});
}

Tensor Tensor::masked_fill(const Tensor& mask, const Tensor& value) const { return mask.where(value, *this); }

Tensor Tensor::threefry(const Tensor& seed) const {
  WHIT_USER(dtype() == DType::UInt64 && seed.dtype() == DType::UInt64, Runtime, "[threefry] counter {} and key {}; expected uint64 both", dtype(),
            seed.dtype());
  return binary("threefry", Op::Threefry, *this, seed);
}

Tensor Tensor::copysign(const Tensor& other) const {
  const std::vector<UOp> s = broadcasted("copysign", {this, &other});
  const Tensor x = to_float_dtype(wrap(s[0])), y = to_float_dtype(wrap(s[1]));
  // The sign of a zero shows in its reciprocal; that of a NaN is taken for positive.
  const Tensor negative = y.lt(0) | (y.eq(0) & y.reciprocal().lt(0));
  const Tensor size = x.abs();
  // The sign has a gradient, which is zero.
  return Tensor(false).where(y, negative.where(size.neg(), size));
}

Tensor Tensor::logaddexp(const Tensor& other) const {
  const std::vector<UOp> s = broadcasted("logaddexp", {this, &other});
  const Tensor x = to_float_dtype(wrap(s[0])), y = to_float_dtype(wrap(s[1]));
  const Tensor m = x.maximum(y).detach();
  const Tensor safe = m.isinf().where(m.zeros_like({.buffer = false}), m);  // of two equal infinities the maximum is the answer
  const Tensor r = ((x - safe).exp() + (y - safe).exp()).log() + safe;
  return m.eq(-INFINITY).where(m, r);
}

Tensor Tensor::isclose(const Tensor& other, const CloseOptions& o) const {
  const Tensor near = (*this - other).abs().le(Tensor(o.atol) + Tensor(o.rtol) * other.abs());
  const Tensor finite = isfinite() & other.isfinite();
  const Tensor out = (finite & near) | eq(other);
  return o.equal_nan ? out | (isnan() & other.isnan()) : out;
}
Tensor Tensor::allclose(const Tensor& other, const CloseOptions& o) const { return isclose(other, o).all(); }

Tensor Tensor::lerp(const Tensor& end, const Tensor& weight) const {
  if (dtype() == DType::UInt8 && is_float(weight.dtype())) {
    // Fixed point with 7 bits, as image code does.
    const Tensor w = (weight * 128.0 + 0.5).cast(DType::Int16);
    const Tensor from = cast(DType::Int16), span = end.cast(DType::Int16) - from;
    return (from + ((span * w + 64) >> 7)).cast(DType::UInt8);
  }
  return *this + (end - *this) * weight;
}

}  // namespace whit
