// What the process has done so far: kernels, arithmetic, memory.
#pragma once
#include <atomic>
#include <cstdint>

namespace whit {

/// A sum over all threads, each of which adds to a part of its own: atomic additions would take longer than a small kernel.
class ThreadSum {
 public:
  int64_t load() const;
  void reset() { before_ += load(); }

  enum Part { kKernels, kOps, kBytes, kNs, kCount };
  using Parts = std::atomic<int64_t>[kCount];
  /// a + b, at most the largest int64: kernels that run on no memory cost as much.
  static int64_t add(int64_t a, int64_t b) { return __builtin_add_overflow(a, b, &a) ? INT64_MAX : a; }
  explicit ThreadSum(Part part) : part_(part) {}
  /// This thread's; only it writes to them.
  static Parts& own() { return own_ ? *own_ : take(); }

 private:
  static Parts& take();
  static inline constinit thread_local Parts* own_ = nullptr;
  const Part part_;
  std::atomic<int64_t> before_{0};
};

struct GlobalCounters {
  ThreadSum kernel_count{ThreadSum::kKernels};  ///< kernels run
  ThreadSum global_ops{ThreadSum::kOps};        ///< arithmetic operations of those kernels
  ThreadSum global_mem{ThreadSum::kBytes};      ///< bytes they read and wrote
  ThreadSum time_sum_ns{ThreadSum::kNs};        ///< their time, where it was measured
  std::atomic<int64_t> mem_used{0};             ///< bytes in live buffers, memory from outside not counted
  std::atomic<int64_t> mem_peak{0};             ///< the largest mem_used since reset_peak

  double time_sum_s() const { return static_cast<double>(time_sum_ns.load()) * 1e-9; }
  /// Zeroes all but the memory in use.
  void reset();
  void reset_peak() { mem_peak.store(mem_used.load()); }

  static void add_kernels(int64_t n_kernels, int64_t n_ops, int64_t n_bytes, int64_t t_ns) {
    ThreadSum::Parts& own = ThreadSum::own();
    const auto add = [&](ThreadSum::Part p, int64_t n) {
      own[p].store(ThreadSum::add(own[p].load(std::memory_order_relaxed), n), std::memory_order_relaxed);
    };
    add(ThreadSum::kKernels, n_kernels), add(ThreadSum::kOps, n_ops), add(ThreadSum::kBytes, n_bytes), add(ThreadSum::kNs, t_ns);
  }
  void add_memory(int64_t n_bytes);
};

GlobalCounters& counters();

}  // namespace whit
