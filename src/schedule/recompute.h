// Recomputation: temporaries that are computed a second time just before they are needed again, so that their memory is
// free in between. Works on a schedule whose order is fixed; the same kernel runs again, so values stay the same bit for bit.
#pragma once
#include <span>

#include "schedule/schedule.h"

namespace whit::sched {

/// Drops the `hinted` buffers (by number) between their two uses that are furthest apart, if the peak of live bytes falls
/// by that. Then, while the peak is above `budget` bytes (0: none is), what frees most for the least work. Gives the peak,
/// which is above the budget when that cannot be met.
int64_t recompute(Schedule& s, std::span<const char> hinted, int64_t budget);

}  // namespace whit::sched
