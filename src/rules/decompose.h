// Decomposition: a kernel's values in terms of the ops that its renderer has.
//
// What goes: weak dtypes, FLOORDIV and FLOORMOD, EXP2, LOG2, SIN, POW, THREEFRY, arithmetic of narrow floats (through
// float32, rounded once an op) and whatever else `Caps` does not list. Works on scalars and on lanes alike.
#pragma once
#include <bitset>

#include "ir/uop.h"

namespace whit {

/// What a renderer turns into text itself.
struct Caps {
  std::bitset<kNumOps> ops;          ///< ops for the dtypes below (and for ints and bools)
  std::bitset<kNumDTypes> arith;     ///< float dtypes with arithmetic
  std::bitset<kNumDTypes> converts;  ///< float dtypes with CAST from and to float32, both correctly rounded
  std::bitset<kNumOps> f64_ops;      ///< ops that exist for float64 only
  bool has(Op op) const { return ops[static_cast<size_t>(op)]; }
  bool has_f64(Op op) const { return f64_ops[static_cast<size_t>(op)]; }
  bool has_arith(DType dt) const { return arith[static_cast<size_t>(dt)]; }
  bool has_convert(DType dt) const { return converts[static_cast<size_t>(dt)]; }
};

/// The same graph with every value expressed in the ops of `caps`; idempotent. To be called when REDUCEs are registers
/// or about to be: a REDUCE itself is kept, so the op that joins its values must pass through here too. Of a LINEAR the
/// order is kept; what is new is listed right before the item that needs it. Flags: EMULATED_DTYPES, TRANSCENDENTAL.
/// errors: Attribute or NotImplemented for a dtype of EMULATED_DTYPES that is unknown or cannot be emulated
UOp decompose(const UOp& sink, const Caps& caps);

}  // namespace whit
