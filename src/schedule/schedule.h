// Schedule: what must run, in which order, on which memory, so that some tensors have their values.
//
// make_schedule works on structure alone: it opens no device and touches no memory. Equal graphs over other BUFFERs have
// equal schedules, which are made once (flag SCACHE); nothing in a Schedule refers to a BUFFER.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/uop.h"

namespace whit {

/// Memory that a schedule works on.
struct ScheduleBuffer {
  enum class Kind : uint8_t {
    Input,   ///< number `slot` of the graph's BUFFERs; may be written
    Output,  ///< new memory that outlives the run
    Temp,    ///< bytes [offset, offset + n_bytes) of the arena of its device
  };
  Kind kind;
  DType dtype;
  uint16_t device;
  int32_t slot = -1;  ///< Input: which BUFFER; Output: which of the outputs
  int64_t n_elems = 0;
  int64_t offset = -1;  ///< Temp; -1 when it has memory of its own (NO_MEMORY_PLANNER=1)
  bool is_written = false, is_read = false;
};

struct ScheduledCall {
  UOp kernel{};  ///< SINK; null for a transfer from args[1] to args[0]
  uint16_t device = 0;
  std::vector<int32_t> args{};  ///< buffers by PARAM slot, written ones first
  size_t n_written = 0;         ///< so many of args
  bool updates = false;         ///< some memory that it writes is read too
  int64_t n_iterations = 0;     ///< of all its loops
};

struct Arena {
  uint16_t device;
  int64_t n_bytes;  ///< the peak of what is planned into it
};

struct ScheduleStats {
  int64_t n_kernels = 0, n_copies = 0;
  int64_t n_tensor_nodes = 0;  ///< of the graph
  int64_t n_kernel_nodes = 0;  ///< of all kernels together
  int64_t temp_bytes = 0;      ///< of all temporaries, as if each had its own memory
  int64_t arena_bytes = 0;     ///< after planning
  int64_t live_bytes = 0;      ///< the largest sum of temporaries that are alive at once: no plan can be below
  int64_t output_bytes = 0;
  int64_t n_recomputed = 0;  ///< calls that run again what was dropped in between
};

struct Schedule {
  std::vector<ScheduleBuffer> buffers{};
  std::vector<ScheduledCall> calls{};
  std::vector<int32_t> roots{};  ///< by root: the buffer that holds it, row-major
  std::vector<Arena> arenas{};
  int32_t n_inputs = 0, n_outputs = 0;
  ScheduleStats stats{};

  /// LINEAR(CALL(SINK, BUFFERs..), ..) with fresh BUFFERs, to look at and to verify.
  UOp to_linear() const;
};

/// A schedule and the BUFFERs of one graph that it is for.
struct BoundSchedule {
  std::shared_ptr<const Schedule> schedule{};
  std::vector<UOp> inputs{};  ///< BUFFERs by input slot
  bool cache_hit = false;
  Key128 key{};
};

/// Schedules the values of `roots`. A root is a tensor graph of strong dtype; a BUFFER or an AFTER, both maybe below
/// RESHAPEs, needs no memory of its own. Nodes that are realised are read from their buffers. `default_device` (id) is
/// for graphs that name none. With a `memory_budget` (bytes of the arenas; 0: none) values are computed again instead of
/// kept as long as the budget asks for it.
/// errors: Runtime for a kernel that would touch two devices, NotImplemented; Memory for a budget that recomputing cannot
/// meet, with the least that it can
BoundSchedule make_schedule(std::span<const UOp> roots, uint16_t default_device, int64_t memory_budget = 0);

/// Replaces the estimate of what a kernel launch costs. For tests: with 0 small tensors are scheduled as large ones.
void set_launch_cost(double ns);

/// Forgets all cached schedules; tests and memory accounting.
void clear_schedule_cache();
int64_t schedule_cache_size();

}  // namespace whit
