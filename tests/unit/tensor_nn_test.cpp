#include <cstdlib>
#include <filesystem>

#include "base/flags.h"
#include "error_of.h"
#include "tensor_checks.h"

namespace whit {
namespace {

// The convolution as its definition has it.
std::vector<double> conv_by_hand(const Tensor& x, const Tensor& w, int64_t stride, int64_t padding, int64_t groups) {
  const auto xs = x.to_vector<double>(), ws = w.to_vector<double>();
  const int64_t b = x.size(0), c = x.size(1), h = x.size(2), v = x.size(3);
  const int64_t o = w.size(0), ci = w.size(1), kh = w.size(2), kw = w.size(3);
  const int64_t oh = (h + 2 * padding - kh) / stride + 1, ow = (v + 2 * padding - kw) / stride + 1;
  std::vector<double> out;
  for (int64_t n = 0; n < b; ++n)
    for (int64_t k = 0; k < o; ++k)
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j) {
          double sum = 0;
          for (int64_t q = 0; q < ci; ++q)
            for (int64_t r = 0; r < kh; ++r)
              for (int64_t s = 0; s < kw; ++s) {
                const int64_t y = i * stride + r - padding, z = j * stride + s - padding;
                if (y < 0 || y >= h || z < 0 || z >= v) continue;
                const int64_t channel = k / (o / groups) * ci + q;
                sum += xs[static_cast<size_t>(((n * c + channel) * h + y) * v + z)] * ws[static_cast<size_t>(((k * ci + q) * kh + r) * kw + s)];
              }
          out.push_back(sum);
        }
  return out;
}

TEST(TensorNn, ConvolutionIsItsDefinition) {
  Tensor::manual_seed(1);
  const Tensor x = Tensor::randn({2, 4, 6, 5}).realize(), w = Tensor::randn({6, 2, 3, 2}).realize();
  const Tensor full = Tensor::randn({3, 4, 3, 3}).realize();
  const Tensor y = x.conv2d(w, {.groups = 2, .stride = 2, .padding = 1});
  expect_tensor(y, y.shape(), conv_by_hand(x, w, 2, 1, 2), 1e-5);
  const Tensor z = x.conv2d(full);
  expect_tensor(z, z.shape(), conv_by_hand(x, full, 1, 0, 1), 1e-5);
}

TEST(TensorNn, TransposedConvolutionIsTheGradient) {
  Tensor::manual_seed(2);
  const Tensor x = Tensor::randn({1, 2, 7, 7}).realize(), w = Tensor::randn({3, 2, 3, 3}).realize();
  const Tensor y = x.conv2d(w, {.stride = 2, .padding = 1});
  const Tensor g = Tensor::randn(y.shape()).realize();
  const Tensor grad = y.gradient({x}, g)[0];
  const Tensor t = g.conv_transpose2d(w, {}, {.stride = 2, .padding = 1});
  expect_tensor(t, grad.shape(), grad.to_vector<double>(), 1e-5);
  for (const int64_t k : {1, 2, 3, 4})
    for (const int64_t stride : {1, 2, 3})
      for (const int64_t dilation : {1, 2})
        for (const int64_t padding : {0, 1}) {
          const Tensor image = Tensor::randn({2, 4, 9, 11}).realize(), v = Tensor::randn({6, 2, k, k}).realize();
          const Tensor to = image.conv2d(v, {.groups = 2, .stride = stride, .dilation = dilation, .padding = padding});
          const Tensor slope = Tensor::randn(to.shape()).realize(), want = to.gradient({image}, slope)[0];
          const int64_t reach = dilation * (k - 1) + 1 - 2 * padding;
          const IntList more{(9 - reach) % stride, (11 - reach) % stride};
          const Tensor got =
              slope.conv_transpose2d(v, {}, {.groups = 2, .stride = stride, .dilation = dilation, .padding = padding, .output_padding = more});
          expect_tensor(got, want.shape(), want.to_vector<double>(), 1e-5);
        }
}

TEST(TensorNn, Pooling) {
  const Tensor x = Tensor::arange(0, 16, 1, DType::Float32).reshape({1, 1, 4, 4}).clone();
  expect_tensor(x.max_pool2d(), {1, 1, 2, 2}, {5, 7, 13, 15});
  expect_tensor(x.max_pool2d_indices().second, {1, 1, 2, 2}, {5, 7, 13, 15});
  expect_tensor(x.avg_pool2d(), {1, 1, 2, 2}, {2.5, 4.5, 10.5, 12.5});
  expect_tensor(x.avg_pool2d({.kernel_size = {3, 3}, .stride = 2, .padding = 1, .count_include_pad = false}), {1, 1, 2, 2}, {2.5, 4, 8.5, 10});
  expect_tensor((x - 20).max_pool2d({.kernel_size = {3, 3}, .stride = 3, .padding = 1}), {1, 1, 2, 2}, {-15, -13, -7, -5});
  EXPECT_EQ(x.max_pool2d({.kernel_size = {3, 3}, .stride = 2, .ceil_mode = true}).shape().str(), "(1, 1, 2, 2)");
  const std::vector<int64_t> low{INT64_MIN + 1, INT64_MIN, INT64_MAX, 0};  // padding is below all of them
  EXPECT_EQ(Tensor::from(low, {1, 1, 2, 2}).max_pool2d({.padding = 1}).to_vector<int64_t>(), low);
  const auto no_stride = [&] { x.max_pool2d({.stride = 0, .ceil_mode = true}); };
  EXPECT_EQ(error_of(no_stride), "[max_pool2d] kernel 2 stride 0 dilation 1; expected positive numbers");
}

TEST(TensorNn, Losses) {
  const Tensor logits = f32({1, 2, 3, 1, 1, 1}, {2, 3}), y = i32({2, 0}, 2);
  const double a = std::log(std::exp(-2.0) + std::exp(-1.0) + 1), b = std::log(3.0);
  expect_tensor(logits.sparse_categorical_crossentropy(y), {}, {(a + b) / 2}, 1e-6);
  expect_tensor(logits.cross_entropy(y, "none"), 2, {a, b}, 1e-6);
  expect_tensor(logits.sparse_categorical_crossentropy(y, 0), {}, {a}, 1e-6);
  expect_tensor(logits.log_softmax().nll_loss(y, f32({2, 1, 1}, 3)), {}, {(a + 2 * b) / 3}, 1e-6);
  expect_tensor(f32({0.25f}, 1).binary_crossentropy(f32({1}, 1)), {}, {-std::log(0.25)}, 1e-6);
  expect_tensor(f32({0}, 1).binary_crossentropy_logits(f32({1}, 1)), {}, {std::log(2.0)}, 1e-6);
}

TEST(TensorNn, Layers) {
  nn::Linear l(2, 2);
  l.weight.assign(f32({1, 2, 3, 4}, {2, 2}));
  l.bias.assign(f32({10, 20}, 2));
  expect_tensor(l(f32({1, 1}, {1, 2})), {1, 2}, {13, 27});
  const nn::LayerNorm norm(4);
  const Tensor n = norm(f32({1, 2, 3, 4}, {1, 4}));
  expect_tensor(n.mean(), {}, {0}, 1e-6);
  const nn::Embedding e(4, 2);
  expect_tensor(e(i32({3, 1}, 2))[0], 2, e.weight[3].to_vector<double>());
  const nn::Conv2d same(1, 1, 3, {.same_padding = true});
  EXPECT_EQ(same(Tensor::ones({1, 1, 5, 5})).shape().str(), "(1, 1, 5, 5)");
  const nn::LSTMCell cell(3, 2);
  EXPECT_EQ(cell(Tensor::ones({4, 3})).first.shape().str(), "(4, 2)");
}

TEST(TensorNn, BatchNormTracks) {
  nn::BatchNorm bn(1, {.momentum = 0.5});
  const Tensor x = f32({0, 2, 4, 6}, {4, 1});
  {
    const FlagScope training("TRAINING", int64_t{1});
    expect_tensor(bn(x), {4, 1}, {-1.3416, -0.4472, 0.4472, 1.3416}, 1e-3);
  }
  expect_tensor(bn.running_mean, 1, {1.5}, 1e-6);
  expect_tensor(bn.running_var, 1, {0.5 + 0.5 * 20 / 3}, 1e-6);
  expect_tensor(bn.num_batches_tracked, {}, {1});
  EXPECT_FALSE(bn.running_mean.is_param());
  expect_tensor(bn(f32({1.5}, {1, 1})), {1, 1}, {0}, 1e-6);
}

struct Net {
  nn::Linear l1{2, 3};
  std::vector<nn::Linear> more{nn::Linear(3, 1), nn::Linear(3, 1, false)};
  void visit(nn::Walk& w) { w("l1", l1), w("more", more); }
};

TEST(State, NamesSaveAndLoad) {
  Net a, b;
  const nn::StateDict sd = nn::get_state_dict(a);
  std::vector<std::string> names;
  for (const auto& [name, t] : sd) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("l1.weight", "l1.bias", "more.0.weight", "more.0.bias", "more.1.weight"));
  EXPECT_EQ(nn::get_state_dict(a, "p.")[0].first, "p.l1.weight");
  const std::string path = testing::TempDir() + "whit_state_test.safetensors";
  nn::safe_save(sd, path, {{"k", "v"}});
  nn::load_state_dict(b, nn::safe_load(path));
  expect_tensor(b.l1.weight, {3, 2}, a.l1.weight.to_vector<double>());
  std::filesystem::remove(path);
  EXPECT_EQ(error_of(ErrorKind::Key, [&] { nn::load_state_dict(b, {}); }), "[load_state_dict] there is no tensor 'l1.weight'");
}

// A run with everything that has state: batch statistics, dropout, moments, a plan.
struct SmallModel {
  nn::Linear l1{3, 8}, l2{8, 1};
  nn::BatchNorm norm{8};
  void visit(nn::Walk& w) { w("l1", l1), w("l2", l2), w("norm", norm); }
};
struct TrainingRun {
  SmallModel model;
  nn::AdamW opt{nn::get_parameters(model), {.lr = 0.05}};
  nn::CosineAnnealingLR plan{opt, 12};
  void visit(nn::Walk& w) { w("model", model), w("opt", opt), w("plan", plan); }
};

// Bytes of all tensors after as many more steps.
std::vector<std::vector<std::byte>> train(TrainingRun& run, int steps, bool captured) {
  const FlagScope training("TRAINING", int64_t{1});
  TinyJit step([&](std::span<const Tensor>) {
    run.opt.zero_grad();
    const Tensor x = Tensor::randn({16, 3});
    SmallModel& m = run.model;
    const Tensor loss = (m.l2(m.norm(m.l1(x)).relu().dropout(0.2)) - x.sum(1, true)).square().mean();
    loss.backward();
    std::vector<Tensor> all = run.opt.schedule_step();
    for (const Tensor& t : run.plan.schedule_step()) all.push_back(t);
    Tensor::realize_all(all);
    return std::vector<Tensor>{};
  });
  const FlagScope jit("JIT", int64_t{captured});
  for (int i = 0; i < steps; ++i) step();
  std::vector<std::vector<std::byte>> out;
  for (const auto& [name, t] : nn::get_state_dict(run)) out.push_back(t.bytes());
  return out;
}

TEST(Checkpoint, TenStepsAreFiveAndFiveMore) {
  const std::string path = testing::TempDir() + "whit_checkpoint_test.safetensors";
  for (const bool captured : {false, true}) {
    Tensor::manual_seed(3);
    TrainingRun whole;
    const auto expected = train(whole, 10, captured);
    Tensor::manual_seed(3);
    TrainingRun first;
    train(first, 5, captured);
    nn::save_checkpoint(first, path, {{"step", "5"}});
    Tensor::manual_seed(99);
    Tensor::rand(7).realize();
    TrainingRun second;
    EXPECT_EQ(nn::load_checkpoint(second, path), (nn::Metadata{{"step", "5"}}));
    EXPECT_EQ(train(second, 5, captured), expected);
  }
  SmallModel other;
  EXPECT_EQ(error_of(ErrorKind::Key, [&] { nn::load_checkpoint(other, path); }), "[load_checkpoint] " + path + ": it has 25 tensors, the run 9");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace whit
