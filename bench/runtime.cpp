// What the runtime adds to a kernel: launches, loads, compiles, the cache.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <string>

#include "base/flags.h"
#include "base/thread_pool.h"
#include "runtime/compiler.h"
#include "runtime/device.h"
#include "runtime/disk_cache.h"
#include "runtime/elf_loader.h"
#include "runtime/program.h"

namespace whit {
namespace {

KernelObject add_one() {
  KernelObject object;
  object.library = make_c_compiler(host_cpu_arch())->compile("k", must_find_kind("CPU").probe_kernel("C"));
  object.name = "k";
  object.n_buffers = 2;
  return object;
}

void launch_three_tiny_kernels(benchmark::State& state) {
  const CpuProgram program(add_one());
  const CpuKernel kernels[3] = {program.kernel(1), program.kernel(1), program.kernel(1)};
  float a[16] = {}, b[16] = {};
  void* buffers[] = {a, b};
  for (auto _ : state) {
    for (const CpuKernel& kernel : kernels) kernel.launch(buffers, nullptr);
  }
}
BENCHMARK(launch_three_tiny_kernels);

void launch_on_two_threads(benchmark::State& state) {
  const CpuProgram program(add_one());
  const FlagScope scope("NUM_CPU_THREADS", int64_t{2});
  const CpuKernel kernel = program.kernel(2);
  float a[16] = {}, b[16] = {};
  void* buffers[] = {a, b};
  for (auto _ : state) kernel.launch(buffers, nullptr);
}
BENCHMARK(launch_on_two_threads)->UseRealTime();

void load_object(benchmark::State& state) {
  const KernelObject object = add_one();
  for (auto _ : state) benchmark::DoNotOptimize(LoadedObject::load(object.library, "bench"));
}
BENCHMARK(load_object);

void compile_probe_kernel(benchmark::State& state) {
  const auto compiler = make_llvm_compiler(host_cpu_arch());
  const std::string source = must_find_kind("CPU").probe_kernel("LLVM");
  for (auto _ : state) benchmark::DoNotOptimize(compiler->compile("k", source));
}
BENCHMARK(compile_probe_kernel)->Unit(benchmark::kMicrosecond);

void find_in_cache(benchmark::State& state) {
  const std::string path = std::filesystem::temp_directory_path() / "whit-bench-cache.db";
  std::filesystem::remove(path);
  DiskCache cache(path);
  cache.put("kernel", "key", std::string(5000, 'v'));
  for (auto _ : state) benchmark::DoNotOptimize(cache.find("kernel", "key"));
}
BENCHMARK(find_in_cache);

void put_in_cache(benchmark::State& state) {
  const std::string path = std::filesystem::temp_directory_path() / "whit-bench-cache.db";
  std::filesystem::remove(path);
  DiskCache cache(path);
  int64_t i = 0;
  const std::string value(5000, 'v');
  for (auto _ : state) cache.put("kernel", std::to_string(i++), value);
}
BENCHMARK(put_in_cache)->Iterations(2000);

}  // namespace
}  // namespace whit

BENCHMARK_MAIN();
