// Trains a convolutional network on Fashion-MNIST and shows what it says about test images.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "io/datasets.h"
#include "io/png.h"
#include "network.h"

using namespace whit;

namespace {

struct Settings {
  int64_t steps = 600, batch = 512, seed = 0;
  double time_limit_s = 350, lr = 3e-3;
  bool digits = false;
  std::string out = "out/mnist.png";
};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The learning rate of a step: up in the first tenth, then down along a cosine.
double rate_at(int64_t step, int64_t n_steps, double top) {
  const double x = (static_cast<double>(step) + 0.5) / static_cast<double>(n_steps);
  return x < 0.1 ? top * (0.1 + 0.9 * x / 0.1) : top * (0.505 + 0.495 * std::cos(3.14159265358979 * (x - 0.1) / 0.9));
}

// One line that is drawn over itself in a terminal, and a line every tenth of the way elsewhere.
class Progress {
 public:
  explicit Progress(int64_t batch) : batch_(batch), start_(now_s()), terminal_(isatty(STDERR_FILENO)) {}
  void show(int64_t done, int64_t total, double loss, double accuracy) {
    const double elapsed = now_s() - start_;
    const double rate = static_cast<double>(done * batch_) / elapsed;
    const int64_t n = 30 * done / total;
    const std::string line =
        fmt::format("[{}{}] {}/{}  loss {:.3f}  accuracy {:5.1f} %  {:.0f} images/s  {:.0f} s", std::string(static_cast<size_t>(n), '#'),
                    std::string(static_cast<size_t>(30 - n), '.'), done, total, loss, accuracy * 100, rate, elapsed);
    if (terminal_) {
      fmt::print(stderr, "\r{}\033[K{}", line, done == total ? "\n" : "");
    } else if (done * 10 / total != shown_ || done == total) {
      shown_ = done * 10 / total;
      fmt::print(stderr, "{}\n", line);
    }
  }

 private:
  int64_t batch_, shown_ = -1;
  double start_;
  bool terminal_;
};

std::vector<int32_t> predictions(Network& network, const Tensor& images) {
  constexpr int64_t kBatch = 500;
  TinyJit predict([&](std::span<const Tensor> in) { return std::vector<Tensor>{network(normalised(in[0])).argmax(1).cast(DType::Int32).realize()}; });
  std::vector<int32_t> out;
  const int64_t n = images.size(0);
  for (int64_t i = 0; i < n; i += kBatch) {
    const int64_t m = std::min(kBatch, n - i);
    const Tensor part = images[Slice{i, i + m}].clone().realize();
    const std::vector<int32_t> labels =
        m == kBatch ? predict({part})[0].to_vector<int32_t>() : network(normalised(part)).argmax(1).to_vector<int32_t>();
    out.insert(out.end(), labels.begin(), labels.end());
  }
  return out;
}

// Test images with what the network takes them for: the first ones, wrong answers in red.
void write_picture(const std::string& path, const io::ImageSet& test, std::span<const int32_t> predicted, bool fashion) {
  std::vector<io::GridImage> images;
  for (size_t i = 0; i < 40; ++i) {
    const bool right = predicted[i] == test.labels[i];
    io::GridImage image;
    image.pixels = test.images.data() + static_cast<int64_t>(i) * test.n_rows * test.n_cols;
    image.label = std::string(io::mnist_class_name(fashion, predicted[i]));
    image.label_color = right ? io::Rgb{200, 230, 200} : io::Rgb{255, 90, 80};
    images.push_back(std::move(image));
  }
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) std::filesystem::create_directories(folder);
  io::write_png(path, io::make_grid(images, test.n_rows, test.n_cols, 8));
}

int run(const Settings& s) {
  const io::ImageData data = io::load_mnist(!s.digits);
  const auto images_of = [](const io::ImageSet& set) {
    return Tensor::from_bytes(set.images.data(), DType::UInt8, {set.n_images, 1, set.n_rows, set.n_cols});
  };
  const Tensor images = images_of(data.train);
  const Tensor labels = Tensor::from_bytes(data.train.labels.data(), DType::UInt8, data.train.n_images);
  fmt::print("{} images of {} to train, {} to test\n", data.train.n_images, s.digits ? "MNIST" : "Fashion-MNIST", data.test.n_images);

  Tensor::manual_seed(static_cast<uint64_t>(s.seed));
  Network network;
  nn::Adam optimizer(nn::get_parameters(network), {.lr = 1e-3});
  TinyJit step([&](std::span<const Tensor>) { return train_step(network, optimizer, images, labels, s.batch); });

  // The schedule of the learning rate ends with the steps that fit into the time.
  const double start = now_s();
  int64_t n_steps = s.steps;
  Progress progress(s.batch);
  double loss = 0, accuracy = 0;
  for (int64_t i = 0; i < n_steps; ++i) {
    optimizer.lr.assign(Tensor::from<float>({static_cast<float>(rate_at(i, n_steps, s.lr))})).realize();
    const double step_start = now_s();
    const std::vector<Tensor> out = step();
    loss = out[0].item();
    accuracy = 0.9 * (i ? accuracy : out[1].item()) + 0.1 * out[1].item();
    if (i >= 4 && i % 20 == 4) {
      const double left_s = s.time_limit_s - (now_s() - start), step_s = now_s() - step_start;
      n_steps = std::min(s.steps, i + 1 + std::max<int64_t>(0, static_cast<int64_t>(left_s / step_s)));
    }
    progress.show(i + 1, n_steps, loss, accuracy);
  }
  const double seconds = now_s() - start;

  const std::vector<int32_t> predicted = predictions(network, images_of(data.test));
  int64_t n_right = 0;
  for (size_t i = 0; i < predicted.size(); ++i) n_right += predicted[i] == data.test.labels[i];
  fmt::print("{} steps of {} images in {:.1f} s; test accuracy {:.2f} %\n", n_steps, s.batch, seconds,
             100.0 * static_cast<double>(n_right) / static_cast<double>(predicted.size()));
  write_picture(s.out, data.test, predicted, !s.digits);
  fmt::print("pictures of test images with their predicted labels: {}\n", s.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app{"Trains a convolutional network on Fashion-MNIST with kernels that whit generates."};
  app.add_option("--steps", s.steps, "steps of training")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch", s.batch, "images a step")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seed", s.seed, "seed of weights and batches")->capture_default_str();
  app.add_option("--lr", s.lr, "the highest learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--time-limit", s.time_limit_s, "seconds of training; fewer steps when they do not fit")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--out", s.out, "the PNG file that is written")->capture_default_str();
  app.add_flag("--digits", s.digits, "MNIST's digits instead of Fashion-MNIST");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(s);
  } catch (const std::exception& e) {
    fmt::print(stderr, "mnist: {}\n", e.what());
    return 1;
  }
}
