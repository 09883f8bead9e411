// Kernel graph -> optimised kernel graph: what loops a kernel has and what each of them is.
#pragma once
#include "codegen/decisions.h"
#include "ir/target.h"
#include "ir/uop.h"

namespace whit::codegen {

/// The kernel with split, typed and ordered ranges, as the heuristics like it.
/// `min_part`: least iterations of the launch space that are worth a thread. `decisions`: what a search says instead.
UOp optimize(const UOp& sink, const Target& target, int64_t* min_part = nullptr, Decisions* decisions = nullptr);

}  // namespace whit::codegen
