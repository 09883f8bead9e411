// The convolutional network of the README and its training step; shared by the demo and the benchmarks.
#pragma once
#include <utility>
#include <vector>

#include "base/flags.h"
#include "whit/whit.h"

namespace whit {

/// conv 5x5, conv 5x5, batch norm, pool; conv 3x3, conv 3x3, batch norm, pool; linear. For images of 28 x 28.
struct Network {
  nn::Conv2d c1{1, 32, 5}, c2{32, 32, 5}, c3{32, 64, 3}, c4{64, 64, 3};
  nn::BatchNorm n1{32}, n2{64};
  nn::Linear head{576, 10};

  /// shapes: x [batch, 1, 28, 28] -> [batch, 10]
  Tensor operator()(const Tensor& x) {
    const Tensor y = n1(c2(c1(x).relu()).relu()).max_pool2d();
    const Tensor z = n2(c4(c3(y).relu()).relu()).max_pool2d();
    return head(z.flatten(1));
  }
  void visit(nn::Walk& w) { w("c1", c1), w("c2", c2), w("n1", n1), w("c3", c3), w("c4", c4), w("n2", n2), w("head", head); }
};

/// Bytes of images as the network wants them.
inline Tensor normalised(const Tensor& images) { return (images.to_float() / 255.0 - 0.286) / 0.353; }

/// One step of training on a random batch, drawn on the device: {loss, share of right answers}.
inline std::vector<Tensor> train_step(Network& network, nn::Optimizer& optimizer, const Tensor& images, const Tensor& labels, int64_t batch) {
  const FlagScope training("TRAINING", int64_t{1});
  optimizer.zero_grad();
  const Tensor samples = Tensor::randint({batch}, {.low = 0, .high = images.size(0)});
  const Tensor y = labels[samples], logits = network(normalised(images[samples]));
  const Tensor loss = logits.sparse_categorical_crossentropy(y);
  loss.backward();
  std::vector<Tensor> out{loss, (logits.argmax(1) == y).mean()}, all = out;
  for (const Tensor& t : optimizer.schedule_step()) all.push_back(t);
  Tensor::realize_all(all);
  return out;
}

}  // namespace whit
