#include "ir/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string>
#include <tuple>

#include "base/error.h"

namespace whit {
namespace {

constexpr uint32_t bits_of(std::initializer_list<DType> types) {
  uint32_t bits = 0;
  for (const DType dt : types) bits |= 1u << static_cast<int>(dt);
  return bits;
}

// The direct parents of each type in the lattice.
using enum DType;
constexpr uint32_t kFp8 = bits_of({Fp8E4M3, Fp8E4M3FNUZ, Fp8E5M2, Fp8E5M2FNUZ}), kHalves = bits_of({Float16, BFloat16});
constexpr std::pair<DType, uint32_t> kParents[] = {
    {Bool, bits_of({WeakInt})},
    {WeakInt, bits_of({Int8, UInt8})},
    {Int8, bits_of({Int16})},
    {UInt8, bits_of({Int16, UInt16})},
    {Int16, bits_of({Int32})},
    {UInt16, bits_of({Int32, UInt32})},
    {Int32, bits_of({Int64})},
    {UInt32, bits_of({Int64, UInt64})},
    {Int64, bits_of({WeakFloat})},
    {UInt64, bits_of({WeakFloat})},
    {WeakFloat, kFp8},
    {Fp8E4M3, kHalves},
    {Fp8E4M3FNUZ, kHalves},
    {Fp8E5M2, kHalves},
    {Fp8E5M2FNUZ, kHalves},
    {Float16, bits_of({Float32})},
    {BFloat16, bits_of({Float32})},
    {Float32, bits_of({Float64})},
};

// All ancestors of each type, itself included. Parents come later in the enum, so one pass from the back is enough.
constexpr std::array<uint32_t, kNumDTypes> make_ancestors() {
  std::array<uint32_t, kNumDTypes> up{};
  for (int i = kNumDTypes - 1; i >= 0; --i) {
    up[i] = 1u << i;
    for (const auto& [child, parents] : kParents)
      for (int p = i + 1; p < kNumDTypes; ++p)
        if (static_cast<int>(child) == i && (parents >> p & 1)) up[i] |= up[p];
  }
  return up;
}
constexpr auto kAncestors = make_ancestors();

}  // namespace

DType dtype_by_name(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (int i = 0; i < kNumDTypes; ++i)
    if (lower == kDTypes[i].name || lower == kDTypes[i].alias) return static_cast<DType>(i);
  raise(ErrorKind::Attribute, "[dtype] unknown dtype '{}'; expected a name such as float32, int64, bool", text);
}

DType least_upper_dtype(DType a, DType b) {
  if (a == b) return a;
  const uint32_t common = kAncestors[static_cast<size_t>(a)] & kAncestors[static_cast<size_t>(b)];
  WHIT_CHECK(common != 0, "no common dtype of {} and {}", a, b);
  DType best = DType::Float64;
  auto rank = [](DType d) { return std::make_tuple(info(d).priority, info(d).bits, std::string_view(info(d).name)); };
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType d = static_cast<DType>(i);
    if ((common >> i & 1) && rank(d) < rank(best)) best = d;
  }
  return best;
}

DType least_upper_float(DType dt, DType default_float) {
  if (is_float(dt)) return dt;
  return dt == DType::WeakInt ? DType::WeakFloat : default_float;
}

DType strong_dtype(DType dt, DType default_int, DType default_float) {
  if (dt == DType::WeakInt) return default_int;
  if (dt == DType::WeakFloat) return default_float;
  return dt;
}

DType weak_dtype(DType dt) {
  if (is_int(dt)) return DType::WeakInt;
  if (is_float(dt)) return DType::WeakFloat;
  return dt;
}

bool can_lossless_cast(DType from, DType to) {
  if (from == to || from == DType::Bool) return true;
  if (is_weak(from) || is_weak(to)) return to == DType::WeakInt ? is_int(from) : false;
  if (is_int(from)) {
    if (is_int(to))
      return int_min(to) <= int_min(from) && (to == DType::UInt64 ? int_min(from) >= 0 : from != DType::UInt64 && int_max(from) <= int_max(to));
    const int value_bits = info(from).bits - (is_unsigned(from) ? 0 : 1);
    // 2^(mantissa+1) integers are exact; the exponent range of the wider floats is never the limit but for float16.
    return is_float(to) && value_bits <= info(to).mantissa_bits + 1 && !is_fp8(to);
  }
  if (is_float(from) && is_float(to)) {
    const bool fnuz = from == DType::Fp8E4M3FNUZ || from == DType::Fp8E5M2FNUZ;
    if (is_fp8(to) || (fnuz && is_fp8(to))) return false;
    return info(from).mantissa_bits <= info(to).mantissa_bits && info(from).exponent_bits <= info(to).exponent_bits;
  }
  return false;
}

DType sum_acc_dtype(DType dt, DType sum_dtype) {
  if (is_weak(dt)) return dt;
  if (is_unsigned(dt)) return least_upper_dtype(dt, DType::UInt32);
  if (is_int(dt) || dt == DType::Bool) return least_upper_dtype(dt, DType::Int32);
  return is_float(dt) ? least_upper_dtype(dt, sum_dtype) : dt;
}

int64_t int_min(DType dt) {
  if (dt == DType::Bool || is_unsigned(dt)) return 0;
  if (dt == DType::WeakInt || info(dt).bits == 64) return std::numeric_limits<int64_t>::min();
  return -(int64_t{1} << (info(dt).bits - 1));
}

int64_t int_max(DType dt) {
  if (dt == DType::Bool) return 1;
  if (dt == DType::WeakInt || info(dt).bits == 64) return std::numeric_limits<int64_t>::max();
  return (int64_t{1} << (info(dt).bits - (is_unsigned(dt) ? 0 : 1))) - 1;
}

}  // namespace whit
