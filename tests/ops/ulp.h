// The error of elementwise functions in units in the last place: the table of functions, their limits, and the
// measurement. bench/ulp prints it (docs/accuracy.md), ulp_test.cpp holds the functions to the limits.
//
// The reference is libm in long double. An error is measured against the exact value, so a correctly rounded result has
// at most 0.5; infinite is a NaN or an infinity in the wrong place.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ir/eval.h"
#include "whit/tensor.h"

namespace whit::ulp {

inline constexpr int64_t kBlock = 1 << 16;
using Real = long double;

struct Function {
  const char* name;
  Tensor (*apply)(const Tensor& x);
  Real (*exact)(Real x);
  double limits[4];                           ///< in float16, bfloat16, float32, float64; 0: only measured
  double least = -HUGE_VAL, most = HUGE_VAL;  ///< inputs outside are left out of the maximum
};

inline constexpr Real kPi = 3.14159265358979323846264338327950288L;

inline const Function kFunctions[] = {
    {"exp2", [](const Tensor& x) { return x.exp2(); }, [](Real x) { return std::exp2(x); }, {0.501, 0.501, 1, 1}},
    {"log2", [](const Tensor& x) { return x.log2(); }, [](Real x) { return std::log2(x); }, {0.501, 0.501, 1, 1}},
    {"sin", [](const Tensor& x) { return x.sin(); }, [](Real x) { return std::sin(x); }, {0.501, 0.501, 1, 1}},
    {"sqrt", [](const Tensor& x) { return x.sqrt(); }, [](Real x) { return std::sqrt(x); }, {0.5, 0.5, 0.5, 0.5}},
    {"reciprocal", [](const Tensor& x) { return x.reciprocal(); }, [](Real x) { return 1 / x; }, {0.5, 0.5, 0.5, 0.5}},
    {"exp", [](const Tensor& x) { return x.exp(); }, [](Real x) { return std::exp(x); }, {0.501, 0.501, 2, 2}},
    {"log", [](const Tensor& x) { return x.log(); }, [](Real x) { return std::log(x); }, {0.501, 0.501, 2, 2}},
    {"log10", [](const Tensor& x) { return x.log10(); }, [](Real x) { return std::log10(x); }, {0.501, 0.501, 3, 3}},
    {"cos", [](const Tensor& x) { return x.cos(); }, [](Real x) { return std::cos(x); }, {0.501, 0.501, 2, 2}},
    {"tan", [](const Tensor& x) { return x.tan(); }, [](Real x) { return std::tan(x); }, {2, 2, 4, 4}},
    {"tanh", [](const Tensor& x) { return x.tanh(); }, [](Real x) { return std::tanh(x); }, {0.501, 0.501, 2, 2}},
    {"sigmoid", [](const Tensor& x) { return x.sigmoid(); }, [](Real x) { return 1 / (1 + std::exp(-x)); }, {0.501, 0.501, 2, 2}},
    {"erf", [](const Tensor& x) { return x.erf(); }, [](Real x) { return std::erf(x); }, {0.501, 0.501, 4, 8}},
    {"pow(x, 3.75)", [](const Tensor& x) { return x.pow(3.75); }, [](Real x) { return std::pow(x, Real(3.75)); }, {0.501, 0.501, 4, 4}},
    {"pow(1.75, x)",
     [](const Tensor& x) { return Tensor::full(x.shape(), 1.75, {.dtype = x.dtype()}).pow(x); },
     [](Real x) { return std::pow(Real(1.75), x); },
     {0.501, 0.501, 4, 4}},
    {"rsqrt", [](const Tensor& x) { return x.rsqrt(); }, [](Real x) { return 1 / std::sqrt(x); }, {1.5, 1.5, 2, 2}},
    {"asin", [](const Tensor& x) { return x.asin(); }, [](Real x) { return std::asin(x); }, {0.501, 0.501, 4, 4}},
    {"acos", [](const Tensor& x) { return x.acos(); }, [](Real x) { return std::acos(x); }, {0.501, 0.501, 4, 4}},
    {"atan", [](const Tensor& x) { return x.atan(); }, [](Real x) { return std::atan(x); }, {0.501, 0.501, 4, 4}},
    {"sinh", [](const Tensor& x) { return x.sinh(); }, [](Real x) { return std::sinh(x); }, {0.501, 0.501, 4, 4}},
    {"cosh", [](const Tensor& x) { return x.cosh(); }, [](Real x) { return std::cosh(x); }, {0.501, 0.501, 4, 4}},
    {"asinh", [](const Tensor& x) { return x.asinh(); }, [](Real x) { return std::asinh(x); }, {0.501, 0.501, 4, 4}},
    {"acosh", [](const Tensor& x) { return x.acosh(); }, [](Real x) { return std::acosh(x); }, {0.501, 0.501, 4, 4}},
    {"atanh", [](const Tensor& x) { return x.atanh(); }, [](Real x) { return std::atanh(x); }, {0.501, 0.501, 4, 4}},
    {"softplus",
     [](const Tensor& x) { return x.softplus(); },
     [](Real x) { return std::max(x, Real(0)) + std::log1p(std::exp(-std::fabs(x))); },
     {0.501, 0.501, 4, 4}},
    {"gelu(tanh)",
     [](const Tensor& x) { return x.gelu("tanh"); },
     [](Real x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / kPi) * (x + Real(0.044715) * x * x * x))); },
     {0, 0, 0, 0},
     -4},
};

struct Format {
  int n_mantissa, least_exponent;
  double max;
};
inline Format format_of(DType dtype) {
  switch (dtype) {
    case DType::Float16: return {10, -14, 65504};
    case DType::BFloat16: return {7, -126, 0x1.FEp127};
    case DType::Float32: return {23, -126, 0x1.FFFFFEp127};
    default: return {52, -1022, std::numeric_limits<double>::max()};
  }
}

// |got - exact| in units of the format's spacing at `exact`; infinite where one of them is NaN.
inline double error_in_ulp(const Format& fmt, Real exact, double got) {
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) && std::isnan(got) ? 0 : HUGE_VAL;
  const Real overflow = Real(fmt.max) + std::ldexp(Real(1), std::ilogb(fmt.max) - fmt.n_mantissa - 1);
  if (std::isinf(got)) return std::fabs(exact) >= overflow && (got > 0) == (exact > 0) ? 0 : HUGE_VAL;
  // Past the largest number the next one that would be stands for infinity.
  if (std::isinf(exact)) return HUGE_VAL;
  const int exponent = exact == 0 ? fmt.least_exponent : std::max(static_cast<int>(std::ilogb(exact)), fmt.least_exponent);
  return static_cast<double>(std::fabs(Real(got) - exact) / std::ldexp(Real(1), exponent - fmt.n_mantissa));
}

struct Result {
  double max_ulp = 0, sum_ulp = 0, at = 0, got = 0;
  int64_t n = 0;
};

/// `n_inputs` samples, or every pattern of bits from `first_bits` on.
inline Result measure(const Function& f, DType dtype, int64_t n_inputs, bool every, uint64_t first_bits = 0) {
  const Format fmt = format_of(dtype);
  const size_t n_bytes_each = static_cast<size_t>(n_bytes(dtype));
  const int n_bits = static_cast<int>(8 * n_bytes_each);
  std::vector<char> in(kBlock * n_bytes_each);
  Result r;
  for (int64_t first = 0; first < n_inputs; first += kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) {
      // A multiplier without a pattern spreads samples over all exponents and mantissas.
      const uint64_t k = static_cast<uint64_t>(first + i);
      uint64_t bits = every ? first_bits + k : (k * 0x9E3779B97F4A7C15) >> (64 - n_bits);
      if (!every && i % 2) {  // half of the samples where results are numbers
        const double v = (static_cast<double>(k * 0x9E3779B97F4A7C15 >> 11) * 0x1p-52 - 1) * (i % 4 == 1 ? dtype == DType::Float64 ? 745 : 105 : 4);
        write_element(dtype, &bits, 0, Scalar::of(dtype, v));
      }
      std::memcpy(in.data() + static_cast<size_t>(i) * n_bytes_each, &bits, n_bytes_each);
    }
    const Tensor x = Tensor::from_bytes(in.data(), dtype, {kBlock});
    const std::vector<double> out = f.apply(x).to_vector<double>();
    for (int64_t i = 0; i < kBlock; ++i) {
      const double v = read_element(dtype, in.data(), i).f, got = out[static_cast<size_t>(i)];
      if (v < f.least || v > f.most) continue;
      const double e = error_in_ulp(fmt, f.exact(v), got);
      r.sum_ulp += e;
      if (!(e <= r.max_ulp)) r.max_ulp = e, r.at = v, r.got = got;
    }
    r.n += kBlock;
  }
  return r;
}

}  // namespace whit::ulp
