// What is computed from a device that runs no kernels (a file), and COPYs of its views.
//
// Such a device can only hand over bytes: an op on its data gets a COPY to the default device, and is computed there. A chain of movement ops and BITCASTs over its BUFFER is followed as long as it
// shows one range of bytes, in order: that range is what is copied, and the rest of the chain is applied where the data
// arrives. A SHRINK of inner axes is split: the outermost axis that it leaves narrows the range, the others do not.
#pragma once
#include <span>
#include <vector>

#include "ir/uop.h"
#include "runtime/buffer.h"

namespace whit::engine {

/// The same graph with such COPYs added and rewritten. Opens no device and allocates nothing. A COPY of something computed is
/// left as it is. Memory that an open capture takes as an input is copied whole: a replay brings other memory.
std::vector<UOp> copy_ranges(std::span<const UOp> roots);
/// The memory that a view shows when it is one range of bytes in order, else null.
BufferPtr part_of_memory(const UOp& view);

}  // namespace whit::engine
