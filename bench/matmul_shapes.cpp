// Matmuls of odd shapes and transposed operands, replayed, beside cblas_sgemm: the geometric mean of the ratios, and which are above
// 1.5 x (or the worst ten). Usage: matmul_shapes [--threads N] [SIZE...]; m, n and k are taken from the sizes; ALL=1 prints every shape.
// On one thread times are of its CPU clock; on several (each side has N) of the wall, with pauses in which idle threads go to sleep.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "base/flags.h"
#include "openblas.h"
#include "report.h"
#include "whit/whit.h"

using namespace whit;
using bench::kPlain, bench::kTransposed;

namespace {

int n_threads = 1;

double seconds_now() { return n_threads == 1 ? bench::cpu_s(CLOCK_THREAD_CPUTIME_ID) : bench::now_s(); }

// The best of some rounds of a few calls; the two take turns.
template <class F, class G> std::pair<double, double> best_seconds(F&& f, G&& g) {
  const double round_s = n_threads == 1 ? 60e-6 : 2e-3;
  auto round = [](auto& call, int n) {
    const double start = seconds_now();
    for (int i = 0; i < n; ++i) call();
    return (seconds_now() - start) / n;
  };
  auto calls = [&](auto& call) {
    round(call, 2);
    const double t = round(call, 3);
    return std::max(1, static_cast<int>(round_s / t));
  };
  // The first call after a pause wakes threads: it does not count.
  auto turn = [&](auto& call, int n) {
    if (n_threads == 1) return round(call, n);
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    call();
    return round(call, n);
  };
  const int n_f = calls(f), n_g = calls(g);
  double best_f = std::numeric_limits<double>::infinity(), best_g = best_f;
  for (int i = 0; i < 7; ++i) {
    best_f = std::min(best_f, turn(f, n_f));
    best_g = std::min(best_g, turn(g, n_g));
  }
  return {best_f, best_g};
}

struct Row {
  std::string name;
  double ours, theirs;
  int64_t n_kernels;
  double ratio() const { return ours / theirs; }
};

Row measure(bench::Sgemm sgemm, int m, int n, int k, bool ta, bool tb) {
  const Tensor a = (ta ? Tensor::rand({k, m}) : Tensor::rand({m, k})).realize();
  const Tensor b = (tb ? Tensor::rand({n, k}) : Tensor::rand({k, n})).realize();
  Tensor c = Tensor::zeros({m, n}).contiguous().realize();  // written in place, as cblas_sgemm writes its last operand
  TinyJit product([&](std::span<const Tensor>) {
    c.assign((ta ? a.transpose() : a).matmul(tb ? b.transpose() : b)).realize();
    return std::vector<Tensor>{};
  });
  for (int i = 0; i < 3; ++i) product();
  const std::vector<float> have = c.to_vector<float>();
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  std::vector<float> want(static_cast<size_t>(m) * static_cast<size_t>(n));
  auto peer = [&] {
    sgemm(bench::kRowMajor, ta ? kTransposed : kPlain, tb ? kTransposed : kPlain, m, n, k, 1, x.data(), ta ? m : k, y.data(), tb ? k : n, 0,
          want.data(), n);
  };
  const auto [ours, theirs] = best_seconds([&] { product(); }, peer);
  const std::string name = fmt::format("{}x{}x{}{}{}", m, n, k, ta ? " A^T" : "", tb ? " B^T" : "");
  for (size_t i = 0; i < want.size(); ++i)
    WHIT_USER(std::abs(want[i] - have[i]) <= 1e-4 * (1 + std::abs(want[i])), Runtime, "matmul {}: element {} is {}, that of cblas_sgemm {}", name, i,
              have[i], want[i]);
  return {name, ours, theirs, product.n_kernels()};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--threads") && i + 1 < argc) n_threads = std::atoi(argv[++i]);
    else sizes.push_back(std::atoi(argv[i]));
  }
  const bench::Sgemm sgemm = bench::find_sgemm(n_threads);
  if (!sgemm) {
    fmt::print(stderr, "libopenblas.so.0 is not there; Debian's package is libopenblas0-pthread\n");
    return 1;
  }
  const FlagScope threads({{"THREADS", int64_t{n_threads > 1}}, {"NUM_CPU_THREADS", int64_t{n_threads}}});
  if (sizes.empty()) sizes = {1, 3, 7, 17, 64, 100, 333, 1000};
  std::vector<Row> rows;
  for (const int m : sizes)
    for (const int n : sizes)
      for (const int k : sizes)
        for (const bool ta : {false, true})
          for (const bool tb : {false, true}) rows.push_back(measure(sgemm, m, n, k, ta, tb));
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ratio() > b.ratio(); });
  double logs = 0;
  int n_slow = 0;
  for (const Row& r : rows) {
    logs += std::log(r.ratio());
    n_slow += r.ratio() > 1.5;
  }
  if (std::getenv("ALL"))
    for (const Row& r : rows)
      fmt::print("{:<24} {:9.3f} us, OpenBLAS {:9.3f} us, ratio {:.2f}, {} kernels\n", r.name, r.ours * 1e6, r.theirs * 1e6, r.ratio(), r.n_kernels);
  bench::report("ratio to cblas_sgemm, geometric mean", "x", std::exp(logs / static_cast<double>(rows.size())));
  bench::report("shapes above 1.5 x", "shapes", n_slow);
  for (size_t i = 0; i < rows.size() && (i < 10 || rows[i].ratio() > 1.5); ++i)
    bench::report(fmt::format("worst {}: {}", i + 1, rows[i].name), "x", rows[i].ratio());
  return 0;
}
