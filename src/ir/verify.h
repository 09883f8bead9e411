// The verifier: what a graph must look like between two stages. The rules are a table (see verify.cpp); most say
// something about one node and its sources.
#pragma once
#include <string>

#include "ir/uop.h"

namespace whit {

/// Tensor: before scheduling. Kernel: after rangeify, also with optimised ranges. Program: a LINEAR.
/// Docs: docs/ir.md, one section a level.
enum class Level : uint8_t { Tensor = 1, Kernel = 2, Program = 4 };

/// What is illegal about the graph: the first node, in the order and with the number of to_text, and the rule it breaks.
/// "" when all is well. Kernels that a tensor graph calls are checked as kernels.
std::string find_illegal(const UOp& root, Level level);

/// errors: Internal, with the text of find_illegal and `where` it was found (the name of a pass)
void verify(const UOp& root, Level level, std::string_view where);
/// The same if the flag SPEC asks for it: what stands between passes.
void verify_if_asked(const UOp& root, Level level, std::string_view where);

}  // namespace whit
