// Element types, their groups and the promotion lattice.
#pragma once
#include <cstdint>
#include <string_view>

namespace whit {

/// `WeakInt` and `WeakFloat` are the width-less types of Python scalars. `WeakInt` is also the index type: unbounded by
/// contract. Storage never has a weak type.
enum class DType : uint8_t {
  Void,
  Bool,
  WeakInt,
  Int8,
  UInt8,
  Int16,
  UInt16,
  Int32,
  UInt32,
  Int64,
  UInt64,
  WeakFloat,
  Fp8E4M3,
  Fp8E4M3FNUZ,
  Fp8E5M2,
  Fp8E5M2FNUZ,
  Float16,
  BFloat16,
  Float32,
  Float64,
};
inline constexpr int kNumDTypes = 20;

struct DTypeInfo {
  const char* name;   ///< canonical name ("float32")
  const char* alias;  ///< name that repr prints ("float")
  int bits;           ///< width of the value; 800 for weak types, 1 for bool
  int n_bytes;        ///< bytes of an element in storage; 0 for void, 100 for weak types
  int priority;       ///< order in the lattice
  bool is_float, is_int, is_unsigned;
  int exponent_bits, mantissa_bits;  ///< floats only
};
const DTypeInfo& info(DType dt);

inline bool is_float(DType dt) { return dt >= DType::WeakFloat; }
inline bool is_int(DType dt) { return dt >= DType::WeakInt && dt <= DType::UInt64; }  ///< bool is not an int
inline bool is_weak(DType dt) { return dt == DType::WeakInt || dt == DType::WeakFloat; }
inline bool is_fp8(DType dt) { return dt >= DType::Fp8E4M3 && dt <= DType::Fp8E5M2FNUZ; }
bool is_unsigned(DType dt);  ///< unsigned ints only; bool is not
int n_bytes(DType dt);
std::string_view name(DType dt);
/// Finds a type by name or alias, case-insensitively. Error: Attribute, names the text.
DType dtype_by_name(std::string_view name);

/// Smallest common ancestor of the promotion lattice (JAX JEP 9407, with fp8 types).
DType least_upper_dtype(DType a, DType b);
/// `dt` when it is a float, weakfloat for weakint, else `default_float`.
DType least_upper_float(DType dt, DType default_float = DType::Float32);
/// weakint -> default_int, weakfloat -> default_float, others unchanged.
DType strong_dtype(DType dt, DType default_int = DType::Int32, DType default_float = DType::Float32);
/// int types -> weakint, float types -> weakfloat.
DType weak_dtype(DType dt);
/// True when every value of `from` is a value of `to`.
bool can_lossless_cast(DType from, DType to);
/// The type in which a sum accumulates: unsigned -> at least uint32, signed and bool -> at least int32, floats -> at
/// least `sum_dtype`.
DType sum_acc_dtype(DType dt, DType sum_dtype = DType::Float32);

/// Smallest and largest integer of an int or bool type; saturated to int64 (weakint and uint64 as far as int64 goes).
int64_t int_min(DType dt);
int64_t int_max(DType dt);

}  // namespace whit
