// The schedule of contractions: a sum of products in which some output axes belong to one factor and some to the other
// (matmul, convolution and its gradients).
#pragma once
#include "codegen/nest.h"

namespace whit::codegen {

/// What the schedule of a contraction can be varied in.
struct ContractPlan {
  bool swapped = false;  ///< the second factor is the vector operand
  UOp lane;              ///< the vector operand's axis
  int64_t lanes = 1, vectors = 1;
  struct Row {
    UOp axis;
    int64_t tile = 1;
  };
  std::vector<Row> rows;  ///< register tile along the broadcast operand's axes, at most two; the second divides
  bool pack = false;      ///< the vector operand is packed into panels
  bool must_pack = false;
  UOp across;              ///< the first row axis, where it and not the lane axis lies along the output: tiles are stored transposed
  double pack_cycles = 0;  ///< of an element that is packed
  double cycles = 0;       ///< the model's guess, one core
};

/// Schedules the nest as a contraction; false when it is none, or when lanes elsewhere do better.
bool contract(Nest& nest, const Target& target, std::vector<Nest>& out);

}  // namespace whit::codegen
