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

// One is added to floats: out = buffers[0], in = buffers[1].
const char* const kAddOneC =
    "void k(void* const* buffers, const long* variables, void* scratch, long first, long last) {\n"
    "  float* out = buffers[0];\n"
    "  const float* in = buffers[1];\n"
    "  for (long i = first; i < last; ++i) out[i] = in[i] + 1.0f;\n"
    "}\n";
const char* const kAddOneLlvm =
    "define void @k(ptr %buffers, ptr %variables, ptr %scratch, i64 %first, i64 %last) {\n"
    "start:\n"
    "  %out = load ptr, ptr %buffers\n"
    "  %second = getelementptr ptr, ptr %buffers, i64 1\n"
    "  %in = load ptr, ptr %second\n"
    "  br label %head\n"
    "head:\n"
    "  %i = phi i64 [ %first, %start ], [ %next, %body ]\n"
    "  %more = icmp slt i64 %i, %last\n"
    "  br i1 %more, label %body, label %done\n"
    "body:\n"
    "  %from = getelementptr float, ptr %in, i64 %i\n"
    "  %x = load float, ptr %from\n"
    "  %y = fadd float %x, 1.0\n"
    "  %to = getelementptr float, ptr %out, i64 %i\n"
    "  store float %y, ptr %to\n"
    "  %next = add i64 %i, 1\n"
    "  br label %head\n"
    "done:\n"
    "  ret void\n"
    "}\n";

KernelObject add_one() {
  KernelObject object;
  object.library = make_c_compiler(host_cpu_arch())->compile("k", kAddOneC);
  object.name = "k";
  object.n_buffers = 2;
  object.extents = {2};
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

void compile_small_kernel(benchmark::State& state) {
  const auto compiler = make_llvm_compiler(host_cpu_arch());
  const std::string source = std::string(kAddOneLlvm);
  for (auto _ : state) benchmark::DoNotOptimize(compiler->compile("k", source));
}
BENCHMARK(compile_small_kernel)->Unit(benchmark::kMicrosecond);

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
