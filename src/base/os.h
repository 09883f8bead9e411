// What whit asks of the operating system, beyond the C++ library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace whit::os {

/// Cores this process may use: the affinity mask, cut by the quota of its cgroup. At least 1.
int cpu_count();
/// Bytes of memory this process may fill: the machine's, cut by the limit of its cgroup.
int64_t memory_bytes();
/// A monotonic clock in nanoseconds.
int64_t now_ns();
/// Ends a long loop by throwing, when whoever embeds whit says so; null asks nobody.
inline void (*interrupt_check)() = nullptr;
inline void poll_interrupt() {
  if (interrupt_check) interrupt_check();
}
/// The folder for caches of this user: $XDG_CACHE_HOME, else ~/.cache; "" where neither is known.
std::string cache_dir();

/// Zeroed pages. `huge` asks for 2 MiB alignment and huge pages where the system has them. Null when there are none.
void* map_pages(size_t n_bytes, bool huge);
void unmap_pages(void* pages, size_t n_bytes);
/// Changes pages from writable to read-only, or to executable and read-only. False on failure.
bool protect_pages(void* pages, size_t n_bytes, bool executable);
size_t page_size();

/// While it lives, this thread rounds to nearest and keeps subnormal numbers, whatever other code of the process (a
/// library built with -ffast-math, say) has set.
/// cost: a nanosecond or two
class IeeeFloats {
#if defined(__x86_64__)
 public:
  IeeeFloats() {
    if (is_ieee()) [[likely]]
      return;
    before_ = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before_ & ~kNotIeee);
  }
  ~IeeeFloats() {
    if (before_ & kNotIeee) __builtin_ia32_ldmxcsr(before_);
  }

 private:
  // Four sums of which one is another in any other mode: to add takes a fifth of the time of reading the mode.
  static bool is_ieee() {
    using Floats = float __attribute__((vector_size(16)));
    using Bits = int32_t __attribute__((vector_size(16)));
    Floats sum{0x1p-130F, 0x1.8p-126F, 1, 1};
    asm volatile("" : "+x"(sum));  // the compiler knows one mode only
    sum += Floats{0, -0x1p-126F, 0x1.8p-24F, 0x1p-25F};
    const auto same = Bits(sum) == Bits(Floats{0x1p-130F, 0x1p-127F, 1 + 0x1p-23F, 1});
    return __builtin_ia32_movmskps(Floats(same)) == 15;
  }
  static constexpr unsigned kNotIeee = 0xE040;  // flush to zero, rounding, denormals are zeros
  unsigned before_ = 0;
#elif defined(__aarch64__)
 public:
  IeeeFloats() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (before_ & kNotIeee) asm volatile("msr fpcr, %0" ::"r"(before_ & ~kNotIeee));
  }
  ~IeeeFloats() {
    if (before_ & kNotIeee) asm volatile("msr fpcr, %0" ::"r"(before_));
  }

 private:
  static constexpr uint64_t kNotIeee = 0x1C80000;  // flush to zero, rounding, flush of float16
  uint64_t before_;
#else
 public:
  IeeeFloats() {}
#endif
 public:
  IeeeFloats& operator=(IeeeFloats&&) = delete;  // nor is it copied
};

}  // namespace whit::os
