// What the process has done so far: kernels, arithmetic, memory.
#pragma once
#include <atomic>
#include <cstdint>

namespace whit {

struct GlobalCounters {
  std::atomic<int64_t> kernel_count{0};  ///< kernels run
  std::atomic<int64_t> global_ops{0};    ///< arithmetic operations of those kernels
  std::atomic<int64_t> global_mem{0};    ///< bytes they read and wrote
  std::atomic<int64_t> time_sum_ns{0};   ///< their time, where it was measured
  std::atomic<int64_t> mem_used{0};      ///< bytes in live buffers, memory from outside not counted
  std::atomic<int64_t> mem_peak{0};      ///< the largest mem_used since reset_peak

  double time_sum_s() const { return static_cast<double>(time_sum_ns.load(std::memory_order_relaxed)) * 1e-9; }
  /// Zeroes all but the memory in use.
  void reset();
  void reset_peak() { mem_peak.store(mem_used.load()); }

  void add_kernels(int64_t n_kernels, int64_t n_ops, int64_t n_bytes, int64_t t_ns) {
    kernel_count.fetch_add(n_kernels, std::memory_order_relaxed);
    global_ops.fetch_add(n_ops, std::memory_order_relaxed);
    global_mem.fetch_add(n_bytes, std::memory_order_relaxed);
    if (t_ns) time_sum_ns.fetch_add(t_ns, std::memory_order_relaxed);
  }
  void add_memory(int64_t n_bytes);
};

GlobalCounters& counters();

}  // namespace whit
