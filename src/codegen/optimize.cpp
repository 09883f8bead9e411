#include "codegen/optimize.h"

namespace whit::codegen {

UOp optimize(const UOp& sink, const Target&) { return sink; }

}  // namespace whit::codegen
