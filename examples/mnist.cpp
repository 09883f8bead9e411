// Trains a small convolutional network on Fashion-MNIST and says how well it does on images it has not seen.
//   mnist [--steps N] [--batch N] [--lr X] [--seed N] [--digits] [--data FOLDER] [--png FILE]
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "base/flags.h"
#include "io/datasets.h"
#include "io/png.h"
#include "whit/whit.h"

using namespace whit;

namespace {

struct Arguments {
  int64_t steps = 1000, batch = 512;
  double lr = 1e-3;
  uint64_t seed = 42;
  bool fashion = true;
  std::string data, png = "mnist.png";
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string flag_name = argv[i];
    auto value = [&] {
      WHIT_USER(i + 1 < argc, Value, "{} needs a value", flag_name);
      return argv[++i];
    };
    if (flag_name == "--steps") {
      a.steps = std::atoll(value());
    } else if (flag_name == "--batch") {
      a.batch = std::atoll(value());
    } else if (flag_name == "--lr") {
      a.lr = std::atof(value());
    } else if (flag_name == "--seed") {
      a.seed = static_cast<uint64_t>(std::atoll(value()));
    } else if (flag_name == "--digits") {
      a.fashion = false;
    } else if (flag_name == "--data") {
      a.data = value();
    } else if (flag_name == "--png") {
      a.png = value();
    } else {
      raise(ErrorKind::Value,
            fmt::format("unknown argument {}; expected --steps, --batch, --lr, --seed, --digits, --data or --png",
                        flag_name));
    }
  }
  return a;
}

struct Net {
  nn::Conv2d c1{1, 32, 5}, c2{32, 32, 5};
  nn::BatchNorm b1{32};
  nn::Conv2d c3{32, 64, 3}, c4{64, 64, 3};
  nn::BatchNorm b2{64};
  nn::Linear out{576, 10};

  Tensor operator()(const Tensor& images) {
    Tensor x = images.cast(DType::Float32) * (1.0 / 127.5) - 1.0;
    x = b1(c2(c1(x).relu()).relu()).max_pool2d();
    x = b2(c4(c3(x).relu()).relu()).max_pool2d();
    return out(x.flatten(1));
  }
  void visit(nn::Walk& w) {
    w("c1", c1), w("c2", c2), w("b1", b1), w("c3", c3), w("c4", c4), w("b2", b2), w("out", out);
  }
};

double seconds_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

void progress(int64_t step, int64_t steps, double loss, double accuracy, double images_a_second) {
  constexpr int kWidth = 30;
  const int full = static_cast<int>(kWidth * step / steps);
  fmt::print("\r{:>5}/{} [{}{}] loss {:.4f}  accuracy {:5.1f} %  {:>6.0f} images/s ", step, steps,
             std::string(static_cast<size_t>(full), '='), std::string(static_cast<size_t>(kWidth - full), ' '), loss,
             accuracy * 100, images_a_second);
  std::fflush(stdout);
}

void save_picture(const Arguments& a, const Tensor& images, const std::vector<int32_t>& predicted,
                  const std::vector<uint8_t>& labels) {
  constexpr int64_t kShown = 40;
  const std::vector<std::byte> pixels = images[Slice{0, kShown}].bytes();
  const int64_t rows = images.size(2), cols = images.size(3);
  std::vector<io::GridImage> grid;
  for (size_t i = 0; i < kShown; ++i) {
    const bool right = predicted[i] == labels[i];
    grid.push_back({.pixels = reinterpret_cast<const uint8_t*>(pixels.data()) + static_cast<int64_t>(i) * rows * cols,
                    .label = std::string(io::mnist_class_name(a.fashion, predicted[i])),
                    .label_color = right ? io::Rgb{120, 220, 120} : io::Rgb{255, 90, 90}});
  }
  io::write_png(a.png, io::make_grid(grid, rows, cols, 10));
}

int run(const Arguments& a) {
  const auto start = std::chrono::steady_clock::now();
  Tensor::manual_seed(a.seed);
  const auto data = nn::datasets::mnist({.fashion = a.fashion, .folder = a.data});
  const int64_t n_train = data.x_train.size(0), n_test = data.x_test.size(0);
  fmt::print("{} training images, {} test images, read in {:.2f} s\n", n_train, n_test, seconds_since(start));

  Net net;
  nn::Adam adam(nn::get_parameters(net), {.lr = a.lr});
  Tensor step_number = Tensor::zeros(1).is_param_(false);

  // One step: a random batch drawn on the device, forward, backward, update. The rate falls as half a cosine.
  auto build_step = [&]() -> std::vector<Tensor> {
    adam.zero_grad();
    const Tensor chosen = Tensor::randint(a.batch, {.high = n_train});
    const Tensor y = data.y_train[chosen];
    const Tensor logits = net(data.x_train[chosen].contiguous());
    const Tensor loss = logits.sparse_categorical_crossentropy(y).backward();
    const Tensor accuracy = logits.argmax(1).eq(y).mean();
    const Tensor angle = step_number * (std::numbers::pi / static_cast<double>(a.steps));
    adam.lr.assign((angle.cos() + 1.0) * (a.lr / 2));
    step_number += 1;
    std::vector<Tensor> all = adam.schedule_step();
    adam.zero_grad();
    all.insert(all.begin(), {loss, accuracy, adam.lr, step_number});
    return all;
  };
  TinyJit step([&](std::span<const Tensor>) {
    const std::vector<Tensor> all = build_step();
    Tensor::realize_all(all);
    return std::vector<Tensor>{all[0], all[1]};
  });

  const auto training = std::chrono::steady_clock::now();
  auto last = training;
  {
    const FlagScope flag_training("TRAINING", int64_t{1});
    for (int64_t i = 1; i <= a.steps; ++i) {
      const std::vector<Tensor> result = step();
      if (i == 1) fmt::print("first step done {:.2f} s after the start\n", seconds_since(start));
      if (i % 10 != 0 && i != a.steps) continue;
      const double loss = result[0].item(), accuracy = result[1].item();
      const double t = seconds_since(last);
      last = std::chrono::steady_clock::now();
      progress(i, a.steps, loss, accuracy, 10.0 * static_cast<double>(a.batch) / t);
    }
  }
  const double train_s = seconds_since(training);
  fmt::print("\ntrained for {:.1f} s, {:.1f} ms a step, {} kernels\n", train_s,
             1000 * train_s / static_cast<double>(std::max<int64_t>(a.steps, 1)), step.n_kernels());

  TinyJit predict([&](std::span<const Tensor> in) { return std::vector<Tensor>{net(in[0]).argmax(1)}; });
  const int64_t part = 500;
  std::vector<int32_t> predicted;
  for (int64_t i = 0; i + part <= n_test; i += part) {
    const std::vector<int32_t> p = predict({data.x_test[Slice{i, i + part}].clone()})[0].to_vector<int32_t>();
    predicted.insert(predicted.end(), p.begin(), p.end());
  }
  const std::vector<uint8_t> labels = data.y_test.to_vector<uint8_t>();
  int64_t right = 0;
  for (size_t i = 0; i < predicted.size(); ++i) right += predicted[i] == labels[i];
  fmt::print("test accuracy {:.2f} %\n", 100.0 * static_cast<double>(right) / static_cast<double>(predicted.size()));
  save_picture(a, data.x_test, predicted, labels);
  fmt::print("{}: test images with predicted labels\n", a.png);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const Error& e) {
    fmt::print(stderr, "\nmnist: {}\n", e.what());
    return 1;
  }
}
