#include "runtime/counters.h"

#include "base/os.h"
#include "base/profile.h"

namespace whit {

GlobalCounters& counters() {
  static auto& all = *new GlobalCounters();  // buffers of static objects still count at exit
  return all;
}

void GlobalCounters::reset() {
  kernel_count.store(0);
  global_ops.store(0);
  global_mem.store(0);
  time_sum_ns.store(0);
}

void GlobalCounters::add_memory(int64_t n_bytes) {
  const int64_t used = mem_used.fetch_add(n_bytes) + n_bytes;
  int64_t peak = mem_peak.load();
  while (used > peak && !mem_peak.compare_exchange_weak(peak, used)) {
  }
  if (is_profiling()) {
    const int64_t now = os::now_ns();
    add_to_timeline({"memory", "memory in use", "", 0, now, now, used});
  }
}

}  // namespace whit
