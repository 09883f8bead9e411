// Kernels of codegen, one thread, in GFLOPS and as a part of the measured multiply-add peak; matmuls beside OpenBLAS
// where it is installed. Times are of the thread's CPU clock, medians. `kernel_bench [filter]`; OPTS=1 prints schedules.
// `kernel_bench matmul M N K [at] [bt]` measures one matmul of any shape.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "ir/text.h"
#include "openblas.h"
#include "unit/kernel_zoo.h"
#include "unit/run_kernel.h"

using namespace whit;

namespace {

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double median_seconds(const std::function<void()>& f, double budget = 0.4) {
  f();
  std::vector<double> times;
  const double start = cpu_seconds();
  do {
    const double t = cpu_seconds();
    f();
    times.push_back(cpu_seconds() - t);
  } while (cpu_seconds() - start < budget || times.size() < 3);
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double peak_gflops() {
  const int64_t lanes = host_target().vector_bytes / 4, chains = 12, n = 100000;
  const UOp u = range(chains, 0, AxisType::Upcast), v = range(lanes, 1, AxisType::Lane), r = range(n, 2, AxisType::Reduce);
  const UOp k =
      zoo::sink({zoo::put(zoo::buffer(0, chains * lanes), u * lanes + v,
                          zoo::sum_over(zoo::at(zoo::buffer(1, lanes), v) * zoo::at(zoo::buffer(2, chains * lanes), u * lanes + v), {r}), {u, v})});
  testing::KernelMemory m(k);
  auto p = m.pointers();
  const testing::BuiltKernel b(lower_optimized(k, host_target()));
  return 2e-9 * static_cast<double>(chains * lanes * n) / median_seconds([&] { b.run(p.data()); });
}

double peak = 0;
const char* filter = "";

void row(const char* name, const UOp& kernel, double flops, double bytes, const std::function<void()>& peer = {}) {
  if (!std::strstr(name, filter)) return;
  const double t0 = cpu_seconds();
  const UOp program = lower_kernel(kernel, host_target());
  const double t1 = cpu_seconds();
  const testing::BuiltKernel b(program);
  const double t2 = cpu_seconds();
  testing::KernelMemory m(kernel);
  auto p = m.pointers();
  const double t = median_seconds([&] { b.run(p.data()); });
  std::printf("%-34s %9.3f ms", name, t * 1e3);
  if (flops > 0) std::printf(" %7.1f GFLOPS %4.0f %% of peak", flops / t * 1e-9, flops / t * 1e-7 / peak);
  if (bytes > 0) std::printf(" %6.1f GB/s", bytes / t * 1e-9);
  std::printf("  [codegen %.2f, compile %.1f ms, extent %ld]", (t1 - t0) * 1e3, (t2 - t1) * 1e3, static_cast<long>(b.info.extent));
  if (peer) {
    const double o = median_seconds(peer);
    std::printf("  OpenBLAS %.3f ms, ratio %.2f", o * 1e3, t / o);
  }
  std::printf("\n");
  if (std::getenv("OPTS")) std::printf("    %s\n", to_text(program.src(0).arg()).c_str());
  if (std::getenv("SRC")) std::printf("%s\n", b.source.c_str());
  if (std::getenv("LIN")) std::printf("%s\n", to_text(program.src(1)).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) filter = argv[1];
  peak = peak_gflops();
  std::printf("multiply-add peak: %.1f GFLOPS, one core\n", peak);
  const bench::Sgemm sgemm = bench::find_sgemm(1);
  std::vector<zoo::MatmulShape> matmuls{{256, 256, 256},
                                        {512, 512, 512},
                                        {1024, 1024, 1024},
                                        {2048, 2048, 2048},
                                        {1024, 1024, 1024, false, true},
                                        {1024, 1024, 1024, true, false},
                                        {1000, 1000, 1000},
                                        {333, 333, 333},
                                        {100, 100, 100},
                                        {17, 1000, 333},
                                        {1, 1000, 1000},
                                        {1, 1000, 1000, false, true},
                                        {512, 10, 576, false, true},
                                        {512, 576, 10},
                                        {10, 576, 512, true, false}};
  if (argc > 4) {
    auto has = [&](const char* word) { return std::any_of(argv + 5, argv + argc, [&](const char* a) { return !std::strcmp(a, word); }); };
    matmuls = {{std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]), has("at"), has("bt")}};
  }
  for (const zoo::MatmulShape& s : matmuls) {
    const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
    std::vector<float> a(static_cast<size_t>(s.m * s.k), 0.5f), b(static_cast<size_t>(s.k * s.n), 0.25f), c(static_cast<size_t>(s.m * s.n));
    std::function<void()> peer;
    if (sgemm)
      peer = [&] {
        sgemm(bench::kRowMajor, s.a_transposed ? bench::kTransposed : bench::kPlain, s.b_transposed ? bench::kTransposed : bench::kPlain, m, n, k, 1,
              a.data(), s.a_transposed ? m : k, b.data(), s.b_transposed ? k : n, 0, c.data(), n);
      };
    const std::string name = fmt::format("matmul {}x{}x{}{}{}", m, n, k, s.a_transposed ? " A^T" : "", s.b_transposed ? " B^T" : "");
    row(name.c_str(), zoo::matmul(s), 2.0 * m * n * k, 0, peer);
  }
  const std::pair<const char*, zoo::ConvShape> layers[] = {{"conv 1->32 5x5 @28", {512, 1, 32, 28, 28, 5, 5}},
                                                           {"conv 32->32 5x5 @24", {512, 32, 32, 24, 24, 5, 5}},
                                                           {"conv 32->64 3x3 @10", {512, 32, 64, 10, 10, 3, 3}},
                                                           {"conv 64->64 3x3 @8", {512, 64, 64, 8, 8, 3, 3}},
                                                           {"conv 64->64 3x3 p1 @56", {8, 64, 64, 56, 56, 3, 3, 1}}};
  const std::pair<const char*, zoo::ConvShape> inference[] = {{"image 64->64 3x3 @56", {1, 64, 64, 58, 58, 3, 3}},
                                                              {"image 128->128 3x3 @28", {1, 128, 128, 30, 30, 3, 3}},
                                                              {"image 256->256 3x3 @14", {1, 256, 256, 16, 16, 3, 3}},
                                                              {"image 512->512 3x3 @7", {1, 512, 512, 9, 9, 3, 3}}};
  for (const auto& [name, s] : inference) row(name, zoo::conv_forward(s), s.flops(), 0);
  for (const auto& [name, s] : layers) {
    row(fmt::format("{} forward", name).c_str(), zoo::conv_forward(s), s.flops(), 0);
    row(fmt::format("{} data gradient", name).c_str(), zoo::conv_data_gradient(s), s.flops(), 0);
    row(fmt::format("{} data gradient of halo", name).c_str(), zoo::conv_data_gradient_of_halo(s),
        2.0 * static_cast<double>(s.n_x() * s.co * s.kh * s.kw), 0);
    row(fmt::format("{} weight gradient", name).c_str(), zoo::conv_weight_gradient(s), s.flops(), 0);
  }
  row("elementwise 4096x2048", zoo::elementwise(4096, 2048), 0, 3.0 * 4096 * 2048 * 4);
  row("column sums 4096x2048", zoo::column_sums(4096, 2048), 0, 4096.0 * 2048 * 4);
  row("column sums 512x10", zoo::column_sums(512, 10), 0, 512.0 * 10 * 4);
  row("channel sums 512x32x400", zoo::channel_sums(512, 32, 400), 0, 512.0 * 32 * 400 * 4);
  row("max pool 512x32x20x20", zoo::max_pool(512 * 32, 20, 20), 0, 512.0 * 32 * 400 * 5);
  row("softmax 4096x4096", zoo::softmax(4096, 4096), 0, 2.0 * 4096 * 4096 * 4);
  row("softmax 512x10", zoo::softmax(512, 10), 0, 2.0 * 512 * 10 * 4);
  row("layer norm 8192x1024", zoo::layer_norm(8192, 1024), 0, 2.0 * 8192 * 1024 * 4);
  row("layer norm 1000x100", zoo::layer_norm(1000, 100), 0, 2.0 * 1000 * 100 * 4);
  return 0;
}
