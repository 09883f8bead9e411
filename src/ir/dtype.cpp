#include "ir/dtype.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>

#include "base/error.h"

namespace whit {
DType dtype_by_name(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (int i = 0; i < kNumDTypes; ++i)
    if (lower == kDTypes[i].name || lower == kDTypes[i].alias) return static_cast<DType>(i);
  raise(ErrorKind::Attribute, "[dtype] unknown dtype '{}'; expected a name such as float32, int64, bool", text);
}

// The lattice is a chain in the order of priorities, but for three kinds of pairs that meet above both: an unsigned type and a
// narrower signed one, two kinds of fp8, and the two halves.
DType least_upper_dtype(DType a, DType b) {
  if (a == b) return a;
  WHIT_CHECK(a != DType::Void && b != DType::Void, "no common dtype of {} and {}", a, b);
  if (info(a).priority > info(b).priority || b == DType::Bool) std::swap(a, b);
  if (is_unsigned(b) && is_int(a) && !is_weak(a) && !is_unsigned(a))
    return static_cast<DType>(static_cast<int>(b) + 1);  // signed, and wider; weakfloat above uint64
  if (is_fp8(a) && is_fp8(b)) return DType::Float16;
  return a == DType::Float16 && b == DType::BFloat16 ? DType::Float32 : b;
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
  return is_float(from) && is_float(to) && !is_fp8(to) && info(from).mantissa_bits <= info(to).mantissa_bits &&
         info(from).exponent_bits <= info(to).exponent_bits;
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
