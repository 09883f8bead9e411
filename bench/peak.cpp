// The float32 multiply-add peak of this machine: independent chains in registers, on one thread and on all. Usage: peak
#include <atomic>
#include <cmath>
#include <thread>

#include "report.h"

namespace {

constexpr int64_t kRounds = 20'000'000;
constexpr int kChains = 12;  // latency times throughput of two units, with some to spare

// Runs the chains; returns the operations done (a multiply-add counts two).
#if defined(__x86_64__)
#define WHIT_PEAK(name, features, n_bytes, constraint)                                                    \
  __attribute__((target(features), noinline)) double name(int64_t rounds) {                               \
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

double peak_scalar(int64_t rounds) {
  float acc[kChains];
  for (float& v : acc) v = 0.5f;
  for (int64_t r = 0; r < rounds; ++r)
    for (float& v : acc) v = std::fma(v, 0.5f, 0.25f);
  volatile float sink = 0;
  for (float& v : acc) sink = sink + v;
  return 2.0 * kChains * static_cast<double>(rounds);
}

using Peak = double (*)(int64_t);
Peak best_peak() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return peak_avx512;
  if (__builtin_cpu_supports("fma")) return peak_fma;
#endif
  return peak_scalar;
}

double gflops(int n_threads) {
  const Peak fn = best_peak();
  const double start = whit::bench::now_s();
  std::vector<std::thread> threads;
  std::atomic<double> operations{0};
  for (int i = 0; i < n_threads; ++i)
    threads.emplace_back([&] {
      const double done = fn(kRounds);
      double old = operations.load();
      while (!operations.compare_exchange_weak(old, old + done)) {
      }
    });
  for (std::thread& t : threads) t.join();
  return operations.load() / (whit::bench::now_s() - start) * 1e-9;
}

}  // namespace

int main() {
  const int n = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const int threads : {1, std::min(2, n), n}) {
    if (threads == 1 && n == 1) continue;
    std::vector<double> rates;
    for (int i = 0; i < 5; ++i) rates.push_back(gflops(threads));
    whit::bench::report(fmt::format("fma_peak_{}_threads", threads), "GFLOPS", rates);
    if (threads == n) break;
  }
}
