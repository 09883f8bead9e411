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

// An expression of inputs in memory, replayed.
Work expression(const std::vector<IntList>& shapes, std::function<Tensor(std::span<const Tensor>)> fn) {
  std::vector<Tensor> inputs;
  for (const IntList& s : shapes) inputs.push_back(Tensor::randn(s).realize());
  auto jit = std::make_shared<TinyJit>([fn = std::move(fn)](std::span<const Tensor> in) { return std::vector<Tensor>{fn(in).realize()}; });
  return [=] {
    (*jit)(inputs);
    for (Device* const device : open_devices()) device->synchronize();
  };
}

Work matmul(int64_t n) {
  return expression({{n, n}, {n, n}}, [](std::span<const Tensor> in) { return in[0].matmul(in[1]); });
}
Work convolution() {
  return expression({{8, 64, 56, 56}, {64, 64, 3, 3}}, [](std::span<const Tensor> in) { return in[0].conv2d(in[1], {.padding = 1}); });
}
Work softmax() {
  return expression({{4096, 4096}}, [](std::span<const Tensor> in) { return in[0].softmax(1); });
}
Work layer_norm() {
  return expression({{8192, 1024}}, [](std::span<const Tensor> in) { return in[0].layernorm(); });
}
// Causal, 12 heads of 64; as one call, or written out.
Work attention(bool written_out) {
  return expression(std::vector<IntList>(3, {1, 12, 1024, 64}), [=](std::span<const Tensor> in) {
    if (!written_out) return in[0].scaled_dot_product_attention(in[1], in[2], {.is_causal = true});
    const Tensor mask = Tensor::full({1024, 1024}, -INFINITY).triu(1);
    return (in[0].matmul(in[1].transpose(-2, -1)) * 0.125 + mask).softmax(-1).matmul(in[2]);
  });
}
Work attention_gradients() {
  std::vector<Tensor> in;
  for (int i = 0; i < 3; ++i) in.push_back(Tensor::randn({1, 12, 1024, 64}).realize());
  auto jit = std::make_shared<TinyJit>([](std::span<const Tensor> x) {
    const Tensor out = x[0].scaled_dot_product_attention(x[1], x[2], {.is_causal = true});
    std::vector<Tensor> all = out.square().sum().gradient({x[0], x[1], x[2]});
    Tensor::realize_all(all);
    return all;
  });
  return [=] {
    (*jit)(in);
    for (Device* const device : open_devices()) device->synchronize();
  };
}
Work elementwise() {
  return expression({{4096, 2048}, {4096, 2048}}, [](std::span<const Tensor> in) {
    const Tensor &a = in[0], &b = in[1];
    return (a * b + a).tanh() * (-(b * b)).exp() + a.abs().sqrt();
  });
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
  const std::map<std::string, std::function<Work()>> all = {{"train", train},
                                                            {"tiny", tiny},
                                                            {"matmul512", [] { return matmul(512); }},
                                                            {"matmul1024", [] { return matmul(1024); }},
                                                            {"matmul2048", [] { return matmul(2048); }},
                                                            {"conv", convolution},
                                                            {"softmax", softmax},
                                                            {"layernorm", layer_norm},
                                                            {"attention", [] { return attention(false); }},
                                                            {"attention_written_out", [] { return attention(true); }},
                                                            {"attention_gradients", attention_gradients},
                                                            {"elementwise", elementwise}};
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
