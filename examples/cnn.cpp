// A small convolutional network on Fashion-MNIST, trained with Adam in a plain loop: nothing is captured.
#include "options.h"

using namespace whit;

namespace {

struct Model {
  nn::Conv2d c1{1, 8, 3}, c2{8, 16, 3};
  nn::Linear head{16 * 5 * 5, 10};

  /// shapes: x [batch, 1, 28, 28] -> [batch, 10]
  Tensor operator()(const Tensor& x) const {
    const Tensor y = c1(x).relu().max_pool2d();
    return head(c2(y).relu().max_pool2d().flatten(1));
  }
  void visit(nn::Walk& w) { w("c1", c1), w("c2", c2), w("head", head); }
};

void train(Model& model, const Options& o) {
  constexpr int64_t kBatch = 64;
  const auto data = nn::datasets::mnist({.fashion = true});
  nn::Adam opt(nn::get_parameters(model), {.lr = 1e-3});
  for (int64_t step = 0; step < o.steps; ++step) {
    const int64_t at = step * kBatch % data.x_train.size(0);
    const Tensor x = data.x_train[Slice{at, at + kBatch}].to_float() / 255, y = data.y_train[Slice{at, at + kBatch}];
    opt.zero_grad();
    const Tensor loss = model(x).sparse_categorical_crossentropy(y);
    loss.backward();
    opt.step();
    print_loss(step, loss);
  }
}

}  // namespace

int main(int argc, char** argv) { return run_example<Model>(argc, argv, {.steps = 100}, "A convolutional network in a plain loop.", train); }
