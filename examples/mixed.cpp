// Mixed precision: float16 weights and activations, float32 masters and sums, and a loss scale that follows the overflows.
#include <cstdio>
#include <cstdlib>

#include "whit/whit.h"

using namespace whit;

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 120;
  const DType low = argc > 2 ? dtype_by_name(argv[2]) : DType::Float16;
  const FlagScope training("TRAINING", int64_t{1});
  Tensor::manual_seed(1);
  const Tensor x = Tensor::rand({256, 8}).realize(), y = ((x * 6).sin().sum({1}, true) * 0.25).realize();
  nn::Linear l0(8, 64), l1(64, 1);
  const std::vector<Tensor> masters{l0.weight, l0.bias, l1.weight, l1.bias};  // an update of 1e-4 is lost in float16
  nn::Adam opt(masters, {.lr = 3e-3});
  double scale = 65536;  // small gradients are no zeros in float16
  for (int step = 0, good = 0; step < steps; ++step) {
    std::vector<Tensor> w;
    for (const Tensor& p : masters) w.push_back(p.cast(low));
    const Tensor hidden = x.cast(low).linear(w[0].transpose(), w[1]).relu();
    const Tensor loss = (hidden.linear(w[2].transpose(), w[3]).cast(DType::Float32) - y).square().mean();
    std::vector<Tensor> grads = (loss * scale).gradient(masters);
    Tensor finite = Tensor(1.0);
    for (Tensor& g : grads) {
      g = g / scale;
      finite = finite * g.isfinite().all().cast(DType::Float32);
    }
    if (finite.item() != 0) {
      for (size_t i = 0; i < grads.size(); ++i) Tensor(masters[i]).set_grad(grads[i]);
      opt.step();
      if (++good % 50 == 0) scale *= 2;
    } else {
      scale /= 2;
      good = 0;
    }
    std::printf("%d %.6e\n", step, loss.item());
  }
}
