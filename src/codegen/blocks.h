// Nests with values that stay in scratch memory (STAGEs of the scheduler): attention and its gradients.
#pragma once
#include "codegen/nest.h"

namespace whit::codegen {

/// Schedules a nest with STAGEs for blocks of rows; false when it has none.
bool block_rows(const Nest& nest, const Target& target, std::vector<Nest>& out);

}  // namespace whit::codegen
