// Elementwise operations of one operand.
#include <cmath>
#include <numbers>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

bool is_f64(const Tensor& x) { return x.dtype() == DType::Float64; }

// Runs fn in at least float32 and casts back.
template <class Fn>
Tensor widened(const Tensor& x, Fn&& fn) {
  const DType dt = x.dtype();
  const DType wide = is_weak(dt) ? dt : least_upper_dtype(dt, DType::Float32);
  return fn(x.cast(wide)).cast(dt);
}

// The smallest positive number: x < smallest is x <= 0, and false for NaN.
Tensor smallest(DType dt) {
  if (!is_float(dt)) return Tensor::constant_int(1, dt);
  const DTypeInfo& i = info(is_weak(dt) ? DType::Float32 : dt);
  const int bias = (1 << (i.exponent_bits - 1)) - 1;
  return Tensor::constant(std::ldexp(1.0, 1 - bias - i.mantissa_bits), dt);
}

// c0 + x (c1 + x (c2 ...))
Tensor poly(const Tensor& x, std::initializer_list<double> c) {
  const double* p = c.end();
  Tensor r = *--p;
  while (p != c.begin()) r = r * x + *--p;
  return r;
}

// log(1 + x) that keeps small x; x >= -1.
Tensor log1p(const Tensor& x) {
  const Tensor u = x + 1.0;
  const Tensor exact = u.eq(1.0) | u.isinf();
  const Tensor d = exact.where(1.0, (u - 1.0));
  const Tensor big = exact.where(2.0, u).log() * (exact.where(1.0, x) / d.detach());
  return u.eq(1.0).where(x, u.isinf().where(x, big));
}

}  // namespace

Tensor Tensor::neg() const { return dtype() == DType::Bool ? logical_not() : wrap(alu(Op::Neg, {uop()})); }
Tensor Tensor::logical_not() const {
  const Tensor b = cast(DType::Bool);
  return wrap(alu(Op::Xor, {b.uop(), const_bool(true)}));
}
Tensor Tensor::bitwise_not() const {
  if (dtype() == DType::Bool) return logical_not();
  return bitwise_xor(constant_int(-1, dtype()));
}
Tensor Tensor::reciprocal() const { return alu1(Op::Recip, to_float_dtype(*this)); }
Tensor Tensor::sqrt() const { return alu1(Op::Sqrt, to_float_dtype(*this)); }
Tensor Tensor::rsqrt() const { return sqrt().reciprocal(); }
Tensor Tensor::sin() const { return alu1(Op::Sin, to_float_dtype(*this)); }
Tensor Tensor::exp2() const { return alu1(Op::Exp2, to_float_dtype(*this)); }
Tensor Tensor::log2() const { return alu1(Op::Log2, to_float_dtype(*this)); }
Tensor Tensor::square() const { return *this * *this; }

Tensor Tensor::exp() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) { return (x * std::numbers::log2e).exp2(); });
}
Tensor Tensor::log() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) { return x.log2() * std::numbers::ln2; });
}
Tensor Tensor::log10() const {
  return widened(to_float_dtype(*this),
                 [](const Tensor& x) { return x.log2() * (std::numbers::ln2 / std::numbers::ln10); });
}
Tensor Tensor::cos() const {
  // x/2 is exact, so large arguments lose nothing that sin does not lose.
  return widened(to_float_dtype(*this), [](const Tensor& x) {
    const Tensor s = (x * 0.5).sin();
    return Tensor(1.0) - s * s * 2.0;
  });
}
Tensor Tensor::tan() const { return sin() / cos(); }

// ---- rounding and parts

Tensor Tensor::trunc() const { return is_float(dtype()) ? alu1(Op::Trunc, *this) : *this; }
Tensor Tensor::floor() const {
  if (!is_float(dtype())) return *this;
  const Tensor t = trunc();
  return lt(t).where(t - 1.0, t);
}
Tensor Tensor::ceil() const {
  if (!is_float(dtype())) return *this;
  const Tensor t = trunc();
  return gt(t).where(t + 1.0, t);
}
Tensor Tensor::round() const {
  const Tensor x = is_float(dtype()) ? *this : cast(DType::WeakFloat);
  const Tensor t = x.trunc(), half = t * 0.5;
  const Tensor part = (x - t).abs();  // exact
  const Tensor away = part.gt(0.5) | (part.eq(0.5) & half.ne(half.trunc()));
  return away.where(t + x.lt(0).where(-1.0, 1.0).cast(x.dtype()), t);
}
Tensor Tensor::sign() const {
  const Tensor zero = constant(0.0, dtype()), one = constant(1.0, dtype());
  if (is_unsigned(dtype()) || dtype() == DType::Bool) return ne(zero).where(one, zero);
  const Tensor s = eq(0).where(zero, lt(0).where(constant(-1.0, dtype()), one));
  return is_float(dtype()) ? isnan().where(detach(), s) : s;
}
Tensor Tensor::abs() const {
  if (is_unsigned(dtype()) || dtype() == DType::Bool) return *this;
  // A zero times itself is +0, and the gradient there is 0.
  const Tensor s = eq(0).where(detach(), lt(0).where(constant(-1.0, dtype()), constant(1.0, dtype())));
  return *this * s;
}
Tensor Tensor::isnan() const { return ne(*this); }
Tensor Tensor::isinf(bool detect_positive, bool detect_negative) const {
  const Tensor no = constant_int(0, DType::Bool);
  if (!is_float(dtype())) return eq(*this) & no;
  const Tensor pos = detect_positive ? eq(INFINITY) : eq(INFINITY) & no;
  return detect_negative ? pos | eq(-INFINITY) : pos;
}
Tensor Tensor::isfinite() const { return (isinf() | isnan()).logical_not(); }

// ---- inverse and hyperbolic functions. Branches that are not taken compute on harmless values, so that no gradient
// becomes 0 * inf.

Tensor Tensor::atan() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) {
    const Tensor big = x.abs().gt(1.0);
    Tensor r = big.where(x.isinf().where(0.0, big.where(x, 1.0).reciprocal()), x);
    // Halve the angle: atan(r) = 2 atan(r / (1 + sqrt(1 + r^2))), so |r| <= 0.4143; twice in float64.
    const int halvings = is_f64(x) ? 3 : 1;
    for (int i = 0; i < halvings; ++i) r = r / ((r * r + 1.0).sqrt() + 1.0);
    const Tensor q = r * r;
    const Tensor a = r *
                     poly(q, {1.0, -1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15, 1.0 / 17}) *
                     static_cast<double>(1 << halvings);
    const double h = std::numbers::pi / 2;
    return big.where(x.gt(0).where(h, -h) - a, a);
  });
}
Tensor Tensor::asin() const {
  return widened(to_float_dtype(*this),
                 [](const Tensor& x) { return (x / ((Tensor(1.0) - x) * (x + 1.0)).sqrt()).atan(); });
}
Tensor Tensor::acos() const {
  return widened(to_float_dtype(*this),
                 [](const Tensor& x) { return ((Tensor(1.0) - x) / (x + 1.0)).sqrt().atan() * 2.0; });
}
Tensor Tensor::sinh() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) {
    const Tensor small = x.abs().lt(0.5);
    const Tensor xs = small.where(x, 0.0), q = xs * xs;
    const Tensor near =
        xs * poly(q, {1.0, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880, 1.0 / 39916800, 1.0 / 6227020800.0});
    const Tensor e = (x * 0.5).exp(), i = (x * -0.5).exp();  // exp(x) overflows before sinh does
    return small.where(near, e * (e * 0.5) - i * (i * 0.5));
  });
}
Tensor Tensor::cosh() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) {
    const Tensor e = (x * 0.5).exp(), i = (x * -0.5).exp();
    return e * (e * 0.5) + i * (i * 0.5);
  });
}
Tensor Tensor::tanh() const {
  const Tensor f = is_float(dtype()) ? *this : cast(DType::WeakFloat);
  return widened(f, [](const Tensor& x) {
    const double most = is_f64(x) ? 20 : 10;
    const Tensor c = x.clamp(-most, most);
    const Tensor far = Tensor(1.0) - Tensor(2.0) / ((c * 2.0).exp() + 1.0);
    if (is_f64(x)) return far;
    const Tensor small = x.abs().lt(0.25);
    const Tensor xs = small.where(x, 0.0), q = xs * xs;
    return small.where(xs * poly(q, {1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315, 62.0 / 2835, -1382.0 / 155925}), far);
  });
}
Tensor Tensor::asinh() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) {
    const double limit = is_f64(x) ? 1e150 : 1e18;
    const Tensor huge = x.abs().gt(limit);
    const Tensor s = huge.where(1.0, x);
    // log1p(|s| + s^2 / (1 + sqrt(1 + s^2))), odd in s
    const Tensor a = s.lt(0).where(s.neg(), s), q = a * a;
    const Tensor near = log1p(a + q / ((q + 1.0).sqrt() + 1.0));
    const Tensor mag = x.lt(0).where(x.neg(), x);
    const Tensor far = huge.where(mag, 1.0).log() + std::numbers::ln2;
    const Tensor r = huge.where(far, near);
    return x.lt(0).where(r.neg(), x.eq(0).where(x, r));
  });
}
Tensor Tensor::acosh() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) {
    const double limit = is_f64(x) ? 1e150 : 1e18;
    const Tensor huge = x.gt(limit);
    const Tensor d = huge.where(1.0, x) - 1.0;
    const Tensor near = log1p(d + (d * (d + 2.0)).sqrt());
    const Tensor far = huge.where(x, 1.0).log() + std::numbers::ln2;
    return huge.where(far, near);
  });
}
Tensor Tensor::atanh() const {
  return widened(to_float_dtype(*this), [](const Tensor& x) { return (log1p(x) - log1p(x.neg())) * 0.5; });
}
Tensor Tensor::erf() const {
  const Tensor f = is_float(dtype()) ? *this : cast(DType::WeakFloat);
  return widened(f, [](const Tensor& x) {
    // 2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!, all terms of one sign; 1 beyond.
    const double limit = is_f64(x) ? 6.0 : 4.0;
    const int terms = is_f64(x) ? 100 : 48;
    const Tensor c = x.clamp(-limit, limit), q = c * c;
    Tensor s = 1.0;
    for (int n = terms; n > 0; --n) s = s * q * (2.0 / (2 * n + 1)) + 1.0;
    return c * s * (q.neg()).exp() * (2.0 * std::numbers::inv_sqrtpi);
  });
}

// ---- activations

Tensor Tensor::relu() const { return lt(smallest(dtype())).where(constant(0.0, dtype()), *this); }
Tensor Tensor::clamp(const std::optional<Tensor>& min, const std::optional<Tensor>& max) const {
  WHIT_USER(min || max, Runtime, "[clamp] neither min nor max is given; expected at least one");
  Tensor r = *this;
  if (min) r = r.lt(*min).where(*min, r);
  if (max) r = r.gt(*max).where(*max, r);
  return r;
}
Tensor Tensor::relu6() const { return clamp(0, 6); }
Tensor Tensor::sigmoid() const {
  const Tensor f = is_float(dtype()) ? *this : cast(DType::WeakFloat);
  return widened(f, [](const Tensor& x) {
    const double least = is_f64(x) ? -709.0 : -88.0;  // exp stays finite, and so does the gradient
    return ((x.maximum(least) * -std::numbers::log2e).exp2() + 1.0).reciprocal();
  });
}
Tensor Tensor::softplus(double beta) const {
  return widened(to_float_dtype(*this), [&](const Tensor& x) {
    const Tensor t = x * beta;
    const Tensor r = t.relu() + log1p(t.gt(0).where(t.neg(), t).exp());
    return beta == 1 ? r : r * (1 / beta);
  });
}
Tensor Tensor::logsigmoid() const { return neg().softplus().neg(); }
Tensor Tensor::hardsigmoid(double alpha, double beta) const { return (*this * alpha + beta).clamp(0, 1); }
Tensor Tensor::hardswish() const {
  const Tensor r = *this * (*this + 3.0).relu6() * (1.0 / 6);
  return is_float(dtype()) ? le(-3.0).where(constant(0.0, dtype()), r) : r;
}
Tensor Tensor::hardtanh(double min_val, double max_val) const { return clamp(min_val, max_val); }
Tensor Tensor::leaky_relu(double neg_slope) const { return lt(0).where(*this * neg_slope, *this); }
Tensor Tensor::elu(double alpha) const {
  const Tensor x = to_float_dtype(*this);
  const Tensor below = x.gt(0).where(0.0, x);
  return x.gt(0).where(x, (below.exp() - 1.0) * alpha);
}
Tensor Tensor::celu(double alpha) const {
  const Tensor x = to_float_dtype(*this);
  const Tensor below = x.gt(0).where(0.0, x);
  return x.gt(0).where(x, ((below * (1 / alpha)).exp() - 1.0) * alpha);
}
Tensor Tensor::selu(double alpha, double gamma) const { return elu(alpha) * gamma; }
Tensor Tensor::gelu(std::string_view approximate) const {
  WHIT_USER(approximate == "tanh" || approximate == "none", Value, "[gelu] approximate '{}'; expected 'tanh' or 'none'",
            approximate);
  const Tensor f = to_float_dtype(*this);
  return widened(f, [&](const Tensor& x) {
    const Tensor gate = approximate == "tanh" ? ((x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi)).tanh()
                                              : (x * (1 / std::numbers::sqrt2)).erf();
    return x.eq(-INFINITY).where(0.0, x * (gate + 1.0) * 0.5);
  });
}
Tensor Tensor::quick_gelu() const {
  const Tensor r = *this * (*this * 1.702).sigmoid();
  return is_float(dtype()) ? eq(-INFINITY).where(constant(0.0, r.dtype()), r) : r;
}
Tensor Tensor::swish() const {
  const Tensor r = *this * sigmoid();
  return is_float(dtype()) ? eq(-INFINITY).where(constant(0.0, r.dtype()), r) : r;
}
Tensor Tensor::softsign() const {
  const Tensor x = to_float_dtype(*this);
  return x.isinf().where(x.sign(), x / (x.abs() + 1.0));
}
Tensor Tensor::mish() const {
  const Tensor r = *this * softplus().tanh();
  return is_float(dtype()) ? eq(-INFINITY).where(constant(0.0, r.dtype()), r) : r;
}

}  // namespace whit
