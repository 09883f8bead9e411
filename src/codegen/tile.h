// Square tiles for kernels that read across the order in which they write: transposes.
#pragma once
#include "codegen/nest.h"

namespace whit::codegen {

/// Splits the two output loops of which one walks along memory in one access and the other in another, so that a tile
/// of both accesses stays in the cache. Leaves other nests, and those with sums, as they are.
void tile_transposed(Nest& nest);

}  // namespace whit::codegen
