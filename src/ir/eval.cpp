// Why doubles are enough: with at least 2p + 2 bits in between, rounding a sum, product, quotient or square root of
// p-bit floats first to double and then to p bits gives the correctly rounded result, subnormal or not. What has no
// such guarantee (64-bit integers, fused multiply-add) is rounded to odd first, which keeps the second rounding right.
#include "ir/eval.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/build.h"

namespace whit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// A binary float format of at most 32 bits. Its bits are sign, exponent, mantissa from the top.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  double max_finite;
  bool has_inf;    // else the whole top exponent is for numbers
  bool saturates;  // finite values past the largest become the largest
  bool is_fnuz;    // one NaN where -0 would be, no infinities, no -0
  int width() const { return 1 + exponent_bits + mantissa_bits; }
};

constexpr Format kFormats[] = {
    {4, 3, 7, 448, false, true, false},                // fp8e4m3
    {4, 3, 8, 240, false, true, true},                 // fp8e4m3fnuz
    {5, 2, 15, 57344, true, true, false},              // fp8e5m2
    {5, 2, 16, 57344, false, true, true},              // fp8e5m2fnuz
    {5, 10, 15, 65504, true, false, false},            // float16
    {8, 7, 127, 0x1.FEp127, true, false, false},       // bfloat16
    {8, 23, 127, 0x1.FFFFFEp127, true, false, false},  // float32
};
const Format& format_of(DType dtype) {
  WHIT_CHECK(dtype >= DType::Fp8E4M3 && dtype <= DType::Float32, "{} is not a narrow float", dtype);
  return kFormats[static_cast<size_t>(dtype) - static_cast<size_t>(DType::Fp8E4M3)];
}

// 2^e for -1022 <= e <= 1023.
double power_of_two(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

double round_narrow(const Format& f, double v) {
  if (std::isnan(v)) return v;
  if (v == 0) return f.is_fnuz ? 0.0 : v;
  if (std::isinf(v)) return f.has_inf ? v : std::copysign(kNaN, v);
  const int exponent = std::max(std::ilogb(v), 1 - f.bias);
  // Dividing by the quantum is exact, so rint is the only rounding.
  const double quantum = power_of_two(exponent - f.mantissa_bits);
  const double r = std::rint(v / quantum) * quantum;
  if (std::fabs(r) > f.max_finite) return std::copysign(f.saturates ? f.max_finite : kInf, v);
  return f.is_fnuz && r == 0 ? 0.0 : r;
}

// NaN payloads are carried by their top bits, by integer operations: a conversion in the FPU would make every NaN
// quiet, and then BITCAST there and back would not keep the bits.
double decode(const Format& f, uint32_t bits) {
  const uint32_t mantissa_mask = (1u << f.mantissa_bits) - 1, exponent_mask = (1u << f.exponent_bits) - 1;
  const uint64_t sign = bits >> (f.width() - 1) & 1;
  const uint32_t exponent = bits >> f.mantissa_bits & exponent_mask, mantissa = bits & mantissa_mask;
  if (f.is_fnuz && exponent == 0 && mantissa == 0) return sign ? kNaN : 0.0;
  if (exponent == exponent_mask && !f.is_fnuz) {
    if (f.has_inf) return std::bit_cast<double>(sign << 63 | uint64_t{0x7FF} << 52 | static_cast<uint64_t>(mantissa) << (52 - f.mantissa_bits));
    if (mantissa == mantissa_mask) return std::copysign(kNaN, sign ? -1.0 : 1.0);
  }
  const double significand = exponent ? mantissa_mask + 1 + mantissa : mantissa;
  const double magnitude = significand * power_of_two(std::max<int>(static_cast<int>(exponent), 1) - f.bias - f.mantissa_bits);
  return sign ? -magnitude : magnitude;
}

// `v` is a value of the format already.
uint32_t encode(const Format& f, double v) {
  const uint64_t bits = std::bit_cast<uint64_t>(v);
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (f.width() - 1);
  const uint32_t mantissa_mask = (1u << f.mantissa_bits) - 1, exponent_mask = (1u << f.exponent_bits) - 1;
  if (std::isnan(v)) {
    if (f.is_fnuz) return 1u << (f.width() - 1);
    if (!f.has_inf) return sign | exponent_mask << f.mantissa_bits | mantissa_mask;
    const uint32_t payload = static_cast<uint32_t>(bits >> (52 - f.mantissa_bits)) & mantissa_mask;
    return sign | exponent_mask << f.mantissa_bits | (payload ? payload : 1u << (f.mantissa_bits - 1));
  }
  if (std::isinf(v)) return sign | exponent_mask << f.mantissa_bits;
  if (v == 0) return f.is_fnuz ? 0 : sign;
  const int exponent = std::max(std::ilogb(v), 1 - f.bias);
  const uint32_t significand = static_cast<uint32_t>(std::fabs(v) / power_of_two(exponent - f.mantissa_bits));  // with the leading one, if normal
  if (significand <= mantissa_mask) return sign | significand;
  return sign | static_cast<uint32_t>(exponent + f.bias) << f.mantissa_bits | (significand & mantissa_mask);
}

// `v` as a double rounded to odd: rounding the result to 51 bits or fewer is rounding v.
double odd_from_uint64(uint64_t v) {
  const int shift = 64 - std::countl_zero(v) - 53;
  if (shift <= 0) return static_cast<double>(v);
  const uint64_t rest = v & ((uint64_t{1} << shift) - 1);
  return static_cast<double>((v >> shift | (rest ? 1 : 0)) << shift);
}

// x + z rounded to odd.
double odd_sum(double x, double z) {
  const double sum = x + z;
  if (!std::isfinite(sum)) return sum;
  const double z_part = sum - x;
  const double error = (x - (sum - z_part)) + (z - z_part);
  if (error == 0 || (std::bit_cast<uint64_t>(sum) & 1)) return sum;
  return std::nextafter(sum, error > 0 ? kInf : -kInf);
}

double int_to_float(DType to, bool from_uint64, int64_t v) {
  const bool negative = !from_uint64 && v < 0;
  const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  const double d = n_bytes(to) >= 8 ? static_cast<double>(magnitude) : odd_from_uint64(magnitude);
  return round_to(to, negative ? -d : d);
}

int64_t float_to_int64(double v) {
  if (std::isnan(v)) return 0;
  if (v >= 0x1p63) return kInt64Max;
  if (v < -0x1p63) return kInt64Min;
  return static_cast<int64_t>(v);
}

// A float that is of the dtype already.
Scalar float_of(DType dtype, double v) { return {.dtype = dtype, .f = v}; }

Scalar cast_scalar(DType to, const Scalar& x) {
  if (to == DType::Bool) return Scalar::of(to, static_cast<int64_t>(x.truthy()));
  if (is_float(to)) return float_of(to, is_float(x.dtype) ? round_to(to, x.f) : int_to_float(to, x.dtype == DType::UInt64, x.i));
  return Scalar::of(to, is_float(x.dtype) ? float_to_int64(x.f) : x.i);
}

Scalar bitcast_scalar(DType to, const Scalar& x) {
  WHIT_CHECK(n_bytes(to) == n_bytes(x.dtype), "BITCAST of one {} to {}", x.dtype, to);
  unsigned char bytes[8];
  write_element(x.dtype, bytes, 0, x);
  return read_element(to, bytes, 0);
}

double python_mod(double x, double y) {
  const double r = std::fmod(x, y);
  if (r == 0) return std::copysign(0.0, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

double mulacc(DType dtype, double x, double y, double z) {
  if (dtype == DType::Float32) return static_cast<double>(std::fmaf(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)));
  if (n_bytes(dtype) >= 8) return std::fma(x, y, z);
  return odd_sum(x * y, z);  // the product of two narrow floats is exact
}

[[noreturn]] void no_such_op(Op op, DType dtype) { raise(ErrorKind::Internal, "{} is not defined for {}", op, dtype); }

double eval_float(Op op, DType dtype, std::span<const Scalar> src) {
  const double x = src[0].f;
  const double y = src.size() > 1 ? src[1].f : 0;
  switch (op) {
    case Op::Recip: return 1 / x;
    case Op::Sqrt: return std::sqrt(x);
    case Op::Exp2: return std::exp2(x);
    case Op::Log2: return std::log2(x);
    case Op::Sin: return std::sin(x);
    case Op::Trunc: return std::trunc(x);
    case Op::Add: return x + y;
    case Op::Sub: return x - y;
    case Op::Mul: return x * y;
    case Op::Fdiv: return x / y;
    case Op::Cmod: return std::fmod(x, y);
    case Op::FloorMod: return python_mod(x, y);
    case Op::Pow: return std::pow(x, y);
    case Op::MulAcc: return mulacc(dtype, x, y, src[2].f);
    default: no_such_op(op, dtype);
  }
}

template <class T> T quotient(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return static_cast<T>(0 - static_cast<uint64_t>(x));
  }
  return x / y;
}

template <class T> T floor_quotient(T x, T y) {
  const T q = quotient(x, y);
  if constexpr (std::is_signed_v<T>) {
    if (y != 0 && y != -1 && x % y != 0 && (x < 0) != (y < 0)) return q - 1;
  }
  return q;
}

uint64_t int_pow(uint64_t x, uint64_t y, bool is_signed) {
  if (is_signed && static_cast<int64_t>(y) < 0) {
    if (x == 1) return 1;
    return x == ~uint64_t{0} ? (y & 1 ? x : 1) : 0;
  }
  uint64_t r = 1;
  for (; y; y >>= 1, x *= x)
    if (y & 1) r *= x;
  return r;
}

int64_t shift_left(DType dtype, int64_t x, int64_t y) {
  const int width = std::min(info(dtype).bits, 64);
  return y < 0 || y >= width ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << y);
}

int64_t shift_right(DType dtype, int64_t x, int64_t y) {
  const int width = std::min(info(dtype).bits, 64);
  const bool out = y < 0 || y >= width;
  if (dtype == DType::UInt64) return out ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) >> y);
  return x >> (out ? 63 : y);
}

uint64_t threefry(uint64_t counter, uint64_t key) {
  static constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ 0x1BD11BDAu};
  uint32_t x0 = static_cast<uint32_t>(counter) + keys[0], x1 = static_cast<uint32_t>(counter >> 32) + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (const int r : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, r) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + group + 1;
  }
  return static_cast<uint64_t>(x1) << 32 | x0;
}

// Ints and bools. The result is wrapped by the caller.
int64_t eval_int(Op op, DType dtype, std::span<const Scalar> src) {
  const int64_t x = src[0].i, y = src.size() > 1 ? src[1].i : 0;
  const uint64_t ux = static_cast<uint64_t>(x), uy = static_cast<uint64_t>(y);
  const bool wide = dtype == DType::UInt64;  // the narrower unsigned types fit in int64
  switch (op) {
    case Op::Neg:
      if (dtype == DType::Bool) break;
      return static_cast<int64_t>(0 - ux);
    case Op::Add: return static_cast<int64_t>(ux + uy);
    case Op::Sub: return static_cast<int64_t>(ux - uy);
    case Op::Mul: return static_cast<int64_t>(ux * uy);
    case Op::MulAcc: return static_cast<int64_t>(ux * uy + static_cast<uint64_t>(src[2].i));
    case Op::Cdiv: return wide ? static_cast<int64_t>(quotient(ux, uy)) : quotient(x, y);
    case Op::FloorDiv: return wide ? static_cast<int64_t>(quotient(ux, uy)) : floor_quotient(x, y);
    case Op::Cmod: return static_cast<int64_t>(ux - uy * (wide ? quotient(ux, uy) : static_cast<uint64_t>(quotient(x, y))));
    case Op::FloorMod: return static_cast<int64_t>(ux - uy * (wide ? quotient(ux, uy) : static_cast<uint64_t>(floor_quotient(x, y))));
    case Op::Pow: return static_cast<int64_t>(int_pow(ux, uy, !is_unsigned(dtype)));
    case Op::And: return x & y;
    case Op::Or: return x | y;
    case Op::Xor: return x ^ y;
    case Op::Shl: return shift_left(dtype, x, y);
    case Op::Shr: return shift_right(dtype, x, y);
    case Op::Threefry:
      if (dtype != DType::UInt64) break;
      return static_cast<int64_t>(threefry(ux, uy));
    default: break;
  }
  no_such_op(op, dtype);
}

bool less(const Scalar& x, const Scalar& y) {
  if (is_float(x.dtype)) return x.f < y.f;
  if (x.dtype == DType::UInt64) return static_cast<uint64_t>(x.i) < static_cast<uint64_t>(y.i);
  return x.i < y.i;
}

bool equal(const Scalar& x, const Scalar& y) { return is_float(x.dtype) ? x.f == y.f : x.i == y.i; }

bool is_nan(const Scalar& x) { return is_float(x.dtype) && std::isnan(x.f); }

// Calls f with an unsigned int as wide as an element in memory.
template <class F> auto with_bits(DType dtype, F&& f) {
  switch (element_bytes(dtype)) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: raise(ErrorKind::Internal, "{} is not stored in memory", dtype);
  }
}

}  // namespace

double round_to(DType dtype, double v) {
  if (dtype == DType::Float32) return std::isnan(v) ? v : static_cast<double>(static_cast<float>(v));
  return n_bytes(dtype) >= 8 ? v : round_narrow(format_of(dtype), v);
}

int64_t wrap_to(DType dtype, int64_t v) {
  if (dtype == DType::Bool) return v != 0;
  const int unused = 64 - std::min(info(dtype).bits, 64);
  const uint64_t top = static_cast<uint64_t>(v) << unused;
  return is_unsigned(dtype) ? static_cast<int64_t>(top >> unused) : static_cast<int64_t>(top) >> unused;
}

Scalar Scalar::of(DType dt, double v) { return is_float(dt) ? float_of(dt, round_to(dt, v)) : of(dt, float_to_int64(v)); }

Scalar Scalar::of(DType dt, int64_t v) { return is_float(dt) ? float_of(dt, int_to_float(dt, false, v)) : Scalar{.dtype = dt, .i = wrap_to(dt, v)}; }

double Scalar::as_double() const {
  if (is_float(dtype)) return f;
  return dtype == DType::UInt64 ? static_cast<double>(static_cast<uint64_t>(i)) : static_cast<double>(i);
}

bool Scalar::truthy() const { return is_float(dtype) ? f != 0 : i != 0; }

// MULACC of what uint32 factors pack: a float32 adds two products of bfloat16s, of the high halves first, an int32 four of
// an unsigned and a signed byte.
Scalar packed_mulacc(DType dtype, std::span<const Scalar> src) {
  const auto x = static_cast<uint32_t>(src[0].i), y = static_cast<uint32_t>(src[1].i);
  const auto half = [](uint32_t u, int at) { return std::bit_cast<float>(u << at & 0xFFFF0000U); };
  if (dtype == DType::Float32)
    return Scalar::of(dtype, double{std::fmaf(half(x, 16), half(y, 16), std::fmaf(half(x, 0), half(y, 0), static_cast<float>(src[2].f)))});
  int64_t sum = src[2].i;
  for (int at = 0; at < 32; at += 8) sum += static_cast<uint8_t>(x >> at) * static_cast<int8_t>(y >> at);
  return Scalar::of(dtype, sum);
}

Scalar eval_scalar(Op op, DType dtype, std::span<const Scalar> src) {
  if (op == Op::MulAcc && src[0].dtype != dtype) return packed_mulacc(dtype, src);
  switch (op) {
    case Op::Cast: return cast_scalar(dtype, src[0]);
    case Op::Bitcast: return bitcast_scalar(dtype, src[0]);
    case Op::Where: return src[0].truthy() ? src[1] : src[2];
    case Op::Max: return less(src[1], src[0]) || is_nan(src[0]) ? src[0] : src[1];
    case Op::Min: return less(src[0], src[1]) || is_nan(src[0]) ? src[0] : src[1];
    case Op::CmpLt: return Scalar::of(DType::Bool, static_cast<int64_t>(less(src[0], src[1])));
    case Op::CmpNe: return Scalar::of(DType::Bool, static_cast<int64_t>(!equal(src[0], src[1])));
    case Op::CmpEq: return Scalar::of(DType::Bool, static_cast<int64_t>(equal(src[0], src[1])));
    default: break;
  }
  if (!is_float(dtype)) return Scalar::of(dtype, eval_int(op, dtype, src));
  if (op == Op::Neg) return float_of(dtype, round_to(dtype, -src[0].f));  // some have no -0
  // NaNs that an operation makes are canonical, so that equal constants are equal nodes everywhere.
  const double v = eval_float(op, dtype, src);
  return float_of(dtype, std::isnan(v) ? kNaN : round_to(dtype, v));
}

Op monoid_op(std::string_view monoid) {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"add", Op::Add}, {"mul", Op::Mul}, {"max", Op::Max}, {"min", Op::Min}};
  for (const auto& [text, op] : kOps)
    if (text == monoid) return op;
  raise(ErrorKind::Internal, "unknown monoid '{}'", monoid);
}

Scalar monoid_identity(std::string_view monoid, DType dtype) {
  const Op op = monoid_op(monoid);
  if (op == Op::Add || op == Op::Mul) return Scalar::of(dtype, int64_t{op == Op::Mul});
  const bool lowest = op == Op::Max;
  if (is_float(dtype)) {
    // Types without infinities start from their largest number.
    const bool has_inf = !is_fp8(dtype) || dtype == DType::Fp8E5M2;
    const double v = has_inf ? kInf : format_of(dtype).max_finite;
    return Scalar::of(dtype, lowest ? -v : v);
  }
  if (dtype == DType::UInt64) return Scalar::of(dtype, lowest ? int64_t{0} : int64_t{-1});
  return Scalar::of(dtype, lowest ? int_min(dtype) : int_max(dtype));
}

Scalar scalar_of(const UOp& constant) {
  WHIT_CHECK(constant.is_const() && !constant.arg().is_invalid(), "{} has no value", constant.op());
  const DType dt = constant.dtype();
  return is_float(dt) ? Scalar::of(dt, constant.arg().to_double()) : Scalar::of(dt, constant.arg().to_int());
}

UOp constant_of(const Scalar& v) { return is_float(v.dtype) ? constant(v.dtype, v.f) : constant(v.dtype, v.i); }

UOp fold_constants(Op op, DType dtype, std::span<const UOp> src) {
  SmallVec<Scalar, 3> values;
  for (const UOp& s : src) {
    // What is not there stays so, unless WHERE does not choose it.
    if (s.arg().is_invalid()) {
      if (op != Op::Where || values.empty() || values[0].truthy() == (values.size() == 1)) return UOp::make(Op::Const, dtype, {}, Arg::invalid());
      values.push_back(Scalar::of(dtype, int64_t{0}));
      continue;
    }
    values.push_back(scalar_of(s));
  }
  return constant_of(eval_scalar(op, dtype, values));
}

Scalar read_element(DType dtype, const void* base, int64_t i) {
  const uint64_t bits = with_bits(dtype, [&](auto v) -> uint64_t {
    std::memcpy(&v, static_cast<const char*>(base) + i * static_cast<int64_t>(sizeof(v)), sizeof(v));
    return v;
  });
  if (!is_float(dtype)) return Scalar::of(dtype, static_cast<int64_t>(bits));
  if (n_bytes(dtype) >= 8) return float_of(dtype, std::bit_cast<double>(bits));
  const float v = std::bit_cast<float>(static_cast<uint32_t>(bits));
  const bool is_number = dtype == DType::Float32 && !std::isnan(v);
  return float_of(dtype, is_number ? static_cast<double>(v) : decode(format_of(dtype), static_cast<uint32_t>(bits)));
}

void write_element(DType dtype, void* base, int64_t i, const Scalar& v) {
  uint64_t bits = static_cast<uint64_t>(dtype == DType::Bool ? v.i != 0 : v.i);
  if (dtype == DType::Float32 && !std::isnan(v.f)) bits = std::bit_cast<uint32_t>(static_cast<float>(v.f));
  else if (is_float(dtype) && n_bytes(dtype) < 8) bits = encode(format_of(dtype), v.f);
  with_bits(dtype, [&](auto stored) {
    stored = static_cast<decltype(stored)>(bits);
    std::memcpy(static_cast<char*>(base) + i * static_cast<int64_t>(sizeof(stored)), &stored, sizeof(stored));
  });
}

}  // namespace whit
