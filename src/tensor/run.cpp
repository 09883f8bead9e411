// Where tensors meet the engine.
#include "engine/realize.h"
#include "tensor/impl.h"

namespace whit::detail {

std::vector<UOp> run_values(std::span<const UOp> values) { return engine::realize(values); }

}  // namespace whit::detail
