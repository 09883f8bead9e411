// The reference evaluator: runs any tensor graph or kernel graph directly, with no pass in between. It is what every
// other path is compared with, so it prefers the obvious to the fast. Every value is computed by eval_scalar and
// rounded to its node's dtype; sums of floats are kept in double and rounded once.
//
// Memory is raw little-endian, row-major, as read_element sees it. Weak types, which storage never has, count as int64
// and float64 here.
#pragma once
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/eval.h"

namespace whit {

using VariableValues = std::unordered_map<std::string, int64_t>;

/// A size with numbers in the place of BINDs and of the VARIABLEs that have a value.
Sint with_values(const Sint& size, const VariableValues& variables = {});

/// What a graph reads from outside: memory of BUFFERs and of PARAMs that no CALL binds. A STORE writes it too. A BUFFER
/// without memory gets zeros for the time of the evaluation.
struct HostInputs {
  std::unordered_map<const Node*, void*> memory{};
  VariableValues variables{};
};

/// An evaluated value.
struct HostTensor {
  DType dtype = DType::Void;
  Shape shape{};
  std::vector<std::byte> bytes{};
  Scalar at(int64_t i) const { return read_element(dtype, bytes.data(), i); }
};

/// The values of `roots`, in order. A BUFFER read directly shows its content before any STORE of the graph; AFTER shows
/// the content once its deps have run. Roots without a value (STORE, SINK) are run and give an empty tensor of Void.
/// errors: Internal for an op that no tensor graph has, a PARAM without memory, a VARIABLE without value
std::vector<HostTensor> evaluate_tensor(std::span<const UOp> roots, const HostInputs& inputs = {});
HostTensor evaluate_tensor(const UOp& root, const HostInputs& inputs = {});

/// Runs a kernel graph: a SINK of STOREs, or ENDs of STOREs over ranges, in the order of the SINK; loops run in the
/// order of their ids, the smallest outside. `buffers[slot]` is the memory of PARAM slot. errors: Internal for an index
/// outside its buffer whose gate is true, and for what no kernel graph has
void evaluate_kernel(const UOp& sink, std::span<void* const> buffers, const VariableValues& variables = {});

}  // namespace whit
