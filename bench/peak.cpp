// The float32 multiply-add peak of this machine, on one thread and on all. Usage: peak
#include "peak.h"

using namespace whit;

int main() {
  const int n = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<int> counts{1};
  for (const int c : {2, n})
    if (c > counts.back() && c <= n) counts.push_back(c);
  for (const int threads : counts) {
    std::vector<double> rates;
    for (int i = 0; i < 5; ++i) rates.push_back(bench::peak_rate(threads) * 1e-9);
    bench::report(fmt::format("fma_peak_{}_threads", threads), "GFLOPS", rates);
  }
}
