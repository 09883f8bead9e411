// Bytes in use before and after 1,000 training steps whose tensors are gone. Usage: leak [STEPS] [BATCH]
#include <cstdlib>

#include "../examples/network.h"
#include "ir/uop.h"
#include "report.h"
#include "runtime/counters.h"

using namespace whit;

namespace {

void train(int64_t n_steps, int64_t batch) {
  const Tensor images = Tensor::rand({1024, 1, 28, 28}).realize();
  const Tensor labels = Tensor::randint({1024}, {.low = 0, .high = 10}).realize();
  Network network;
  nn::Adam optimizer(nn::get_parameters(network), {.lr = 1e-3});
  TinyJit step([&](std::span<const Tensor>) { return train_step(network, optimizer, images, labels, batch); });
  for (int64_t i = 0; i < n_steps; ++i) step()[0].item();
  // Some steps are not replayed.
  for (int64_t i = 0; i < n_steps / 10; ++i) train_step(network, optimizer, images, labels, batch);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t n_steps = argc > 1 ? std::atoll(argv[1]) : 1000, batch = argc > 2 ? std::atoll(argv[2]) : 8;
  for (int i = 0; i < 2; ++i) train(20, batch);  // what is made once: the random stream, caches, what the next training finds there
  const int64_t bytes = counters().mem_used.load(), nodes = live_nodes();
  train(n_steps, batch);
  bench::report("steps", "steps", static_cast<double>(n_steps + n_steps / 10));
  bench::report("bytes_before", "bytes", static_cast<double>(bytes));
  bench::report("bytes_after", "bytes", static_cast<double>(counters().mem_used.load()));
  bench::report("nodes_before", "nodes", static_cast<double>(nodes));
  bench::report("nodes_after", "nodes", static_cast<double>(live_nodes()));
}
