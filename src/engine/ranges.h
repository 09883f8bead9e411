// COPY of a view, from a device that runs no kernels (a file).
//
// Such a device can only hand over bytes. A chain of movement ops and BITCASTs over its BUFFER is followed as long as it
// shows one range of bytes, in order: that range is what is copied, and the rest of the chain is applied where the data
// arrives. A SHRINK of inner axes is split: the outermost axis that it leaves narrows the range, the others do not.
#pragma once
#include <span>
#include <vector>

#include "ir/uop.h"

namespace whit::engine {

/// The same graph with every such COPY rewritten. Opens no device and allocates nothing. A COPY of something computed is
/// left as it is. Memory that an open capture takes as an input is copied whole: a replay brings other memory.
std::vector<UOp> copy_ranges(std::span<const UOp> roots);

}  // namespace whit::engine
