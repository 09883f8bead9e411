// The memory planner: temporaries share an arena by the calls between which they live.
#pragma once
#include "schedule/schedule.h"

namespace whit::sched {

/// Gives every Temp an offset in the arena of its device and fills arenas and the byte counts of stats. Sizes are
/// rounded to 256 bytes. With NO_MEMORY_PLANNER=1 nothing shares: offsets stay -1.
void plan_memory(Schedule& schedule);
/// Bytes of a buffer as they are planned.
int64_t planned_bytes(const ScheduleBuffer& buffer);

}  // namespace whit::sched
