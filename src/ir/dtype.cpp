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

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{
    {"void", "void", 0, 0, -1, false, false, false, 0, 0},
    {"bool", "bool", 1, 1, 0, false, false, false, 0, 0},
    {"weakint", "weakint", 800, 100, 0, false, true, false, 0, 0},
    {"int8", "char", 8, 1, 1, false, true, false, 0, 0},
    {"uint8", "uchar", 8, 1, 2, false, true, true, 0, 0},
    {"int16", "short", 16, 2, 3, false, true, false, 0, 0},
    {"uint16", "ushort", 16, 2, 4, false, true, true, 0, 0},
    {"int32", "int", 32, 4, 5, false, true, false, 0, 0},
    {"uint32", "uint", 32, 4, 6, false, true, true, 0, 0},
    {"int64", "long", 64, 8, 7, false, true, false, 0, 0},
    {"uint64", "ulong", 64, 8, 8, false, true, true, 0, 0},
    {"weakfloat", "weakfloat", 800, 100, 9, true, false, false, 11, 52},
    {"fp8e4m3", "fp8e4m3", 8, 1, 10, true, false, false, 4, 3},
    {"fp8e4m3fnuz", "fp8e4m3fnuz", 8, 1, 10, true, false, false, 4, 3},
    {"fp8e5m2", "fp8e5m2", 8, 1, 11, true, false, false, 5, 2},
    {"fp8e5m2fnuz", "fp8e5m2fnuz", 8, 1, 11, true, false, false, 5, 2},
    {"float16", "half", 16, 2, 12, true, false, false, 5, 10},
    {"bfloat16", "bfloat16", 16, 2, 13, true, false, false, 8, 7},
    {"float32", "float", 32, 4, 14, true, false, false, 8, 23},
    {"float64", "double", 64, 8, 15, true, false, false, 11, 52},
}};

constexpr uint32_t bit(DType dt) { return 1u << static_cast<int>(dt); }

// The direct parents of each type in the lattice.
constexpr uint32_t parents(DType dt) {
  using enum DType;
  switch (dt) {
    case Void:
      return 0;
    case Bool:
      return bit(WeakInt);
    case WeakInt:
      return bit(Int8) | bit(UInt8);
    case Int8:
      return bit(Int16);
    case UInt8:
      return bit(Int16) | bit(UInt16);
    case Int16:
      return bit(Int32);
    case UInt16:
      return bit(Int32) | bit(UInt32);
    case Int32:
      return bit(Int64);
    case UInt32:
      return bit(Int64) | bit(UInt64);
    case Int64:
      return bit(WeakFloat);
    case UInt64:
      return bit(WeakFloat);
    case WeakFloat:
      return bit(Fp8E4M3) | bit(Fp8E4M3FNUZ) | bit(Fp8E5M2) | bit(Fp8E5M2FNUZ);
    case Fp8E4M3:
    case Fp8E4M3FNUZ:
    case Fp8E5M2:
    case Fp8E5M2FNUZ:
      return bit(Float16) | bit(BFloat16);
    case Float16:
      return bit(Float32);
    case BFloat16:
      return bit(Float32);
    case Float32:
      return bit(Float64);
    case Float64:
      return 0;
  }
  return 0;
}

// All ancestors of each type, itself included. Parents come later in the enum, so one pass from the back is enough.
constexpr std::array<uint32_t, kNumDTypes> make_ancestors() {
  std::array<uint32_t, kNumDTypes> up{};
  for (int i = kNumDTypes - 1; i >= 0; --i) {
    up[i] = 1u << i;
    for (int p = i + 1; p < kNumDTypes; ++p)
      if (parents(static_cast<DType>(i)) >> p & 1) up[i] |= up[p];
  }
  return up;
}
constexpr auto kAncestors = make_ancestors();

}  // namespace

const DTypeInfo& info(DType dt) { return kInfo[static_cast<size_t>(dt)]; }
bool is_unsigned(DType dt) { return info(dt).is_unsigned; }
int n_bytes(DType dt) { return info(dt).n_bytes; }
std::string_view name(DType dt) { return info(dt).name; }

DType dtype_by_name(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (int i = 0; i < kNumDTypes; ++i)
    if (lower == kInfo[i].name || lower == kInfo[i].alias) return static_cast<DType>(i);
  raise(ErrorKind::Attribute,
        fmt::format("[dtype] unknown dtype '{}'; expected a name such as float32, int64, bool", text));
}

DType least_upper_dtype(DType a, DType b) {
  if (a == b) return a;
  const uint32_t common = kAncestors[static_cast<size_t>(a)] & kAncestors[static_cast<size_t>(b)];
  WHIT_CHECK(common != 0, "no common dtype of {} and {}", name(a), name(b));
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
      return int_min(to) <= int_min(from) &&
             (to == DType::UInt64 ? int_min(from) >= 0 : from != DType::UInt64 && int_max(from) <= int_max(to));
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
