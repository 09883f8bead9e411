// Large graphs and long runs. Usage: graphs deep | wide | leak
//   deep: a chain 100,000 nodes deep: built, differentiated, scheduled on NULL; then compiled and run on the CPU
//   wide: 1,000,000 nodes, and half of it, to see that time is linear
//   leak: bytes in use before and after 1,000 training steps whose tensors are gone
#include <cstdlib>
#include <memory>

#include "engine/realize.h"
#include "ir/uop.h"
#include "report.h"
#include "runtime/counters.h"
#include "whit/tensor.h"

using namespace whit;
using namespace whit::bench;

namespace {

// x*a + b again and again: two nodes a round, each of which has a gradient.
Tensor chain(const Tensor& x, int64_t n_nodes) {
  Tensor y = x;
  for (int64_t i = 0; i < n_nodes / 2; ++i) y = i % 2 ? (y * 1.0009765625).relu() : y + x;
  return y;
}

// Many short chains over one input, joined at the end: n_nodes in all, of little depth.
Tensor bush(const Tensor& x, int64_t n_nodes) {
  constexpr int64_t kChain = 8;
  std::vector<Tensor> ends;
  for (int64_t i = 0; i < n_nodes / (2 * kChain); ++i) {
    Tensor y = x * Tensor(1.0 + static_cast<double>(i) * 1e-6);
    for (int64_t k = 0; k < kChain - 1; ++k) y = k % 2 ? y + x : (y * x);
    ends.push_back(y);
  }
  while (ends.size() > 1) {
    std::vector<Tensor> next;
    for (size_t i = 0; i + 1 < ends.size(); i += 2) next.push_back(ends[i] + ends[i + 1]);
    if (ends.size() % 2) next.push_back(ends.back());
    ends = std::move(next);
  }
  return ends[0];
}

// Reports wall and CPU seconds of what ran since its construction.
class Watch {
 public:
  void report_as(const std::string& what) const {
    const double wall = now_s() - start_, cpu = cpu_s() - cpu_;
    report(what, "s", wall);
    report(what + "_cpu_time", "s", cpu);
  }

 private:
  double start_ = now_s(), cpu_ = cpu_s();
};

template <class Make> void phases(const char* what, const char* device, int64_t n_nodes, Make&& make, bool run) {
  const Tensor x = Tensor::from<float>({0.5f, 0.25f, -0.125f, 1.0f}).to(std::string(device)).contiguous();
  const Watch build;
  Tensor y = make(x, n_nodes);
  build.report_as(fmt::format("{}_{}_build", what, n_nodes));
  const Watch gradient;
  std::vector<Tensor> g = y.sum().gradient({x});
  gradient.report_as(fmt::format("{}_{}_gradient", what, n_nodes));
  const UOp root = g[0].uop();
  report(fmt::format("{}_{}_nodes_of_gradient", what, n_nodes), "nodes", static_cast<double>(toposort(root).size()));
  {
    const Watch schedule;
    const std::shared_ptr<const Schedule> s = engine::schedule(std::span(&root, 1)).schedule;
    schedule.report_as(fmt::format("{}_{}_schedule", what, n_nodes));
    report(fmt::format("{}_{}_kernels", what, n_nodes), "kernels", static_cast<double>(s->stats.n_kernels));
  }
  if (!run) return;
  const Watch run_time;
  g[0].realize();
  run_time.report_as(fmt::format("{}_{}_realize_{}", what, n_nodes, device));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "deep";
  if (mode == "deep") {
    if (argc > 2) return phases("deep", "CPU", std::atoll(argv[2]), chain, true), 0;
    for (const int64_t n : {25'000, 50'000, 100'000}) phases("deep", "NULL", n, chain, false);
    phases("deep", "CPU", 100'000, chain, true);
  } else if (mode == "wide") {
    for (const int64_t n : {250'000, 500'000, 1'000'000}) phases("wide", "NULL", n, bush, false);
  } else {
    fmt::print(stderr, "usage: graphs deep | wide\n");
    return 2;
  }
}
