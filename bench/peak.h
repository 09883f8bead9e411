// The float32 multiply-add peak of this machine: independent chains in registers.
#pragma once
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "report.h"

namespace whit::bench {

constexpr int kChains = 12;  // latency times throughput of two units, with some to spare

// Run the chains; return the operations done (a multiply-add counts two).
#if defined(__x86_64__)
#define WHIT_PEAK(name, features, n_bytes, constraint)                                                    \
  __attribute__((target(features), unused)) static double name(int64_t rounds) {                          \
    typedef float Vec __attribute__((vector_size(n_bytes)));                                              \
    Vec acc[kChains], a, b;                                                                               \
    for (int i = 0; i < n_bytes / 4; ++i) a[i] = 0.5f, b[i] = 0.25f;                                      \
    for (Vec & v : acc) v = a;                                                                            \
    for (int64_t r = 0; r < rounds; ++r) {                                                                \
      asm volatile("" ::: "memory");                                                                      \
      WHIT_CHAIN(0)                                                                                       \
      WHIT_CHAIN(1)                                                                                       \
      WHIT_CHAIN(2)                                                                                       \
      WHIT_CHAIN(3)                                                                                       \
      WHIT_CHAIN(4)                                                                                       \
      WHIT_CHAIN(5) WHIT_CHAIN(6) WHIT_CHAIN(7) WHIT_CHAIN(8) WHIT_CHAIN(9) WHIT_CHAIN(10) WHIT_CHAIN(11) \
    }                                                                                                     \
    volatile float sink = 0;                                                                              \
    for (Vec & v : acc) sink = sink + v[0];                                                               \
    return 2.0 * double(n_bytes / 4) * kChains * double(rounds);                                          \
  }
#define WHIT_CHAIN(i) asm volatile("vfmadd213ps %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
WHIT_PEAK(peak_avx512, "avx512f", 64, "v")
#undef WHIT_CHAIN
#define WHIT_CHAIN(i) asm volatile("vfmadd213ps %2, %1, %0" : "+x"(acc[i]) : "x"(a), "x"(b));
WHIT_PEAK(peak_fma, "avx2,fma", 32, "x")
#undef WHIT_CHAIN
#endif

inline double peak_scalar(int64_t rounds) {
  float acc[kChains];
  for (float& v : acc) v = 0.5f;
  for (int64_t r = 0; r < rounds; ++r)
    for (float& v : acc) v = std::fma(v, 0.5f, 0.25f);
  volatile float sink = 0;
  for (float& v : acc) sink = sink + v;
  return 2.0 * kChains * static_cast<double>(rounds);
}

using Peak = double (*)(int64_t);
inline Peak best_peak() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return peak_avx512;
  if (__builtin_cpu_supports("fma")) return peak_fma;
#endif
  return peak_scalar;
}

/// Operations a second of all threads together, at their best: each thread runs slices of about a millisecond and its
/// fastest one counts, so that a thread which has to wait for a core does not lower the peak.
inline double peak_rate(int n_threads) {
  const Peak fn = best_peak();
  const int64_t rounds = static_cast<int64_t>(1e8 / fn(1));
  std::vector<double> best(static_cast<size_t>(n_threads), 0);
  std::vector<std::thread> threads;
  for (double& rate : best)
    threads.emplace_back([=, &rate] {
      for (int i = 0; i < 100; ++i) {
        const double start = now_s(), done = fn(rounds);
        rate = std::max(rate, done / (now_s() - start));
      }
    });
  for (std::thread& t : threads) t.join();
  double sum = 0;
  for (const double rate : best) sum += rate;
  return sum;
}

}  // namespace whit::bench
