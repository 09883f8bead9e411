// The memory planner: temporaries share an arena by the calls between which they live.
#pragma once
#include "schedule/schedule.h"

namespace whit::sched {

/// Gives every Temp an offset in the arena of its device and fills arenas and the byte counts of stats. Sizes are
/// rounded to 256 bytes. Where more than `least_bytes` are alive a result is written over an operand, if that lowers their
/// largest sum: kernels of `schedule` change. With NO_MEMORY_PLANNER=1 nothing shares: offsets stay -1.
void plan_memory(Schedule& schedule, int64_t least_bytes);
/// A temporary: the calls from the first to the last that touches it, and its place in an arena.
struct Lifetime {
  int64_t first = -1, last = -1, n_bytes = 0, offset = -1;  // first is -1 for what no call touches
  int32_t id = -1;
  void touch(int64_t call, int64_t bytes) {
    if (first < 0) first = call;
    last = call;
    n_bytes = bytes;
  }
};
/// The bytes that are alive at each call, up to that after the last that any lives at.
std::vector<int64_t> live_bytes(std::span<const Lifetime> temporaries);
/// Gives temporaries of one device offsets in an arena such that what lives at once does not overlap. Gives the bytes of the arena.
int64_t pack(std::vector<Lifetime*> temporaries);

/// Bytes of a buffer as they are planned.
int64_t planned_bytes(const ScheduleBuffer& buffer);

}  // namespace whit::sched
