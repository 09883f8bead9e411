// Data parallel training: each device has the whole model and a part of every batch. Under `mpirun -np 2` the devices are
// processes, else they are in this one.
#include <cstdio>
#include <cstdlib>

#include "base/flags.h"
#include "whit/whit.h"
using namespace whit;

int main() {
  const char* const text = std::getenv("STEPS");
  const int n_steps = text ? std::atoi(text) : 30;
  const std::string kind = Tensor::zeros({1}).device().value();
  std::vector<std::string> devices{kind, kind + ":1"};
  if (distributed::size() > 1) devices = distributed::devices();
  Tensor::manual_seed(1);
  nn::Linear l1(16, 32), l2(32, 1);
  std::vector<Tensor> params{l1.weight, l1.bias, l2.weight, l2.bias};
  for (Tensor& p : params) p.shard_(devices);  // the model is on every device
  nn::Adam opt(params, {.lr = 0.01});
  const FlagScope training("TRAINING", int64_t{1});
  TinyJit step([&](std::span<const Tensor> in) {
    opt.zero_grad();
    Tensor loss = (l2(l1(in[0]).relu()).squeeze(1) - in[1]).square().mean();
    loss.backward();  // gradients are summed over the devices
    std::vector<Tensor> all = opt.schedule_step();
    all.push_back(loss);
    Tensor::realize_all(all);
    return std::vector{loss};
  });
  double loss = 0;
  for (int i = 0; i < n_steps; ++i) {
    const Tensor x = Tensor::randn({64, 16}).realize();
    std::vector<Tensor> in{x.shard(devices, 0), x.sum({1}).relu().shard(devices, 0)};  // rows are dealt out
    loss = step(in)[0].item();
    if (i % 10 == 0 && distributed::rank() == 0) std::printf("step %3d  loss %.4f\n", i, loss);
  }
  if (distributed::rank() == 0) std::printf("loss %.4f on %zu devices\n", loss, devices.size());
}
