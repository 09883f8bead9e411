#include "ir/target.h"

#include <unistd.h>

#include "base/os.h"

namespace whit {
namespace {

int64_t cache_bytes(int name, int64_t fallback) {
  const long n = sysconf(name);
  return n > 0 ? n : fallback;
}

Target find_host() {
  Target t;
#if defined(__x86_64__)
  t.arch = "x86_64";
  __builtin_cpu_init();
  t.has_fma = __builtin_cpu_supports("fma");
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq")) {
    t.vector_bytes = 64;
    t.n_vector_registers = 32;
    t.dots_bfloat16 = __builtin_cpu_supports("avx512bf16");
    t.dots_bytes = __builtin_cpu_supports("avx512vnni");
  } else if (__builtin_cpu_supports("avx2")) {
    t.vector_bytes = 32;
  }
#elif defined(__aarch64__)
  t.arch = "aarch64";
  t.n_vector_registers = 32;
#endif
  t.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, t.l1_bytes);
  t.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, t.l2_bytes);
  t.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, t.l3_bytes);
  t.n_cores = os::cpu_count();
  return t;
}

}  // namespace

const Target& host_target() {
  static const Target t = find_host();
  return t;
}

}  // namespace whit
