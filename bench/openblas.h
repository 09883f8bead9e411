// OpenBLAS' cblas_sgemm, where the library is installed.
#pragma once
#include <dlfcn.h>

#include <cstdlib>

namespace whit::bench {

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;

/// Null when libopenblas.so.0 is not there. The library chooses its kernels for this machine, whatever the shell says.
inline Sgemm find_sgemm(int n_threads) {
  for (const char* name : {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS"}) unsetenv(name);
  void* lib = dlopen("libopenblas.so.0", RTLD_NOW);
  void* set_threads = lib ? dlsym(lib, "openblas_set_num_threads") : nullptr;
  if (!set_threads) return nullptr;
  reinterpret_cast<void (*)(int)>(set_threads)(n_threads);
  return reinterpret_cast<Sgemm>(dlsym(lib, "cblas_sgemm"));
}

}  // namespace whit::bench
