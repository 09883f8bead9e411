// Element types, their groups and the promotion lattice.
#pragma once
#include <cstddef>
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
  const char* name;                  ///< canonical name ("float32")
  const char* alias;                 ///< name that repr prints ("float")
  int bits;                          ///< width of the value; 800 for weak types, 1 for bool
  int n_bytes;                       ///< bytes of an element in storage; 0 for void, 100 for weak types
  int priority;                      ///< order in the lattice
  bool is_unsigned;                  ///< ints only
  int exponent_bits, mantissa_bits;  ///< floats only
};
inline constexpr DTypeInfo kDTypes[kNumDTypes] = {
    {"void", "void", 0, 0, -1, false, 0, 0},          {"bool", "bool", 1, 1, 0, false, 0, 0},
    {"weakint", "weakint", 800, 100, 0, false, 0, 0}, {"int8", "char", 8, 1, 1, false, 0, 0},
    {"uint8", "uchar", 8, 1, 2, true, 0, 0},          {"int16", "short", 16, 2, 3, false, 0, 0},
    {"uint16", "ushort", 16, 2, 4, true, 0, 0},       {"int32", "int", 32, 4, 5, false, 0, 0},
    {"uint32", "uint", 32, 4, 6, true, 0, 0},         {"int64", "long", 64, 8, 7, false, 0, 0},
    {"uint64", "ulong", 64, 8, 8, true, 0, 0},        {"weakfloat", "weakfloat", 800, 100, 9, false, 11, 52},
    {"fp8e4m3", "fp8e4m3", 8, 1, 10, false, 4, 3},    {"fp8e4m3fnuz", "fp8e4m3fnuz", 8, 1, 10, false, 4, 3},
    {"fp8e5m2", "fp8e5m2", 8, 1, 11, false, 5, 2},    {"fp8e5m2fnuz", "fp8e5m2fnuz", 8, 1, 11, false, 5, 2},
    {"float16", "half", 16, 2, 12, false, 5, 10},     {"bfloat16", "bfloat16", 16, 2, 13, false, 8, 7},
    {"float32", "float", 32, 4, 14, false, 8, 23},    {"float64", "double", 64, 8, 15, false, 11, 52},
};
constexpr const DTypeInfo& info(DType dt) { return kDTypes[static_cast<size_t>(dt)]; }

inline bool is_float(DType dt) { return dt >= DType::WeakFloat; }
inline bool is_int(DType dt) { return dt >= DType::WeakInt && dt <= DType::UInt64; }  ///< bool is not an int
inline bool is_weak(DType dt) { return dt == DType::WeakInt || dt == DType::WeakFloat; }
inline bool is_fp8(DType dt) { return dt >= DType::Fp8E4M3 && dt <= DType::Fp8E5M2FNUZ; }
inline bool is_unsigned(DType dt) { return info(dt).is_unsigned; }  ///< unsigned ints only; bool is not
inline int n_bytes(DType dt) { return info(dt).n_bytes; }
/// Bytes of an element where values of weak types lie in memory too, as int64 and float64: in kernels and evaluators.
inline int element_bytes(DType dt) { return is_weak(dt) ? 8 : n_bytes(dt); }
inline std::string_view name(DType dt) { return info(dt).name; }
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
