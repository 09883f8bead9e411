#include <cstdio>

#include "whit/whit.h"
using namespace whit;

int main() {
  Tensor x = Tensor::rand({64, 2}).realize(), y = x.matmul(Tensor::from<float>({3, -2}));
  Tensor w = Tensor::zeros({2}).realize();
  TinyJit step([&](std::span<const Tensor>) {
    Tensor loss = (x.matmul(w) - y).square().mean();
    return std::vector{w.assign(w - 0.5 * loss.gradient({w})[0]).realize()};
  });
  for (int i = 0; i < 200; ++i) step();
  for (float v : w.to_vector<float>()) std::printf("%.2f\n", v);
}
