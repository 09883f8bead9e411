// The reference evaluator of tensor graphs: as ir/interpret.h, which it runs the kernels of a graph by. Only tests need it:
// it is the oracle of rules, schedules and ops.
#pragma once
#include <cstddef>
#include <vector>

#include "ir/interpret.h"

namespace whit {

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

}  // namespace whit
