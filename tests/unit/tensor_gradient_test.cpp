// Gradients against finite differences in float64 by the reference evaluator.
#include <functional>

#include "interpret_tensor.h"
#include "ir/build.h"
#include "rules/gradient.h"
#include "tensor_checks.h"

namespace whit {
namespace {

using Fn = std::function<Tensor(const std::vector<Tensor>&)>;

// Values of a graph over the BUFFERs of `inputs`, whose contents are given.
double evaluate(const UOp& root, const std::vector<Tensor>& inputs, const std::vector<std::vector<double>>& data) {
  HostInputs in;
  for (size_t i = 0; i < inputs.size(); ++i) {
    UOp b = inputs[i].uop();
    while (b.op() != Op::Buffer) b = b.src(0);
    in.memory[b.node()] = const_cast<double*>(data[i].data());
  }
  return evaluate_tensor(root, in).at(0).as_double();
}

// Checks d(sum of weights * fn)/d(inputs), and, when `order` is 2, the derivative of that.
void check(const char* name, const std::vector<Shape>& shapes, const Fn& fn, int order = 2, double shift = 0.3) {
  SCOPED_TRACE(name);
  std::vector<Tensor> inputs;
  std::vector<std::vector<double>> data;
  double next = shift;
  for (const Shape& s : shapes) {
    std::vector<double> v;
    for (int64_t i = 0; i < s.numel(); ++i) {
      next = std::fmod(next * 1.7 + 0.37, 1.9);
      v.push_back(next + 0.05);
    }
    data.push_back(v);
    inputs.push_back(Tensor::from(v, s));
  }
  auto weighted = [](const Tensor& y, double step) {
    const Tensor w = Tensor::arange(0, y.numel(), 1, DType::Float64).reshape(y.shape()) * step + 0.7;
    return (y * w).sum();
  };
  Tensor loss = weighted(fn(inputs), 0.13);
  for (int o = 1; o <= order; ++o) {
    const std::vector<Tensor> grads = loss.gradient(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t k = 0; k < data[i].size(); ++k) {
        const double old = data[i][k], h = 1e-5;
        data[i][k] = old + h;
        const double up = evaluate(loss.uop(), inputs, data);
        data[i][k] = old - h;
        const double down = evaluate(loss.uop(), inputs, data);
        data[i][k] = old;
        const double want = (up - down) / (2 * h);
        const double got = evaluate(grads[i].flatten()[static_cast<int64_t>(k)].uop(), inputs, data);
        EXPECT_NEAR(got, want, 2e-6 * std::max(1.0, std::fabs(want))) << "order " << o << " input " << i << " element " << k;
      }
    }
    if (o < order) {
      loss = weighted(grads[0], 0.11);
      for (size_t i = 1; i < grads.size(); ++i) loss = loss + weighted(grads[i], 0.17);
    }
  }
}

#define WHIT_UNARY(expr)                                  \
  check(#expr, {{5}}, [](const std::vector<Tensor>& in) { \
    const Tensor& x = in[0];                              \
    return expr;                                          \
  })

TEST(Gradient, Elementwise) {
  WHIT_UNARY(x.sin());
  WHIT_UNARY(x.cos());
  WHIT_UNARY(x.exp());
  WHIT_UNARY(x.log());
  WHIT_UNARY(x.sqrt());
  WHIT_UNARY(x.rsqrt());
  WHIT_UNARY(x.reciprocal());
  WHIT_UNARY(x.tanh());
  WHIT_UNARY(x.sigmoid());
  WHIT_UNARY(x.gelu());
  WHIT_UNARY(x.gelu("none"));
  WHIT_UNARY(x.erf());
  WHIT_UNARY(x.atan());
  WHIT_UNARY((x * 0.4).asin());
  WHIT_UNARY((x * 0.4).acos());
  WHIT_UNARY(x.asinh());
  WHIT_UNARY((x + 1.5).acosh());
  WHIT_UNARY((x * 0.4).atanh());
  WHIT_UNARY(x.sinh());
  WHIT_UNARY(x.softplus());
  WHIT_UNARY(x.mish());
  WHIT_UNARY((x - 1).elu());
  WHIT_UNARY((x - 1).abs().pow(3));
  WHIT_UNARY(x.pow(2.5));
  WHIT_UNARY(Tensor(1.5).pow(x));
  WHIT_UNARY((x - 1).relu().square());
  WHIT_UNARY((x - 1).logsigmoid());
}

TEST(Gradient, Binary) {
  const std::vector<Shape> two = {{2, 3}, {3}};
  check("mul", two, [](const auto& in) { return in[0] * in[1]; });
  check("div", two, [](const auto& in) { return in[0] / in[1]; });
  check("pow", two, [](const auto& in) { return in[0].pow(in[1]); });
  check("maximum", two, [](const auto& in) { return in[0].maximum(in[1]); }, 1);
  check("mod", two, [](const auto& in) { return in[0].mod(in[1]); }, 1);
  check("where", two, [](const auto& in) { return in[0].gt(1).where(in[0] * in[1], in[1]); });
  check("logaddexp", two, [](const auto& in) { return in[0].logaddexp(in[1]); }, 1);
}

TEST(Gradient, Reductions) {
  const std::vector<Shape> one = {{2, 3}};
  check("sum", one, [](const auto& in) { return in[0].sum(0).square(); });
  check("prod", one, [](const auto& in) { return in[0].prod(1); });
  check("max", one, [](const auto& in) { return in[0].max(1).square(); }, 1);
  check("var", one, [](const auto& in) { return in[0].var(1); });
  check("softmax", one, [](const auto& in) { return in[0].softmax(); });
  check("log_softmax", one, [](const auto& in) { return in[0].log_softmax(0); });
  check("logsumexp", one, [](const auto& in) { return in[0].logsumexp(); }, 1);
  check("layernorm", one, [](const auto& in) { return in[0].layernorm(); });
  check("cumsum", one, [](const auto& in) { return in[0].cumsum(1).square(); });
  check("cumprod", one, [](const auto& in) { return in[0].cumprod(1); }, 1);
  check("sort", one, [](const auto& in) { return in[0].sort().first.square(); });
}

TEST(Gradient, Movement) {
  const std::vector<Shape> one = {{2, 3}};
  check("views", one, [](const auto& in) { return in[0].T().flip(0).pad({1, 1})[1].square(); });
  check("slices", one, [](const auto& in) { return in[0].get({Slice{}, Slice{{}, {}, 2}}).square(); });
  check("windows", {{7}}, [](const auto& in) { return in[0].unfold(0, 3, 2).square(); });
  check("cat", {{2, 3}, {1, 3}}, [](const auto& in) { return Tensor::cat({in[0], in[1], in[0]}).square(); });
  check("gather", one, [](const auto& in) { return in[0][i32({1, 1, 0}, 3)].square(); });
  check("scatter", {{4}, {3}}, [](const auto& in) { return in[0].scatter(0, i32({2, 0, 2}, 3), in[1]).square(); });
  check("scatter sum", {{4}, {3}}, [](const auto& in) { return in[0].scatter_reduce(0, i32({2, 0, 2}, 3), in[1], "sum").square(); });
  check("setitem", {{4}, {2}}, [](const auto& in) {
    Tensor t = in[0] * 2;
    t.set({Slice{1, 3}}, in[1] * in[1]);
    return t.square();
  });
  check("stored", {{4}, {2}}, [](const auto& in) {
    Tensor t = in[0].clone();
    t.set({Slice{1, 3}}, in[1] * in[1]);
    return t.square();
  });
}

TEST(Gradient, Contractions) {
  check("matmul", {{2, 3}, {3, 2}}, [](const auto& in) { return in[0].matmul(in[1]).square(); });
  check("einsum", {{2, 3}, {3, 2}}, [](const auto& in) { return Tensor::einsum("ij,ji->i", {in[0], in[1]}); });
  check(
      "conv", {{1, 2, 5, 4}, {2, 2, 3, 2}, {2}}, [](const auto& in) { return in[0].conv2d(in[1], in[2], {.stride = 2, .padding = 1}).square(); }, 1);
  check("transposed conv", {{1, 2, 3, 2}, {2, 1, 2, 2}}, [](const auto& in) { return in[0].conv_transpose2d(in[1], {}, {.stride = 2}).square(); }, 1);
  check("pools", {{1, 1, 4, 4}}, [](const auto& in) { return in[0].max_pool2d() + in[0].avg_pool2d().square(); }, 1);
}

TEST(Gradient, TiesAndZeros) {
  const Tensor x = f32({1, 1, 0}, 3), y = f32({1, 0, 0}, 3);
  expect_tensor(x.maximum(y).sum().gradient({x})[0], 3, {0.5, 1, 0.5});
  expect_tensor(x.max().gradient({x})[0], 3, {0.5, 0.5, 0});
  expect_tensor(f32({0}, 1).relu().sum().gradient({x})[0], 3, {0, 0, 0});
  expect_tensor(x.relu().sum().gradient({x})[0], 3, {1, 1, 0});
  expect_tensor(x.prod().gradient({x})[0], 3, {0, 0, 1});
  const Tensor z = f32({0, 0, 2}, 3);
  expect_tensor(z.prod().gradient({z})[0], 3, {0, 0, 0});
  expect_tensor(z.abs().sum().gradient({z})[0], 3, {0, 0, 1});
  expect_tensor(z.atan().sum().gradient({z})[0], 3, {1, 1, 0.2}, 1e-6);
  expect_tensor(f32({200, -200}, 2).tanh().sum().gradient({z})[0], 3, {0, 0, 0});
  const Tensor far = f32({200, -200}, 2);
  expect_tensor((far.tanh() + far.sigmoid() + far.softplus()).sum().gradient({far})[0], 2, {1, 0});
}

TEST(Gradient, Backward) {
  const Tensor a = f32({1, 2}, 2), b = f32({3, 4}, 2);
  const Tensor mid = a * b;
  mid.square().sum().backward();
  expect_tensor(mid.grad(), 2, {6, 16});
  expect_tensor(a.grad(), 2, {18, 64});
  EXPECT_FALSE((a + 1).grad().defined());
  (a * 2).sum().backward();
  expect_tensor(a.grad(), 2, {20, 66});
  const Tensor d = f32({1}, 1);
  (d.detach() * 2 + d).sum().backward();
  expect_tensor(d.grad(), 1, {1});
  const Tensor i = f32({1.5}, 1);
  (i.cast(DType::Int32).cast(DType::Float32) + i).sum().backward();
  expect_tensor(i.grad(), 1, {1});
}

TEST(Gradient, LeavesThatAreRealisedLater) {
  const Tensor x = f32({1, 2, 3}, 3);
  Tensor made = x * 2, filled = Tensor::ones({3});
  const Tensor loss = (made * filled * x).sum();
  EXPECT_EQ(loss.item(), 28);  // also runs the store into `filled`
  made.realize();
  loss.backward();
  expect_tensor(made.grad(), 3, {1, 2, 3});
  expect_tensor(filled.grad(), 3, {2, 8, 18});
  expect_tensor(x.grad(), 3, {4, 8, 12});
}

TEST(Gradient, ThroughACall) {
  const Tensor x = f32({1, 2, 3}, 3), w = f32({2, 2, 2}, 3);
  const Tensor inputs[] = {x, w}, outputs[] = {(x * w).sin(), (x * x).sum()};
  const std::vector<Tensor> y = make_call(inputs, outputs, false);
  expect_tensor(y[0], 3, {std::sin(2.0), std::sin(4.0), std::sin(6.0)}, 1e-6);
  const std::vector<Tensor> g = (y[0].sum() + y[1]).gradient({x, w});
  expect_tensor(g[0], 3, {2 * std::cos(2.0) + 2, 2 * std::cos(4.0) + 4, 2 * std::cos(6.0) + 6}, 1e-5);
  expect_tensor(g[1], 3, {std::cos(2.0), 2 * std::cos(4.0), 3 * std::cos(6.0)}, 1e-5);
  expect_tensor(g[0].sum().gradient({x})[0], 3, {2 - 4 * std::sin(2.0), 2 - 4 * std::sin(4.0), 2 - 4 * std::sin(6.0)}, 1e-5);
}

TEST(Gradient, OfTheMaker) {
  const Tensor x = f32({1, 2, 3}, 3), w = f32({2, 2, 2}, 3);
  // A straight-through estimator: the gradient of rounding is that of its input, and w gets none.
  const int64_t id = register_gradient([](std::span<const Tensor> g, std::span<const Tensor> in) { return std::vector<Tensor>{g[0] * 10 + in[0]}; });
  const Tensor inputs[] = {x, w}, outputs[] = {(x * w * 0.3).round()};
  const Tensor y = make_call(inputs, outputs, false, id)[0];
  expect_tensor(y, 3, {1, 1, 2});
  const std::vector<Tensor> g = y.sum().gradient({x, w});
  expect_tensor(g[0], 3, {11, 12, 13});
  expect_tensor(g[1], 3, {0, 0, 0});
}

TEST(Gradient, OfABodyWithPlaceholders) {
  const Tensor x = f32({1, 2, 3}, 3), w = f32({2, 2, 2}, 3);
  const Tensor args[] = {x, w}, body[] = {x.as_param(0) * w.as_param(1) + x.as_param(0)};
  const Tensor y = Tensor::call(args, body)[0];
  expect_tensor(y, 3, {3, 6, 9});
  expect_tensor(y.sum().gradient({w})[0], 3, {1, 2, 3});
  expect_error(ErrorKind::Runtime, "[call] the body has PARAM 1, 1 arguments are given", [&] { (void)Tensor::call(std::span(args, 1), body); });
  Tensor pending = x * 2 + w;
  Tensor::callify(std::span(&pending, 1));
  EXPECT_EQ(pending.uop().op(), Op::GetTuple);
  expect_tensor(pending, 3, {4, 6, 8});
}

// out[i] = sum over j of x[i, j] * x[i, 2 - j], by its own loops.
TEST(Gradient, ThroughLoopsOfOnesOwn) {
  const Tensor x = f32({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto kernel = [](std::span<const UOp> p) {
    const UOp i = range(2, 0, AxisType::Weak), j = range(3, 1, AxisType::Reduce);
    const UOp rs[] = {i}, js[] = {j};
    const UOp left = load(index(p[1], i * 3 + j)), right = load(index(p[1], i * 3 + (idx(2) - j)));
    return UOp::make(Op::Sink, DType::Void, {end(store(index(p[0], i), reduce(left * right, "add", js)), rs)});
  };
  const Tensor tensors[] = {Tensor::zeros({2}), x};
  const Tensor y = Tensor::custom_kernel(tensors, kernel)[0];
  expect_tensor(y, 2, {10, 73});
  expect_tensor(y.sum().gradient({x})[0], {2, 3}, {6, 4, 2, 12, 10, 8});
  expect_error(ErrorKind::Type, "[custom_kernel] the function gave CONST; expected a SINK",
               [&] { (void)Tensor::custom_kernel(tensors, [](std::span<const UOp>) { return idx(0); }); });
}

TEST(Gradient, EveryTensorOpIsInTheTable) {
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    const bool integers_only = op == Op::Cdiv || op == Op::FloorDiv || (op >= Op::And && op <= Op::Shr);
    const bool of_tensors = (is_elementwise(op) && !integers_only) || is_movement(op) || op == Op::Reduce || op == Op::Gather || op == Op::Scatter ||
                            op == Op::After || op == Op::Store || op == Op::Contiguous || op == Op::Detach || op == Op::Copy;
    EXPECT_TRUE(!of_tensors || has_gradient(op)) << name(op);
  }
}

TEST(Gradient, DeepGraphs) {
  Tensor x = f32({1}, 1);
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = y + 1;
  const Tensor g = y.sum().gradient({x})[0];
  EXPECT_EQ(g.numel(), 1);
}

}  // namespace
}  // namespace whit
