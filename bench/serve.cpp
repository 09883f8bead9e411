// whit from C++ as one of the peers of bench/run.py: runs workloads on demand (bench/peer_protocol.py).
//   serve                          answers `WORK N` lines
//   serve --results N [WORK...]    calls each workload N times and prints a digest of all its results' bytes; says on standard error what it does
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>

#include "../examples/network.h"
#include "base/hash.h"
#include "report.h"
#include "runtime/device.h"

using namespace whit;

namespace {

using Work = std::function<std::vector<Tensor>()>;
using Body = std::function<Tensor(std::span<const Tensor>)>;

void synchronize() {
  for (Device* const device : open_devices()) device->synchronize();
}

Work train() {
  struct State {
    Tensor images = Tensor::rand({8192, 1, 28, 28}).realize();
    Tensor labels = Tensor::randint({8192}, {.low = 0, .high = 10}).realize();
    Network network;
    nn::Adam optimizer{nn::get_parameters(network), {.lr = 1e-3}};
    TinyJit step{[this](std::span<const Tensor>) { return train_step(network, optimizer, images, labels, 512); }};
  };
  auto s = std::make_shared<State>();
  return [s] {
    std::vector<Tensor> out = s->step();
    out[0].item();
    return out;
  };
}

// A function of inputs in memory, replayed.
Work replayed(const std::vector<IntList>& shapes, TinyJit::Body fn, DType dtype = DType::Float32) {
  std::vector<Tensor> inputs;
  for (const IntList& s : shapes) inputs.push_back((is_float(dtype) ? Tensor::randn(s) : Tensor::randn(s) * 40).cast(dtype).realize());
  auto jit = std::make_shared<TinyJit>(std::move(fn));
  return [=] {
    std::vector<Tensor> out = (*jit)(inputs);
    synchronize();
    return out;
  };
}
Work expression(const std::vector<IntList>& shapes, Body fn) {
  return replayed(shapes, [fn = std::move(fn)](std::span<const Tensor> in) { return std::vector<Tensor>{fn(in).realize()}; });
}

Work matmul(int64_t n) {
  return expression({{n, n}, {n, n}}, [](std::span<const Tensor> in) { return in[0].matmul(in[1]); });
}
Work low_precision_matmul(int64_t n, DType dtype, std::optional<DType> sum = {}) {
  return replayed({{n, n}, {n, n}}, [sum](std::span<const Tensor> in) { return std::vector<Tensor>{in[0].matmul(in[1], sum).realize()}; }, dtype);
}
// The same product without a word about matmul.
Work product_sum(int64_t n) {
  return expression({{n, n}, {n, n}},
                    [n](std::span<const Tensor> in) { return (in[0].reshape({n, 1, n}) * in[1].transpose().reshape({1, n, n})).sum(2); });
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
Work elementwise() {
  return expression({{4096, 2048}, {4096, 2048}}, [](std::span<const Tensor> in) {
    const Tensor &a = in[0], &b = in[1];
    return (a * b + a).tanh() * (-(b * b)).exp() + a.abs().sqrt();
  });
}

// 12 heads of 64; further inputs of `shapes` are a mask.
Work attention(bool is_causal, std::vector<IntList> more = {}) {
  std::vector<IntList> shapes(3, {1, 12, 1024, 64});
  shapes.insert(shapes.end(), more.begin(), more.end());
  return expression(shapes, [=](std::span<const Tensor> in) {
    return in[0].scaled_dot_product_attention(in[1], in[2], {.attn_mask = in.size() > 3 ? &in[3] : nullptr, .is_causal = is_causal});
  });
}
Work attention_written_out() {
  return expression(std::vector<IntList>(3, {1, 12, 1024, 64}), [](std::span<const Tensor> in) {
    const Tensor mask = Tensor::full({1024, 1024}, -INFINITY).triu(1);
    return (in[0].matmul(in[1].transpose(-2, -1)) * 0.125 + mask).softmax(-1).matmul(in[2]);
  });
}
Work attention_gradients() {
  return replayed(std::vector<IntList>(3, {1, 12, 1024, 64}), [](std::span<const Tensor> x) {
    const Tensor out = x[0].scaled_dot_product_attention(x[1], x[2], {.is_causal = true});
    std::vector<Tensor> all = out.square().sum().gradient({x[0], x[1], x[2]});
    Tensor::realize_all(all);
    return all;
  });
}

// n kernels of 16 numbers in one graph. Not synchronised: as the last one runs in the calling thread, it has ended.
Work tiny(int64_t n) {
  const Tensor x = Tensor::rand(16).realize();
  auto f = std::make_shared<TinyJit>([n](std::span<const Tensor> in) {
    Tensor y = in[0];
    for (int64_t i = 0; i < n / 3; ++i) y = ((y + 1.0).contiguous().sum().contiguous() * in[0]).contiguous();
    return std::vector<Tensor>{y.realize()};
  });
  for (int i = 0; i < 2; ++i) (*f)({x});
  WHIT_USER(f->n_kernels() == n, Runtime, "{} kernels were captured, expected {}", f->n_kernels(), n);
  return [=] { return (*f)({x}); };
}

const std::map<std::string, std::function<Work()>>& workloads() {
  static const auto low_precision = [](std::map<std::string, std::function<Work()>> works) {
    for (const int64_t n : {512, 1024, 2048}) {
      works[fmt::format("bfloat16-{}", n)] = [n] { return low_precision_matmul(n, DType::BFloat16); };
      works[fmt::format("int8-{}", n)] = [n] { return low_precision_matmul(n, DType::Int8, DType::Int32); };
    }
    return works;
  };
  static const auto& all =
      *new std::map<std::string, std::function<Work()>>(low_precision({{"train", train},
                                                                       {"tiny", [] { return tiny(3); }},
                                                                       {"tiny300", [] { return tiny(300); }},
                                                                       {"matmul512", [] { return matmul(512); }},
                                                                       {"matmul1024", [] { return matmul(1024); }},
                                                                       {"matmul2048", [] { return matmul(2048); }},
                                                                       {"product-sum1024", [] { return product_sum(1024); }},
                                                                       {"conv", convolution},
                                                                       {"softmax", softmax},
                                                                       {"layernorm", layer_norm},
                                                                       {"elementwise", elementwise},
                                                                       {"attention", [] { return attention(true); }},
                                                                       {"attention-mask", [] { return attention(false, {{1024, 1024}}); }},
                                                                       {"attention-full", [] { return attention(false); }},
                                                                       {"attention-written-out", attention_written_out},
                                                                       {"attention-gradients", attention_gradients}}));
  return all;
}

void print_results(int n_calls, std::vector<std::string> names) {
  if (names.empty())
    for (const auto& [name, make] : workloads()) names.push_back(name);
  for (const std::string& name : names) {
    Tensor::manual_seed(1);
    fmt::print(stderr, "\nmaking {}\n", name);
    const Work work = workloads().at(name)();
    fmt::print(stderr, "\ncalling {}\n", name);
    std::string bytes;
    for (int i = 0; i < n_calls; ++i)
      for (const Tensor& t : work()) {
        const std::vector<float> values = t.to_vector<float>();
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      }
    fmt::print("{{\"what\": \"{}\", \"digest\": \"{}\"}}\n", name, hash128(bytes).hex());
    fflush(stdout);
  }
}

void answer_lines() {
  std::map<std::string, Work> prepared;
  fmt::print("{{\"ready\": \"whit from C++\", \"version\": \"\"}}\n");
  fflush(stdout);
  std::string name;
  for (int n = 0; std::cin >> name >> n;) {
    try {
      if (!workloads().contains(name)) throw std::runtime_error("no workload " + name);
      if (!prepared.contains(name)) {
        prepared[name] = workloads().at(name)();
        for (int i = 0; i < 4; ++i) prepared[name]();
      }
      const double cpu = bench::cpu_s();
      const std::vector<double> seconds = bench::times_of(n, prepared[name]);
      fmt::print("{{\"cpu_s\": {:.9f}, \"seconds\": [", (bench::cpu_s() - cpu) / std::max(n, 1));
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

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() > 1 && args[0] == "--results") {
    print_results(std::stoi(args[1]), {args.begin() + 2, args.end()});
  } else if (args.empty()) {
    answer_lines();
  } else {
    fmt::print(stderr, "usage: serve [--results N [WORK...]]\n");
    return 2;
  }
}
