// The float32 multiply-add peak of this machine: independent chains in registers.
#pragma once
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

#include "report.h"

namespace whit::bench {

constexpr int kChains = 12;  // latency times throughput of two units, with some to spare

// Run the chains; return the operations done (a multiply-add counts two). One statement holds all chains, so that they stay in
// registers: through memory it is the stores that are measured.
#if defined(__x86_64__)
#define WHIT_ACC(constraint)                                                                                                                  \
  "+" constraint(c0), "+" constraint(c1), "+" constraint(c2), "+" constraint(c3), "+" constraint(c4), "+" constraint(c5), "+" constraint(c6), \
      "+" constraint(c7), "+" constraint(c8), "+" constraint(c9), "+" constraint(c10), "+" constraint(c11)
#define WHIT_PEAK(name, features, n_bytes, constraint)                                                                  \
  __attribute__((target(features), unused)) static double name(int64_t rounds) {                                        \
    typedef float Vec __attribute__((vector_size(n_bytes)));                                                            \
    const Vec a = Vec{} + 0.5f, b = Vec{} + 0.25f;                                                                      \
    Vec c0 = a, c1 = a, c2 = a, c3 = a, c4 = a, c5 = a, c6 = a, c7 = a, c8 = a, c9 = a, c10 = a, c11 = a;               \
    for (int64_t r = 0; r < rounds; ++r)                                                                                \
      asm volatile(                                                                                                     \
          "vfmadd213ps %13, %12, %0\n vfmadd213ps %13, %12, %1\n vfmadd213ps %13, %12, %2\n vfmadd213ps %13, %12, %3\n" \
          "vfmadd213ps %13, %12, %4\n vfmadd213ps %13, %12, %5\n vfmadd213ps %13, %12, %6\n vfmadd213ps %13, %12, %7\n" \
          "vfmadd213ps %13, %12, %8\n vfmadd213ps %13, %12, %9\n vfmadd213ps %13, %12, %10\n vfmadd213ps %13, %12, %11" \
          : WHIT_ACC(constraint)                                                                                        \
          : constraint(a), constraint(b));                                                                              \
    volatile float sink = (c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9 + c10 + c11)[0];                             \
    (void)sink;                                                                                                         \
    return 2.0 * double(n_bytes / 4) * kChains * double(rounds);                                                        \
  }
WHIT_PEAK(peak_avx512, "avx512f", 64, "v")
WHIT_PEAK(peak_fma, "avx2,fma", 32, "x")
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
