// Linear regression: finds the weights of a known linear function by gradient descent with momentum.
#include "options.h"

using namespace whit;

int main(int argc, char** argv) {
  struct Model : nn::Linear {
    Model() : nn::Linear(4, 1) {}
  };
  return run_example<Model>(argc, argv, {.steps = 60}, "Linear regression.", [](Model& model, const Options& o) {
    // 256 points of 4 features in [-0.5, 0.5), and 3 x0 - 2 x1 + 0.5 x2 + x3 + 0.25.
    std::vector<float> points;
    for (int i = 0; i < 256; ++i)
      for (int k = 0; k < 4; ++k) points.push_back(static_cast<float>((i * 7919 + k * 104729) % 1000 / 1000.0 - 0.5));
    const Tensor x = Tensor::from(points, {256, 4});
    const Tensor y = (x.matmul(Tensor::from<float>({3, -2, 0.5, 1}).reshape({4, 1})) + 0.25).realize();

    nn::SGD opt(nn::get_parameters(model), {.lr = 0.3, .momentum = 0.9});
    for (int64_t step = 0; step < o.steps; ++step) {
      opt.zero_grad();
      const Tensor loss = (model(x) - y).square().mean();
      loss.backward();
      opt.step();
      print_loss(step, loss);
    }
    std::printf("weights");
    for (const float w : model.weight.to_vector<float>()) std::printf(" %.3f", w);
    std::printf(" bias %.3f\n", model.bias.item());
  });
}
