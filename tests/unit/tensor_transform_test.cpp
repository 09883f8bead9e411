#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "error_of.h"
#include "ir/op.h"
#include "rules/batch.h"
#include "whit/jit.h"
#include "whit/transform.h"
#include "whit/whit.h"

namespace whit {
namespace {

using Tensors = std::vector<Tensor>;
using Args = std::span<const Tensor>;

Tensor ramp(const IntList& shape, double scale = 0.1, double start = -1.0) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return (Tensor::arange(n).cast(DType::Float32) * Tensor(scale) + Tensor(start)).reshape(shape).clone();
}

void expect_close(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.shape(), b.shape());
  const auto x = a.cast(DType::Float64).to_vector<double>(), y = b.cast(DType::Float64).to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance * (1 + std::abs(y[i]))) << "element " << i;
}

// fn applied to each example, one by one.
Tensor looped(const TensorFn& fn, const Tensors& inputs) {
  Tensors rows;
  for (int64_t i = 0; i < inputs[0].size(0); ++i) {
    Tensors one;
    for (const Tensor& t : inputs) one.push_back(t.get({i}));
    rows.push_back(fn(one)[0]);
  }
  return Tensor::stack(rows);
}

void expect_batches(const TensorFn& fn, const Tensors& inputs) { expect_close(vmap(fn, inputs)[0], looped(fn, inputs)); }

TEST(Vmap, EachKindOfOp) {
  const Tensor a = ramp({3, 4, 5}), b = ramp({3, 5}, 0.07);
  const auto over = [](Tensor (*fn)(Args)) { return TensorFn([fn](Args x) { return Tensors{fn(x)}; }); };
  expect_batches(over([](Args x) { return (x[0] * x[1] + Tensor(1.5)).exp(); }), {a, b});
  expect_batches(over([](Args x) { return x[0].sum(0) + x[1]; }), {a, b});
  expect_batches(over([](Args x) { return x[0].softmax() - x[0].max(-1, true); }), {a});
  expect_batches(over([](Args x) { return x[0].matmul(x[1].reshape({5, 1})); }), {a, b});
  expect_batches(over([](Args x) { return x[0].permute({1, 0}).flip(0).pad({1, 2}).get({Slice{1, 4}}); }), {a});
  expect_batches(over([](Args x) { return x[0].cumsum(1); }), {a});
  expect_batches(over([](Args x) { return x[0].sort(1).first; }), {a});
  expect_batches(over([](Args x) { return Tensor::cat({x[0], x[0] * Tensor(2)}, 1); }), {a});
  expect_batches(over([](Args x) { return Tensor::stack({x[0], x[0] * Tensor(2)}, 1); }), {a});
  expect_batches(over([](Args x) { return x[0].cast(DType::Int32).bitcast(DType::UInt16).cast(DType::Float32); }), {a});
  expect_batches(over([](Args x) { return x[1].sum().expand({2, 2}) * Tensor(3.0); }), {a, b});
}

TEST(Vmap, Convolution) {
  const Tensor x = ramp({3, 2, 2, 6, 6}, 0.01), w = ramp({3, 4, 2, 3, 3}, 0.01);
  expect_batches([](Args v) { return Tensors{v[0].conv2d(v[1], {.stride = 2, .padding = 1})}; }, {x, w});
  expect_batches([](Args v) { return Tensors{v[0].max_pool2d()}; }, {x});
}

TEST(Vmap, IndicesBatchedOrShared) {
  const Tensor table = ramp({3, 6, 2});
  const Tensor index = Tensor::from<int32_t>({5, 0, 2, 1, -1, 9}, {3, 2});  // -1 and 9 read other rows or 0, as without vmap
  const TensorFn read = [](Args x) { return Tensors{x[0].get({x[1]})}; };
  expect_close(vmap(read, Tensors{table, index})[0], looped(read, {table, index}));
  const Tensor one = index.get({0});
  expect_close(vmap(read, Tensors{table, one}, {.in_axes = {0, std::nullopt}})[0], table.get({Slice{}, one}));
  expect_close(vmap(read, Tensors{table.get({0}), index}, {.in_axes = {std::nullopt, 0}})[0], table.get({0}).get({index}));
  const Tensor rows = ramp({3, 2, 2});
  const TensorFn write = [](Args x) { return Tensors{x[0].scatter_reduce(0, x[1].reshape({2, 1}).expand({2, 2}), x[2], "sum")}; };
  const Tensor inside = Tensor::from<int32_t>({5, 0, 2, 2, 1, 0}, {3, 2});
  expect_close(vmap(write, Tensors{table, inside, rows})[0], looped(write, {table, inside, rows}));
}

TEST(Vmap, AxesInAndOut) {
  const Tensor a = ramp({4, 3, 5}), b = ramp({5});
  const TensorFn fn = [](Args x) { return Tensors{x[0] * x[1]}; };  // (4, 5) * (5)
  const Tensor out = vmap(fn, Tensors{a, b}, {.in_axes = {1, std::nullopt}, .out_axes = {-1}})[0];
  expect_close(out, (a * b).permute({0, 2, 1}));
  const TensorFn constant = [](Args) { return Tensors{Tensor(2.0).expand({2})}; };
  expect_close(vmap(constant, Tensors{a})[0], Tensor(2.0).expand({4, 2}));
}

TEST(Vmap, Nested) {
  const Tensor a = ramp({3, 5}), b = ramp({4, 5});
  const TensorFn dot = [](Args x) { return Tensors{(x[0] * x[1]).sum()}; };
  const TensorFn inner = [&](Args x) { return vmap(dot, x, {.in_axes = {std::nullopt, 0}}); };
  expect_close(vmap(inner, Tensors{a, b}, {.in_axes = {0, std::nullopt}})[0], a.matmul(b.permute({1, 0})));
}

TEST(Vmap, MemoryThatTheFunctionMakes) {
  const Tensor a = ramp({3, 4});
  const TensorFn fn = [](Args x) {
    Tensor y = Tensor::zeros({2, 4});
    y.realize();
    y.set({1}, x[0]);
    y += Tensor(1.0);
    return Tensors{y};
  };
  expect_batches(fn, {a});
  const TensorFn on_argument = [](Args x) {
    Tensor y = x[0];
    y.set({Slice{0, 2}}, Tensor(7.0));
    return Tensors{y * Tensor(2.0)};
  };
  expect_batches(on_argument, {a.clone()});
}

TEST(Vmap, Errors) {
  const Tensor a = ramp({3, 4}), b = ramp({2, 4});
  const TensorFn fn = [](Args x) { return Tensors{x[0] + x[0]}; };
  const auto text = [](auto&& run) -> std::string {
    try {
      run();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(text([&] { vmap(fn, Tensors{a, b}); }), "[vmap] argument 1 has 2 examples on axis 0 of shape (2, 4); others have 3");
  EXPECT_EQ(text([&] { vmap(fn, Tensors{a}, {.in_axes = {std::nullopt}}); }), "[vmap] none of 1 arguments is mapped");
  EXPECT_EQ(text([&] { vmap(fn, Tensors{a.sum()}); }), "[vmap] argument 0 has shape (); it has no axis to map");
  EXPECT_EQ(text([&] { vmap([](Args x) { return Tensors{x[0] * Tensor(x[0].sum().item())}; }, Tensors{a}); }),
            "[realize] the value depends on an argument of a function that is being traced, which has no data");
  Tensor outer = Tensor::zeros({4}).realize();
  EXPECT_EQ(text([&] {
              vmap(
                  [&](Args x) {
                    outer.assign(x[0]);
                    return Tensors{outer};
                  },
                  Tensors{a});
            }),
            "[vmap] a value that differs between the 3 examples is stored into a tensor of shape (4,) that was made "
            "outside the function; expected one that is made inside");
  EXPECT_EQ(text([&] { jvp(fn, Tensors{a}, Tensors{b}); }), "[jvp] tangent 0 has shape (2, 4); expected (3, 4)");
  EXPECT_FALSE(is_tracing());
}

TEST(Vmap, EveryOpOfTensorGraphsHasARow) {
  for (const Op op : {Op::Neg,   Op::Cast,   Op::Bitcast,    Op::Add,    Op::Threefry, Op::Where, Op::Reshape, Op::Expand,   Op::Permute,
                      Op::Pad,   Op::Shrink, Op::Flip,       Op::Window, Op::Unwindow, Op::Stack, Op::Gather,  Op::Scatter,  Op::Reduce,
                      Op::Store, Op::After,  Op::Contiguous, Op::Detach, Op::Copy,     Op::Call,  Op::Tuple,   Op::GetTuple, Op::Buffer})
    EXPECT_TRUE(has_batch_rule(op)) << name(op);
}

Tensors mlp(Args x) { return {(x[0].matmul(x[1]).tanh() * x[0].sum()).sin()}; }

TEST(Jvp, IsTheDirectionalDerivative) {
  const Tensor x = ramp({3, 4}).cast(DType::Float64), w = ramp({4, 2}).cast(DType::Float64);
  const Tensor dx = ramp({3, 4}, 0.03).cast(DType::Float64), dw = ramp({4, 2}, 0.05).cast(DType::Float64);
  const Jvp r = jvp(mlp, Tensors{x, w}, Tensors{dx, dw});
  expect_close(r.outputs[0], mlp(Tensors{x, w})[0], 1e-12);
  const Tensor h = Tensor(1e-6);
  const Tensor up = mlp(Tensors{x + dx * h, w + dw * h})[0], down = mlp(Tensors{x - dx * h, w - dw * h})[0];
  expect_close(r.tangents[0], (up - down) * Tensor(0.5e6), 1e-8);
}

TEST(Vjp, PullsBack) {
  const Tensor x = ramp({3}), y = ramp({3}, 0.4);
  const Vjp r = vjp([](Args v) { return Tensors{v[0] * v[1], v[0].exp()}; }, Tensors{x, y});
  const Tensor c = ramp({3}, 0.2), d = ramp({3}, 0.7);
  const Tensors g = r.pullback(Tensors{c, d});
  expect_close(g[0], c * y + d * x.exp());
  expect_close(g[1], c * x);
}

TEST(Jacobian, BothModes) {
  const Tensor x = ramp({4}), w = ramp({2, 4}, 0.3);
  const auto linear = [&](const Tensor& m) { return TensorFn([&m](Args v) { return Tensors{m.matmul(v[0])}; }); };
  expect_close(jacobian(linear(w), Tensors{x})[0][0], w);
  const Tensor tall = ramp({6, 4}, 0.3);
  expect_close(jacobian(linear(tall), Tensors{x})[0][0], tall);
  const auto h = hessian([](Args v) { return Tensors{(v[0] * v[0] * v[0]).sum() + v[0].sum() * v[1].sum()}; }, Tensors{x, ramp({2})});
  expect_close(h[0][0], Tensor::eye(4) * x * Tensor(6.0));
  expect_close(h[0][1], Tensor::ones({4, 2}));
  expect_close(h[1][1], Tensor::zeros({2, 2}));
}

TEST(Transform, PerExampleGradients) {
  const Tensor x = ramp({5, 4}), w = ramp({4, 3});
  const TensorFn loss = [](Args v) { return Tensors{(v[0].matmul(v[1])).log_softmax().get({0}) * Tensor(-1.0)}; };
  const TensorFn g = [&](Args v) { return Tensors{grad(loss)(v)[1]}; };
  const Tensor all = vmap(g, Tensors{x, w}, {.in_axes = {0, std::nullopt}})[0];
  Tensors rows;
  for (int64_t i = 0; i < 5; ++i) rows.push_back(grad(loss)(Tensors{x.get({i}), w})[1]);
  expect_close(all, Tensor::stack(rows));
}

TEST(Transform, FunctionsWithTheirOwnGradient) {
  const int64_t id = register_gradient([](Args g, Args in) {
    return Tensors{g[0] * in[1] * Tensor(10.0), (g[0] * in[0]).sum(0)};  // ten times the truth for the first argument
  });
  const TensorFn scaled = [id](Args v) { return make_call(v, Tensors{v[0] * v[1]}, false, id); };
  const TensorFn loss = [&](Args v) { return Tensors{scaled(v)[0].sum()}; };
  const Tensor x = ramp({3, 4}), s = Tensor::from<float>({2.0F}, {});
  const auto grads = [&](Args v) { return grad(loss)(v); };
  const Tensors inside = vmap(grads, Tensors{x, s}, {.in_axes = {0, std::nullopt}});
  expect_close(inside[0], Tensor(20.0).expand({3, 4}));
  // And the gradient of the batched function.
  const TensorFn batched_loss = [&](Args v) { return Tensors{vmap(loss, v, {.in_axes = {0, std::nullopt}})[0].sum()}; };
  const Tensors outside = grad(batched_loss)(Tensors{x, s});
  expect_close(outside[0], Tensor(20.0).expand({3, 4}));
  expect_close(outside[1], x.sum());
}

// Each transform of the other's result; f(x) = sum(x^3), so f' = 3x^2, f'' = 6x.
TEST(Transform, OrderedPairs) {
  const Tensor x = ramp({3, 4}), v = ramp({3, 4}, 0.2);
  const TensorFn f = [](Args a) { return Tensors{(a[0] * a[0] * a[0]).sum()}; };
  const TensorFn rows = [&](Args a) { return Tensors{vmap(f, a)[0].sum()}; };
  const TensorFn tangent = [&](Args a) { return jvp(f, a, Tensors{v}).tangents; };
  const TensorFn row_tangent = [&](Args a) { return jvp(f, a.subspan(0, 1), a.subspan(1)).tangents; };
  const Tensor d1 = x * x * Tensor(3.0), d2 = x * Tensor(6.0), eye = Tensor::eye(4);
  expect_close(grad(rows)(Tensors{x})[0], d1);
  expect_close(vmap(grad(f), Tensors{x})[0], d1);
  expect_close(grad(tangent)(Tensors{x})[0], d2 * v);
  expect_close(jvp(grad(f), Tensors{x}, Tensors{v}).tangents[0], d2 * v);
  expect_close(vmap(row_tangent, Tensors{x, v})[0], (d1 * v).sum(1));
  expect_close(jvp(rows, Tensors{x}, Tensors{v}).tangents[0], (d1 * v).sum());
  expect_close(jvp(tangent, Tensors{x}, Tensors{v}).tangents[0], (d2 * v * v).sum());
  expect_close(grad([&](Args a) { return Tensors{grad(f)(a)[0].sum()}; })(Tensors{x})[0], d2);
  for (const TensorFn& fn : {grad(f), rows, tangent, TensorFn([&](Args a) { return vmap(grad(f), a); })}) {
    TinyJit jit(fn);
    for (int i = 0; i < 4; ++i) {
      const Tensor y = (x + Tensor(0.1 * i)).clone().realize();
      expect_close(jit(Tensors{y})[0], fn(Tensors{y})[0]);
    }
    EXPECT_TRUE(jit.is_captured());
  }
  // A captured function inside a transform runs as the function that it wraps.
  TinyJit jit(f);
  for (int i = 0; i < 3; ++i) jit(Tensors{x});
  const TensorFn inner = [&](Args a) { return jit(a); };
  expect_close(grad(inner)(Tensors{x})[0], d1);
  expect_close(vmap(inner, Tensors{x})[0], (x * x * x).sum(1));
  expect_close(jvp(inner, Tensors{x}, Tensors{v}).tangents[0], (d1 * v).sum());
  EXPECT_TRUE(jit.is_captured());
}

TEST(Transform, PmapIsVmapOnSeveralDevices) {
  const std::vector<std::string> two{"CPU:0", "CPU:1"};
  const Tensor x = Tensor::arange(24).cast(DType::Float32).reshape({4, 3, 2}).realize(), w = Tensor::arange(2).cast(DType::Float32).realize();
  const TensorFn f = [](Args a) { return Tensors{(a[0] * a[1]).sum().square()}; };
  const VmapOptions o{.in_axes = {0, std::nullopt}};
  const Tensor out = pmap(f, Tensors{x, w}, two, o)[0];
  EXPECT_EQ(out.devices(), (std::vector<std::string>{"CPU", "CPU:1"}));
  EXPECT_EQ(out.to("CPU").to_vector<float>(), vmap(f, Tensors{x, w}, o)[0].to_vector<float>());
  EXPECT_EQ(pmap(grad(f), Tensors{x, w}, two, o)[1].to("CPU").to_vector<float>(), vmap(grad(f), Tensors{x, w}, o)[1].to_vector<float>());
  EXPECT_NE(error_of([&] { pmap(f, Tensors{Tensor::ones({3, 3, 2}).clone(), w}, two, o); }).find("[shard]"), std::string::npos);
}

}  // namespace
}  // namespace whit
