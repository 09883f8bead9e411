// From the start of the process to the end of the first training step; images are made, not decoded. Then a few steps as
// they are replayed. CACHEDB names the cache file.
#include "../examples/network.h"
#include "report.h"

using namespace whit;

int main() {
  const double start = bench::now_s();
  const std::vector<uint8_t> pixels(size_t{60000} * 784, 128), marks(60000, 3);
  const Tensor images = Tensor::from_bytes(pixels.data(), DType::UInt8, {60000, 1, 28, 28});
  const Tensor labels = Tensor::from_bytes(marks.data(), DType::UInt8, 60000);
  Network network;
  nn::Adam optimizer(nn::get_parameters(network), {.lr = 1e-3});
  TinyJit step([&](std::span<const Tensor>) { return train_step(network, optimizer, images, labels, 512); });
  step()[0].item();
  bench::report("first_step", "s", bench::now_s() - start);
  step()[0].item();
  bench::report("step_when_replayed", "s", bench::times_of(4, [&] { step()[0].item(); }));
}
