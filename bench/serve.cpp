// whit from C++ as one of the peers of bench/run.py: runs workloads on demand (bench/peer_protocol.py).
#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include "../examples/network.h"
#include "report.h"
#include "runtime/device.h"

using namespace whit;

namespace {

using Work = std::function<void()>;

Work train() {
  struct State {
    Tensor images = Tensor::rand({8192, 1, 28, 28}).realize();
    Tensor labels = Tensor::randint({8192}, {.low = 0, .high = 10}).realize();
    Network network;
    nn::Adam optimizer{nn::get_parameters(network), {.lr = 1e-3}};
    TinyJit step{[this](std::span<const Tensor>) { return train_step(network, optimizer, images, labels, 512); }};
  };
  auto s = std::make_shared<State>();
  return [s] { s->step()[0].item(); };
}

Work matmul(int64_t n) {
  const Tensor a = Tensor::rand({n, n}).realize(), b = Tensor::rand({n, n}).realize();
  auto product = std::make_shared<TinyJit>([](std::span<const Tensor> in) {
    Tensor c = in[0].matmul(in[1]);
    return std::vector<Tensor>{c.realize()};
  });
  return [=] {
    (*product)({a, b});
    synchronize_all();
  };
}

Work tiny() {
  const Tensor x = Tensor::rand(16).realize();
  auto f = std::make_shared<TinyJit>([](std::span<const Tensor> in) {
    Tensor y = ((in[0] + 1.0).contiguous().sum().contiguous() * in[0]);
    return std::vector<Tensor>{y.realize()};
  });
  for (int i = 0; i < 2; ++i) (*f)({x});
  WHIT_USER(f->n_kernels() == 3, Runtime, "{} kernels were captured, expected 3", f->n_kernels());
  return [=] { (*f)({x}); };
}

}  // namespace

int main() {
  const std::map<std::string, std::function<Work()>> all = {
      {"train", train}, {"matmul1024", [] { return matmul(1024); }}, {"tiny", tiny}};
  std::map<std::string, Work> prepared;
  fmt::print("{{\"ready\": \"whit from C++\", \"version\": \"\"}}\n");
  fflush(stdout);
  std::string name;
  for (int n = 0; std::cin >> name >> n;) {
    try {
      std::string first;
      if (!prepared.contains(name)) {
        const double start = bench::now_s();
        prepared[name] = all.at(name)();
        prepared[name]();
        first = fmt::format("\"first_s\": {:.6f}, ", bench::now_s() - start);
        for (int i = 0; i < 3; ++i) prepared[name]();
      }
      const std::vector<double> seconds = bench::times_of(n, prepared[name]);
      fmt::print("{{{}\"seconds\": [", first);
      for (size_t i = 0; i < seconds.size(); ++i) fmt::print("{}{:.9f}", i ? ", " : "", seconds[i]);
      fmt::print("]}}\n");
    } catch (const std::exception& e) {
      std::string text = e.what();
      for (char& c : text)
        if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = ' ';
      fmt::print("{{\"error\": \"{}\"}}\n", text);
    }
    fflush(stdout);
  }
}
