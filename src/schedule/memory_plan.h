// The memory planner: temporaries share an arena by the calls between which they live.
#pragma once
#include "schedule/schedule.h"

namespace whit::sched {

/// Gives every Temp an offset in the arena of its device and fills arenas and the byte counts of stats. Sizes are
/// rounded to 256 bytes. Where more than `least_bytes` are alive a result is written over an operand, if that lowers their
/// largest sum: kernels of `schedule` change. With NO_MEMORY_PLANNER=1 nothing shares: offsets stay -1.
void plan_memory(Schedule& schedule, int64_t least_bytes);
/// Bytes of a buffer as they are planned.
int64_t planned_bytes(const ScheduleBuffer& buffer);

}  // namespace whit::sched
