// What every scalar op means: the one definition that constant folding, the reference evaluator and the rules'
// self-test share. Floats are computed in double and rounded to their dtype.
#pragma once
#include "ir/uop.h"

namespace whit {

/// `v` rounded to nearest even to what `dtype` holds (fp8 saturates by the rule of CAST). Weak and f64: unchanged.
double round_to(DType dtype, double v);
/// `v` wrapped to the width of an int dtype (bool: v != 0). Weakint and 64-bit types: unchanged (uint64 as its bits).
int64_t wrap_to(DType dtype, int64_t v);

/// A scalar of any dtype: floats in f, ints and bools in i (uint64 as its bits).
struct Scalar {
  DType dtype = DType::Void;
  union {
    double f;
    int64_t i = 0;
  };
  static Scalar of(DType dt, double v);   ///< rounds or wraps
  static Scalar of(DType dt, int64_t v);  ///< rounds or wraps
  double as_double() const;               ///< uint64 read unsigned
  bool truthy() const;
};

/// Applies an elementwise op to scalars by the semantics of ops.def. `dtype` is the result's.
Scalar eval_scalar(Op op, DType dtype, std::span<const Scalar> src);
/// The op that folds by a monoid (add, mul, max, min); its identity.
Op monoid_op(std::string_view monoid);
Scalar monoid_identity(std::string_view monoid, DType dtype);

Scalar scalar_of(const UOp& constant);  ///< of a CONST that is not Invalid
UOp constant_of(const Scalar& v);
/// A CONST from an elementwise op over CONSTs.
UOp fold_constants(Op op, DType dtype, std::span<const UOp> src);

/// Reads and writes one element of raw little-endian storage of `dtype`. Weak types, which storage never has, count as
/// int64 and float64.
Scalar read_element(DType dtype, const void* base, int64_t i);
void write_element(DType dtype, void* base, int64_t i, const Scalar& v);

}  // namespace whit
