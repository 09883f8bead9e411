// Symbolic sizes: Variables in shapes and slices, bound to a value for a run; one kernel for all values.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/realize.h"
#include "runtime/device.h"
#include "tensor_checks.h"
#include "whit/transform.h"
#include "whit/variable.h"

namespace whit {
namespace {

using Floats = std::vector<float>;

Tensor numbers(const IntList& shape) {
  Floats v(static_cast<size_t>(Shape(shape).numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 0.25F * static_cast<float>((i * 7) % 11) - 1;
  return Tensor::from(v, shape).realize();
}

Slice to(const Sint& end) { return Slice{{}, end}; }

std::vector<UOp> kernels_of(const Tensor& t) {
  const UOp root = t.uop();
  std::vector<UOp> out;
  for (const ScheduledCall& c : engine::schedule(std::span(&root, 1)).schedule->calls)
    if (c.kernel) out.push_back(c.kernel);
  return out;
}

// `symbolic` of bound sizes is `plain` of numbers, for all values, by the same kernels.
template <class Plain, class Symbolic> void expect_same(int64_t lo, int64_t hi, const Plain& plain, const Symbolic& symbolic) {
  const UOp v = variable("i", lo, hi);
  const std::vector<UOp> kernels = kernels_of(symbolic(bind(v, lo)));
  EXPECT_FALSE(kernels.empty());
  for (int64_t i = lo; i <= hi; ++i) {
    const std::vector<double> want = plain(i).template to_vector<double>();
    const Tensor t = symbolic(bind(v, i));
    EXPECT_EQ(kernels_of(t), kernels) << "value " << i;
    const std::vector<double> got = t.to_vector<double>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-5) << "value " << i << " element " << k;
  }
}

TEST(Symbolic, ReductionsOverASlice) {
  const Tensor a = numbers(8), b = numbers({3, 8});
  expect_same(1, 8, [&](int64_t i) { return a[to(i)].sum(); }, [&](const UOp& i) { return a[to(i)].sum(); });
  expect_same(1, 8, [&](int64_t i) { return a[to(i)].max(); }, [&](const UOp& i) { return a[to(i)].max(); });
  expect_same(1, 8, [&](int64_t i) { return a[to(i)].prod(); }, [&](const UOp& i) { return a[to(i)].prod(); });
  expect_same(2, 8, [&](int64_t i) { return a[to(i)].var(); }, [&](const UOp& i) { return a[to(i)].var(); });
  expect_same(1, 8, [&](int64_t i) { return b.get({Slice{}, to(i)}).mean(1); }, [&](const UOp& i) { return b.get({Slice{}, to(i)}).mean(1); });
  expect_same(1, 8, [&](int64_t i) { return a[to(i)].argmax(); }, [&](const UOp& i) { return a[to(i)].argmax(); });
}

TEST(Symbolic, PlacesAndSlices) {
  const Tensor a = numbers(8), b = numbers({8, 3});
  expect_same(0, 6, [&](int64_t i) { return a[Slice{i, i + 2}]; }, [&](const UOp& i) { return a[Slice{i, i + 2}]; });
  expect_same(0, 7, [&](int64_t i) { return b[i]; }, [&](const UOp& i) { return b[i]; });
  expect_same(0, 8, [&](int64_t i) { return a[Slice{i, {}}].sum(); }, [&](const UOp& i) { return a[Slice{i, {}}].sum(); });
  const Tensor t = a[Slice{bind(variable("i", 0, 6), 2), {}}];
  EXPECT_EQ(t.shape().str(), "((i*-1)+8,)");
  expect_tensor(t[Slice{1, 3}], 2, {a.to_vector<double>()[3], a.to_vector<double>()[4]});
}

// Several sizes at once: x of shape (i, j).
TEST(Symbolic, Movement) {
  const Tensor a = numbers({6, 5});
  const UOp vi = variable("i", 1, 6), vj = variable("j", 1, 5);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{2, 3}, {6, 5}, {1, 4}, {3, 3}}) {
    const UOp i = bind(vi, m), j = bind(vj, n);
    const Tensor s = a.get({to(i), to(j)}), p = a.get({to(m), to(n)});
    EXPECT_EQ(s.shape().str(), "(i, j)");
    EXPECT_EQ(s.transpose().shape().str(), "(j, i)");
    EXPECT_EQ(s.flatten().shape().str(), "(i*j,)");
    EXPECT_EQ(s.unsqueeze(1).expand({i, 2, j}).shape().str(), "(i, 2, j)");
    EXPECT_EQ(s.pad({1, 2}).shape().str(), "(i, j+3)");
    EXPECT_EQ(Tensor::cat({s, s}, 0).shape().str(), "(i*2, j)");
    const auto same = [](const Tensor& x, const Tensor& y) {
      expect_tensor(x, Shape(std::span<const int64_t>(x.shape())), y.to_vector<double>(), 1e-5);
    };
    same(s.square().sum({0, 1}), p.square().sum({0, 1}));
    same(s.transpose().pad_to({{5, 6}}), p.transpose().pad_to({{5, 6}}));
    same(s.flatten().pad_to({{30}}), p.flatten().pad_to({{30}}));
    same(s.reshape({-1, 1}).pad_to({{30, 1}}), p.reshape({-1, 1}).pad_to({{30, 1}}));
    same(s.pad({1, 2}, {.value = 3}).pad_to({{6, 8}}), p.pad({1, 2}, {.value = 3}).pad_to({{6, 8}}));
    same(Tensor::cat({s, a.get({Slice{}, to(j)}), s}, 0).pad_to({{18, 5}}), Tensor::cat({p, a.get({Slice{}, to(n)}), p}, 0).pad_to({{18, 5}}));
    same(s.flip({1}).pad_to({{6, 5}}), p.flip({1}).pad_to({{6, 5}}));
    same(s.cumsum(0).pad_to({{6, 5}}), p.cumsum(0).pad_to({{6, 5}}));
    same((s + Tensor::arange(j)).pad_to({{6, 5}}), (p + Tensor::arange(n)).pad_to({{6, 5}}));
    same(s.gt(0).where(s, Tensor::zeros({i, j})).pad_to({{6, 5}}), p.relu().pad_to({{6, 5}}));
    same(s.unsqueeze(1).expand({i, 2, j}).sum(1).pad_to({{6, 5}}), (p * 2).pad_to({{6, 5}}));
  }
}

TEST(Symbolic, Contractions) {
  const Tensor a = numbers({3, 8}), b = numbers({8, 2}), q = numbers({2, 4}), k = numbers({8, 4});
  expect_same(
      1, 8, [&](int64_t i) { return a.get({Slice{}, to(i)}).matmul(b[to(i)]); },
      [&](const UOp& i) { return a.get({Slice{}, to(i)}).matmul(b[to(i)]); });
  expect_same(
      1, 8, [&](int64_t i) { return q.scaled_dot_product_attention(k[to(i)], k[to(i)] * 2); },
      [&](const UOp& i) { return q.scaled_dot_product_attention(k[to(i)], k[to(i)] * 2); });
  expect_same(
      1, 8, [&](int64_t i) { return k[to(i)].matmul(q.transpose()).softmax(-1).pad_to({{8, 2}}); },
      [&](const UOp& i) { return k[to(i)].matmul(q.transpose()).softmax(-1).pad_to({{8, 2}}); });
  const Tensor x = numbers({4, 2, 5, 5}), w = numbers({3, 2, 3, 3});
  expect_same(
      1, 4, [&](int64_t i) { return x[to(i)].conv2d(w, {.padding = 1}).relu().max_pool2d().sum(0); },
      [&](const UOp& i) { return x[to(i)].conv2d(w, {.padding = 1}).relu().max_pool2d().sum(0); });
}

TEST(Symbolic, Gradients) {
  const Tensor a = numbers({8, 4}), w = numbers({4, 3});
  expect_same(
      1, 8, [&](int64_t i) { return a[to(i)].matmul(w).tanh().sum().gradient({w})[0]; },
      [&](const UOp& i) { return a[to(i)].matmul(w).tanh().sum().gradient({w})[0]; });
  expect_same(
      1, 8, [&](int64_t i) { return a[to(i)].softmax(0).square().sum().gradient({a})[0]; },
      [&](const UOp& i) { return a[to(i)].softmax(0).square().sum().gradient({a})[0]; });
  const Tensor scale = Tensor::from<float>({2}, {1}).realize();
  expect_same(
      1, 8, [&](int64_t i) { return (a[to(i)] * scale.reshape(Dims())).square().mean().gradient({scale})[0]; },
      [&](const UOp& i) { return (a[to(i)] * scale.reshape(Dims())).square().mean().gradient({scale})[0]; });
}

TEST(Symbolic, StoresAndRealisedParts) {
  const UOp v = variable("i", 0, 6);
  const Tensor plain = numbers(8);
  for (int64_t i = 0; i <= 6; i += 3) {
    Tensor a = plain.clone().realize();
    a[Slice{bind(v, i), bind(v, i) + 2}].assign(Tensor::from<float>({70, 71})).realize();
    std::vector<double> want = plain.to_vector<double>();
    want[static_cast<size_t>(i)] = 70;
    want[static_cast<size_t>(i) + 1] = 71;
    expect_tensor(a, 8, want);
    // Only what counts is written.
    a[to(bind(v, i))].assign(plain[to(bind(v, i))] * 0 + 5).realize();
    for (size_t k = 0; k < static_cast<size_t>(i); ++k) want[k] = 5;
    expect_tensor(a, 8, want);
  }
  // A realised value of symbolic shape is memory for the most, and may be used on.
  const UOp three = bind(v, 3);
  Tensor part = (plain[to(three)] * 2).realize();
  EXPECT_EQ(part.shape().str(), "(i,)");
  EXPECT_EQ((part + plain[to(three)]).sum().item(), (plain[to(3)] * 3).sum().item());
  expect_tensor(part[to(2)], 2, (plain[to(2)] * 2).to_vector<double>());
  const Tensor empty = Tensor::empty({three, 2});
  EXPECT_EQ(empty.shape().str(), "(i, 2)");
  EXPECT_EQ(empty.numel(), 12);
}

TEST(Symbolic, ValuesOfVariables) {
  const UOp i = bind(variable("i", 1, 8), 5);
  EXPECT_EQ(Tensor(i).item(), 5);
  EXPECT_EQ((Tensor::from<float>({1, 2}) + Tensor(i)).to_vector<double>(), (std::vector<double>{6, 7}));
  EXPECT_EQ(Tensor(i * 2 + 1).item(), 11);
}

TEST(Symbolic, Errors) {
  const UOp v = variable("i", 1, 8), i = bind(v, 3);
  const Tensor a = numbers(8), s = a[to(i)];
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { bind(v, 9); }), "[bind] 9 is out of the range 1..8 of 'i'");
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { bind(i, 3); }), "[bind] a BIND; expected a Variable without a value");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { variable("i", 3, 1); }), "[Variable] i: the least value 3 is above the largest 1");
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { s.to_vector<float>(); }), "[data] shape (i,) is symbolic; shrink it to numbers first");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { s[to(4)]; }), "[shrink] [0, 4) is no part of axis 0 of shape (i,)");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { a[to(bind(variable("j", 1, 9), 9))]; }), "[shrink] [0, j) is no part of axis 0 of shape (8,)");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { a[Slice{0, i, 2}]; }), "[getitem] a slice of symbolic size with step 2; expected 1");
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { s + a[to(bind(variable("j", 1, 8), 3))]; }), "[add] shapes (i,) and (j,) do not broadcast: j against i");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { (s.sum() + a[to(bind(v, 4))].sum()).realize(); }), "[realize] bind mismatch: 'i' is 3 and 4");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { a[to(v)].sum().realize(); }), "[realize] variable i has no value");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { Tensor::rand({i}); }), "a size of (i,) is symbolic; expected numbers");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { s.reshape(3); }), "[reshape] i elements of shape (i,) do not fit (3,)");
}

TEST(Symbolic, Jit) {
  const UOp v = variable("i", 1, 8);
  const Tensor a = numbers(8);
  int calls = 0;
  TinyJit f([&](std::span<const Tensor> in) {
    ++calls;
    return std::vector{in[0][to(in[1].uop())].sum().realize()};
  });
  for (int64_t i = 1; i <= 8; ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(f({a, Tensor(bind(v, i))})[0].item()), static_cast<float>(a[to(i)].sum().item()));
  }
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(error_of(ErrorKind::Jit, [&] { f({a}); }), "[jit] the variable 'i' from 1 to 8 is not among the inputs; it was when captured");
  // Inputs and results whose shapes hold variables.
  TinyJit g([&](std::span<const Tensor> in) { return std::vector{(in[0] * 2).realize()}; });
  for (int64_t i = 1; i <= 8; ++i) {
    const Tensor part = (a[to(bind(v, i))] + 1).realize();
    const Tensor out = g({part})[0];
    EXPECT_EQ(out.shape().str(), "(i,)");
    expect_tensor(out[to(i)], i, ((a[to(i)] + 1) * 2).to_vector<double>());
  }
}

// Keys and values of a decoder, one position a call.
TEST(Symbolic, CacheInAJit) {
  const UOp v = variable("at", 0, 7);
  Tensor cache = Tensor::zeros({2, 8}).realize();
  TinyJit f([&](std::span<const Tensor> in) {
    const UOp at = in[1].uop();
    cache.get({Slice{}, Slice{at, at + 1}}).assign(in[0]).realize();
    return std::vector{cache.get({Slice{}, to(at + 1)}).sum(1).realize()};
  });
  std::vector<double> want{0, 0};
  for (int64_t k = 0; k < 8; ++k) {
    const Tensor x = (numbers({2, 1}) + k).realize();
    const std::vector<double> now = x.to_vector<double>();
    for (size_t r = 0; r < 2; ++r) want[r] += now[r];
    expect_tensor(f({x, Tensor(bind(v, k))})[0], 2, want, 1e-5);
  }
  EXPECT_EQ(f.cnt(), 8);
}

TEST(Symbolic, SeveralDevices) {
  const std::string kind = default_device().substr(0, default_device().find(':'));
  const Tensor a = numbers({4, 8}), cut = a.shard({kind, kind + ":1"}, 0).realize();
  expect_same(
      1, 8, [&](int64_t i) { return (a.get({Slice{}, to(i)}) * i).sum(1); },
      [&](const UOp& i) { return (cut.get({Slice{}, to(i)}) * Tensor(i)).sum(1).to(kind); });
  expect_same(1, 4, [&](int64_t i) { return a[to(i)].exp().sum(0); }, [&](const UOp& i) { return cut[to(i)].exp().sum(0).to(kind); });
  expect_same(
      0, 3, [&](int64_t i) { return a.pad_axes(std::vector<AxisPair>{std::pair<Sint, Sint>(i, 3 - i), {}}) + 1; },
      [&](const UOp& i) {
        const UOp rest = i * -1 + 3;
        return (cut.pad_axes(std::vector<AxisPair>{std::pair<Sint, Sint>(i, rest), {}}) + 1)
            .to(kind)
            .shrink_to(std::vector<std::optional<Sint>>{7, {}});
      });
  Tensor cache = Tensor::zeros({4, 8}).shard({kind, kind + ":1"}, 0).realize();
  std::vector<double> want(32, 0.0);
  for (int64_t i = 1; i <= 8; i += 3) {
    cache.get({Slice{}, to(bind(variable("i", 1, 8), i))}).assign(Tensor(static_cast<double>(i)));
    for (size_t k = 0; k < 32; ++k)
      if (static_cast<int64_t>(k % 8) < i) want[k] = static_cast<double>(i);
    expect_tensor(cache.to(kind), {4, 8}, want);
  }
  expect_error(ErrorKind::NotImplemented, "SHARD over axis 0 of shape (i, 8), whose size is symbolic",
               [&] { (void)a[to(bind(variable("i", 1, 4), 2))].shard({kind, kind + ":1"}, 0); });
}

TEST(Symbolic, Transforms) {
  const Tensor a = numbers({3, 8}), w = numbers({5, 8});
  const auto gradients = [&](auto i) {
    const TensorFn f = [&, i](std::span<const Tensor> x) {
      return std::vector{(w.get({Slice{}, to(i)}) * x[0][to(i)] * x[0].sum()).sum(1).pad_to(std::vector<std::optional<Sint>>{6})};
    };
    const Tensor y = vmap(f, std::vector{a})[0];
    const TensorFn loss = [&](std::span<const Tensor> x) { return std::vector{f(x)[0].square().sum()}; };
    return Tensor::cat({y.flatten(), vmap(grad(loss), std::vector{a})[0].flatten()});
  };
  expect_same(1, 8, [&](int64_t i) { return gradients(i); }, [&](const UOp& i) { return gradients(i); });
  expect_error(ErrorKind::NotImplemented, "a transform of a function with a value of shape (3, i)", [&] {
    (void)vmap([](std::span<const Tensor> x) { return std::vector{x[0] * 2}; }, std::vector{a.get({Slice{}, to(bind(variable("i", 1, 8), 2))})});
  });
}

}  // namespace
}  // namespace whit
