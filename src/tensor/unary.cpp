// Elementwise operations of one operand.
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

bool is_f64(const Tensor& x) { return x.dtype() == DType::Float64; }

// Runs fn in at least float32 and casts back.
template <class Fn> Tensor widened(const Tensor& x, Fn&& fn) { return fn(x.cast(wide_float(x.dtype()))).cast(x.dtype()); }

// The same for any dtype, in the float dtype of its values.
template <class Fn> Tensor in_float(const Tensor& x, Fn&& fn) { return widened(to_float_dtype(x), fn); }
// The same where a result of integers has no width.
template <class Fn> Tensor in_weak_float(const Tensor& x, Fn&& fn) { return widened(is_float(x.dtype()) ? x : x.cast(DType::WeakFloat), fn); }

// The smallest positive number: x < smallest is x <= 0, and false for NaN.
Tensor smallest(DType dt) {
  if (!is_float(dt)) return Tensor::constant_int(1, dt);
  const DTypeInfo& i = info(is_weak(dt) ? DType::Float32 : dt);
  const int bias = (1 << (i.exponent_bits - 1)) - 1;
  return Tensor::constant(std::ldexp(1.0, 1 - bias - i.mantissa_bits), dt);
}

// c0 + x (c1 + x (c2 ...)), with more coefficients for float64.
Tensor poly(const Tensor& x, std::initializer_list<double> f64, std::initializer_list<double> f32) {
  const auto c = is_f64(x) ? f64 : f32;
  const double* p = c.end();
  Tensor r = *--p;
  if (is_weak(x.dtype()) || n_bytes(x.dtype()) < 4) {
    while (p != c.begin()) r = r * x + *--p;
    return r;
  }
  const auto number = [&](double v) { return constant(x.dtype(), v); };
  UOp y = number(*p);
  while (p != c.begin()) y = alu(Op::MulAcc, {y, x.uop(), number(*--p)});
  return wrap(y);
}

// fn(x) as a CALL whose derivative is slope(x), so that a gradient needs x and what slope reads, not all that fn goes through.
template <auto fn, auto slope> Tensor with_slope(const Tensor& x) {
  if (is_weak(x.dtype()) || x.shape().is_symbolic()) return fn(x);
  static const int64_t gradient =
      register_gradient([](std::span<const Tensor> grads, std::span<const Tensor> inputs) { return std::vector{grads[0] * slope(inputs[0])}; });
  return Tensor::call(std::array{x}, std::array{fn(x.as_param(0))}, gradient)[0];
}

// log(1 + x) that keeps small x. The correction of the rounding of 1 + x is a constant for gradients.
Tensor log1p(const Tensor& x) {
  const Tensor u = x + 1.0, a = u.log();
  const Tensor v = u.eq(1.0).where(x, a * (x / (u - 1.0)));
  const Tensor correction = v - a;
  return a + correction.isnan().where(0.0, correction).detach();
}

// exp(x^2) erfc(x) / t as a polynomial in t = 1 / (1 + x/k), x >= 0: least-squares fits at Chebyshev points, relative
// error below 1e-8 and 2e-14.
Tensor erfcx(const Tensor& x) {
  const double k = is_f64(x) ? 3.75 : 2.0;
  const Tensor t = (x * (1 / k) + 1.0).reciprocal();
  const Tensor p =
      poly(t, {0.1504505556188212,   0.15045055506997132,   0.1451012239383716,   0.13440199843197403,   0.11893271089976368, 0.099726276710868436,
               0.079341405382943514, 0.053264313400759052,  0.057205862643159452, -0.050435189109414885, 0.22028847408394747, -0.49024199051830925,
               0.91118397183484889,  -1.3449806429177356,   1.5450202861358304,   -1.3722214049359329,   0.90911676952036047, -0.42790425304864937,
               0.13440534034736792,  -0.025259877888053898, 0.002153614399109383},
           {0.28209478806221111, 0.28209361132353417, 0.24689203706645008, 0.17522333117946209, 0.094020854559225098, -0.061147313323447722,
            0.1363007930568261, -0.46046320948201008, 0.49814812394468866, -0.23674798900635083, 0.043584977768059162});
  return t * p;
}

// erf of float32: an odd polynomial near 0, else 1 - exp(x p(x)). Fits of least relative error, below 7e-10 and 4e-9.
Tensor erf_f32(const Tensor& x) {
  const Tensor a = x.lt(0).where(x.neg(), x), big = a.gt(4.0).where(4.0, a);
  const Tensor near = poly(
      x * x, {}, {0.1283791664351306, -0.3761262910045727, 0.11283555680180082, -0.0268453299018104, 0.005140183592910821, -0.0006965941709691087});
  const Tensor tail = (big * poly(big, {},
                                  {-1.1285306997630837, -0.6356675163559642, -0.10531849151452627, 0.022914111771649814, -0.0032143791558052193,
                                   0.00021085052066027732, 6.126442158305156e-07}))
                          .exp();
  return a.lt(0.7).where(x + x * near, x.lt(0).where(tail - 1.0, Tensor(1.0) - tail));
}

// erfc and erf from one evaluation: near 0 the odd series of erf, else the fit.
Tensor erf_parts(const Tensor& x, bool complement) {
  const Tensor a = x.lt(0).where(x.neg(), x), small = a.lt(0.7);
  const Tensor xs = small.where(x, 0.0), q = xs * xs;
  double c = 1;
  std::vector<double> series;
  for (int n = 0; n < (is_f64(x) ? 15 : 8); c /= -(++n)) series.push_back(c / (2 * n + 1));
  Tensor s = series.back();
  for (size_t n = series.size() - 1; n-- > 0;) s = s * q + series[n];
  const Tensor near = xs * s * (2 * std::numbers::inv_sqrtpi);
  const Tensor big = small.where(1.0, a.minimum(is_f64(x) ? 27.5 : 10.5));
  const Tensor tail = (big * big).neg().exp() * erfcx(big);
  if (complement) return small.where(Tensor(1.0) - near, x.lt(0).where(Tensor(2.0) - tail, tail));
  return small.where(near, x.lt(0).where(tail - 1.0, Tensor(1.0) - tail));
}

// d erf(x), and -d erfc(x)
Tensor erf_slope(const Tensor& x) { return x.square().neg().exp() * (2 * std::numbers::inv_sqrtpi); }
Tensor erfc(const Tensor& x) {
  return with_slope<[](const Tensor& y) { return erf_parts(y, true); }, [](const Tensor& y) { return erf_slope(y).neg(); }>(x);
}

}  // namespace

Tensor Tensor::neg() const { return dtype() == DType::Bool ? logical_not() : wrap(alu(Op::Neg, {uop()})); }
Tensor Tensor::logical_not() const { return wrap(whit::logical_not(cast(DType::Bool).uop())); }
Tensor Tensor::bitwise_not() const { return dtype() == DType::Bool ? logical_not() : bitwise_xor(constant_int(-1, dtype())); }
Tensor Tensor::reciprocal() const { return alu1(Op::Recip, to_float_dtype(*this)); }
Tensor Tensor::sqrt() const { return alu1(Op::Sqrt, to_float_dtype(*this)); }
Tensor Tensor::rsqrt() const { return sqrt().reciprocal(); }
Tensor Tensor::sin() const { return alu1(Op::Sin, to_float_dtype(*this)); }
Tensor Tensor::exp2() const { return alu1(Op::Exp2, to_float_dtype(*this)); }
Tensor Tensor::log2() const { return alu1(Op::Log2, to_float_dtype(*this)); }
Tensor Tensor::square() const { return *this * *this; }

Tensor Tensor::exp() const {
  return in_float(*this, [](const Tensor& x) { return (x * std::numbers::log2e).exp2(); });
}
static Tensor scaled_log2(const Tensor& x, double scale) {
  return in_float(x, [&](const Tensor& wide) { return wide.log2() * scale; });
}
Tensor Tensor::log() const { return scaled_log2(*this, std::numbers::ln2); }
Tensor Tensor::log10() const { return scaled_log2(*this, std::numbers::ln2 / std::numbers::ln10); }
Tensor Tensor::cos() const {
  // x/2 is exact, so large arguments lose nothing that sin does not lose.
  return in_float(*this, [](const Tensor& x) {
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
  return is_float(dtype()) ? isnan().where(*this, s) : s;
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
  return in_float(*this, [](const Tensor& x) {
    // atan a = base + atan r with |r| <= tan(pi/8): r is a, (a - 1)/(a + 1) or -1/a.
    const Tensor below = x.lt(0), a = below.where(x.neg(), x);
    const Tensor far = a.gt(2.4142135623730951), mid = a.gt(0.41421356237309503);
    const Tensor r = far.where(-1.0, mid.where(a - 1.0, a)) / far.where(a, mid.where(a + 1.0, 1.0));
    const Tensor q = r * r;
    const Tensor p =
        poly(q,
             {-0.33333333333333326, 0.19999999999997625, -0.14285714285382861, 0.1111111108787799, -0.090909081343697518, 0.07692282542036126,
              -0.066662237295818536, 0.058769936430195548, -0.052182317707318876, 0.045028790962302147, -0.03345951579636864, 0.015180592118196981},
             {-0.333333164, 0.199984655, -0.142434224, 0.105929486, -0.0607592054});
    const Tensor core = r + r * (q * p);
    // pi/2 as a sum of two numbers of the dtype.
    const double high = is_f64(x) ? 0x1.921fb54442d18p+0 : 0x1.921fb6p+0;
    const double low = is_f64(x) ? 0x1.1a62633145c07p-54 : -0x1.777a5cp-25;
    const Tensor sum = far.where(high, high / 2) + (far.where(low, low / 2) + core);
    const Tensor y = mid.where(sum, core);
    return below.where(y.neg(), y);
  });
}
Tensor Tensor::asin() const {
  return in_float(*this, [](const Tensor& x) { return (x / ((Tensor(1.0) - x) * (x + 1.0)).sqrt()).atan(); });
}
Tensor Tensor::acos() const {
  return in_float(*this, [](const Tensor& x) {
    const Tensor below = x.lt(0), p = below.where(x.neg(), x);
    const Tensor s = ((Tensor(1.0) - p) * 0.5).sqrt();  // acos(p) = 2 asin(sqrt((1 - p) / 2))
    const Tensor y = (s / ((Tensor(1.0) - s) * (s + 1.0)).sqrt()).atan() * 2.0;
    return below.where(Tensor(std::numbers::pi) - y, y);
  });
}
Tensor Tensor::sinh() const {
  return in_float(*this, [](const Tensor& x) {
    const Tensor small = x.abs().lt(1.0);
    const Tensor xs = small.where(x, 0.0), q = xs * xs;
    const Tensor p = poly(q,
                          {0.16666666666666669, 0.0083333333333331476, 0.00019841269841431897, 2.7557319157065313e-06, 2.505212313761255e-08,
                           1.6057259708124846e-10, 7.7587504406576316e-13},
                          {0.166666672, 0.0083333496, 0.000198361595, 2.81695134e-06});
    const Tensor e = (x * 0.5).exp(), i = (x * -0.5).exp();  // exp(x) overflows before sinh does
    return small.where(xs + xs * (q * p), e * (e * 0.5) - i * (i * 0.5));
  });
}
Tensor Tensor::cosh() const {
  return in_float(*this, [](const Tensor& x) {
    const Tensor e = (x * 0.5).exp(), i = (x * -0.5).exp();
    return e * (e * 0.5) + i * (i * 0.5);
  });
}
Tensor Tensor::tanh() const {
  constexpr auto value = [](const Tensor& x) {
    const Tensor small = x.abs().lt(0.625);
    const Tensor xs = small.where(x, 0.0), q = xs * xs;
    const Tensor p = poly(q,
                          {-0.33333333333333315, 0.13333333333329742, -0.053968253966057873, 0.02186948846869366, -0.008863234312302546,
                           0.003592113997622898, -0.0014557259358471458, 0.00058945175444969733, -0.00023701162261256036, 9.1558246337844715e-05,
                           -3.0187073911590858e-05, 6.042411393398214e-06},
                          {-0.333333313, 0.133332059, -0.0539467633, 0.021700697, -0.00817738567, 0.00214295136});
    // 1 - 2 / (e^(2a) + 1) loses nothing for a positive a that is not small.
    const double most = is_f64(x) ? 20 : 10;
    const Tensor below = x.lt(0), a = below.where(x.neg(), x).clamp(std::nullopt, most);
    const Tensor far = Tensor(1.0) - Tensor(2.0) / ((a * 2.0).exp() + 1.0);
    return small.where(xs + xs * (q * p), below.where(far.neg(), far));
  };
  return in_weak_float(*this, with_slope<value, [](const Tensor& x) { return Tensor(1.0) - x.tanh().square(); }>);
}
Tensor Tensor::asinh() const {
  return in_float(*this, [](const Tensor& x) {
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
  return in_float(*this, [](const Tensor& x) {
    const double limit = is_f64(x) ? 1e150 : 1e18;
    const Tensor huge = x.gt(limit);
    const Tensor d = huge.where(1.0, x) - 1.0;
    const Tensor near = log1p(d + (d * (d + 2.0)).sqrt());
    const Tensor far = huge.where(x, 1.0).log() + std::numbers::ln2;
    return x.lt(1.0).where(NAN, huge.where(far, near));
  });
}
Tensor Tensor::atanh() const {
  return in_float(*this, [](const Tensor& x) { return (log1p(x) - log1p(x.neg())) * 0.5; });
}
Tensor Tensor::erf() const {
  constexpr auto value = [](const Tensor& x) { return is_f64(x) ? erf_parts(x, false) : erf_f32(x); };
  return in_weak_float(*this, with_slope<value, erf_slope>);
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
  constexpr auto value = [](const Tensor& x) {
    // exp(-|x|) never overflows.
    const Tensor below = x.lt(0);
    const Tensor e = (below.where(x, x.neg()) * std::numbers::log2e).exp2(), r = (e + 1.0).reciprocal();
    return below.where(e * r, r);
  };
  constexpr auto slope = [](const Tensor& x) {
    const Tensor s = x.sigmoid();
    return s * (Tensor(1.0) - s);
  };
  return in_weak_float(*this, with_slope<value, slope>);
}
Tensor Tensor::softplus(double beta) const {
  constexpr auto value = [](const Tensor& t) { return t.relu() + log1p(t.gt(0).where(t.neg(), t).exp()); };
  return in_float(*this, [&](const Tensor& x) {
    const Tensor r = with_slope<value, [](const Tensor& t) { return t.sigmoid(); }>(x * beta);
    return beta == 1 ? r : r * (1 / beta);
  });
}
Tensor Tensor::logsigmoid() const { return neg().softplus().neg(); }
Tensor Tensor::hardsigmoid(double alpha, double beta) const { return (*this * alpha + beta).clamp(0, 1); }
Tensor Tensor::hardswish() const { return *this * ((*this + 3.0).relu6() * (1.0 / 6)); }
Tensor Tensor::hardtanh(double min_val, double max_val) const { return clamp(min_val, max_val); }
Tensor Tensor::leaky_relu(double neg_slope) const { return lt(0).where(*this * neg_slope, *this); }
static Tensor exp_below_zero(const Tensor& x, double scale, double alpha) {
  const Tensor below = x.gt(0).where(0.0, x);
  return x.gt(0).where(x, ((scale == 1 ? below : below * scale).exp() - 1.0) * alpha);
}
Tensor Tensor::elu(double alpha) const { return exp_below_zero(to_float_dtype(*this), 1, alpha); }
Tensor Tensor::celu(double alpha) const { return exp_below_zero(to_float_dtype(*this), 1 / alpha, alpha); }
Tensor Tensor::selu(double alpha, double gamma) const { return elu(alpha) * gamma; }
Tensor Tensor::gelu(std::string_view approximate) const {
  WHIT_USER(approximate == "tanh" || approximate == "none", Value, "[gelu] approximate '{}'; expected 'tanh' or 'none'", approximate);
  return in_float(*this, [&](const Tensor& x) {
    if (approximate == "none") return x * (erfc(x * (-1 / std::numbers::sqrt2)) * 0.5);
    const Tensor gate = ((x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi)).tanh();
    return x * ((gate + 1.0) * 0.5);
  });
}
Tensor Tensor::quick_gelu() const { return *this * (*this * 1.702).sigmoid(); }
Tensor Tensor::swish() const { return *this * sigmoid(); }
Tensor Tensor::softsign() const {
  const Tensor x = to_float_dtype(*this);
  return x / (x.abs() + 1.0);
}
Tensor Tensor::mish() const { return *this * softplus().tanh(); }

}  // namespace whit
