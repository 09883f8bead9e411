// A kernel graph becomes a program: optimised, expanded, linearised.
#pragma once
#include "codegen/decisions.h"
#include "ir/target.h"
#include "ir/uop.h"

namespace whit {

/// The facts of a PROGRAM that running it takes; they are its arg (docs/ir.md).
struct ProgramInfo {
  std::string name;
  int64_t extent = 1;         ///< launches cover [0, extent)
  int64_t scratch_bytes = 0;  ///< of a call
  int64_t min_part = 1;       ///< least iterations that are worth a thread
  std::vector<std::string> variables;

  Arg to_arg() const;
  static ProgramInfo of(const UOp& program);
};

/// PROGRAM(optimised SINK, LINEAR) of a kernel SINK. `decisions`: what a search says instead of the cost model.
UOp lower_kernel(const UOp& kernel, const Target& target, codegen::Decisions* decisions = nullptr);
/// The same without the optimiser: the SINK's axis types are taken as they are.
UOp lower_optimized(const UOp& sink, const Target& target, int64_t min_part = 1);

}  // namespace whit
