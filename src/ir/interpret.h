// The reference evaluator: runs a kernel graph directly, with no pass in between; device REF runs by it, and the tests have
// one of tensor graphs beside it (tests/interpret_tensor.h). It is what every other path is compared with, so it prefers
// the obvious to the fast. Every value is computed by eval_scalar and rounded to its node's dtype; sums of floats are kept
// in double and rounded once.
//
// Memory is raw little-endian, row-major, as read_element sees it. Weak types, which storage never has, count as int64
// and float64 here.
#pragma once
#include <string>
#include <unordered_map>

#include "ir/eval.h"

namespace whit {

using VariableValues = std::unordered_map<std::string, int64_t>;

/// A size with numbers in the place of BINDs and of the VARIABLEs that have a value.
Sint with_values(const Sint& size, const VariableValues& variables = {});

/// Runs a kernel graph: a SINK of STOREs, or ENDs of STOREs over ranges, in the order of the SINK; loops run in the
/// order of their ids, the smallest outside. `buffers[slot]` is the memory of PARAM slot. errors: Internal for an index
/// outside its buffer whose gate is true, and for what no kernel graph has
void evaluate_kernel(const UOp& sink, std::span<void* const> buffers, const VariableValues& variables = {});

}  // namespace whit
