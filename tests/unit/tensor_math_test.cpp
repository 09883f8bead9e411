#include <algorithm>

#include "ir/build.h"
#include "tensor_checks.h"

namespace whit {
namespace {

const float kInf = INFINITY;

void expect_function(const char* name, Tensor (*fn)(const Tensor&), double (*want)(double), std::vector<double> at, double tolerance) {
  SCOPED_TRACE(name);
  std::vector<double> expected;
  for (double& v : at) {
    v = static_cast<float>(v);
    expected.push_back(want(v));
  }
  const IntList shape(static_cast<int64_t>(at.size()));
  expect_tensor(fn(Tensor::from(at, shape)), shape, expected, 1e-11);
  for (double& v : expected) v = static_cast<float>(v);
  expect_tensor(fn(Tensor::from(std::vector<float>(at.begin(), at.end()), shape)), shape, expected, tolerance);
}

#define WHIT_FN(method) #method, [](const Tensor& t) { return t.method(); }

TEST(TensorMath, FunctionsOverTheirRange) {
  const std::vector<double> wide = {-1e30, -90, -20, -3, -1, -0.5, -1e-3, -1e-8, 0, 1e-8, 1e-3, 0.5, 1, 3, 20, 90, 1e30};
  const std::vector<double> unit = {-1, -0.999, -0.5, -1e-4, 0, 1e-4, 0.5, 0.999, 1};
  const std::vector<double> moderate = {-80, -20, -3, -1, -0.5, -1e-3, 0, 1e-3, 0.5, 1, 3, 20, 80};
  expect_function(WHIT_FN(tanh), [](double x) { return std::tanh(x); }, wide, 1e-6);
  expect_function(WHIT_FN(erf), [](double x) { return std::erf(x); }, wide, 1e-6);
  expect_function(WHIT_FN(atan), [](double x) { return std::atan(x); }, wide, 1e-6);
  expect_function(WHIT_FN(asinh), [](double x) { return std::asinh(x); }, wide, 1e-6);
  expect_function(WHIT_FN(sigmoid), [](double x) { return 1 / (1 + std::exp(-x)); }, wide, 1e-6);
  expect_function(WHIT_FN(asin), [](double x) { return std::asin(x); }, unit, 1e-6);
  expect_function(WHIT_FN(acos), [](double x) { return std::acos(x); }, unit, 1e-6);
  expect_function(WHIT_FN(exp), [](double x) { return std::exp(x); }, moderate, 1e-5);
  expect_function(WHIT_FN(sinh), [](double x) { return std::sinh(x); }, moderate, 1e-5);
  expect_function(WHIT_FN(cosh), [](double x) { return std::cosh(x); }, moderate, 1e-5);
  expect_function(WHIT_FN(cos), [](double x) { return std::cos(x); }, moderate, 1e-6);
  expect_function(WHIT_FN(acosh), [](double x) { return std::acosh(x); }, {1, 1.001, 2, 100, 1e30}, 1e-6);
  expect_function(WHIT_FN(atanh), [](double x) { return std::atanh(x); }, {-0.999, -0.5, -1e-4, 0, 0.5, 0.999}, 1e-6);
  expect_function(WHIT_FN(log), [](double x) { return std::log(x); }, {1e-30, 0.5, 1, 2, 1e30}, 1e-6);
  expect_function(WHIT_FN(softplus), [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }, wide, 1e-6);
}

TEST(TensorMath, NanGoesThrough) {
  const Tensor x = f32({1, NAN, -2}, 3), n = f32({NAN}, 1);
  for (const Tensor& t : {n.relu(), n.sign(), n.abs(), n.clip(0, 1), n.maximum(0), n.minimum(0), n.relu6(), n.elu(), n.round(), n.floor(),
                          n.hardtanh(), n.tanh(), n.sigmoid(), n.leaky_relu(), x.max(), x.min()})
    EXPECT_TRUE(std::isnan(t.item()));
  EXPECT_EQ(x.argmax().item(), 1);
  EXPECT_EQ(x.argmin().item(), 1);
  expect_tensor(x.cummax().first, 3, {1, NAN, NAN});
  expect_tensor(x.sort().first, 3, {-2, 1, NAN});
  expect_tensor(n.le(n).cast(DType::Int32), 1, {0});
  expect_tensor(n.ge(1).cast(DType::Int32), 1, {0});
}

TEST(TensorMath, SignsAndHalves) {
  expect_tensor(f32({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5}, 6).round(), 6, {-2, -2, -0.0, 0, 2, 2});
  EXPECT_TRUE(std::signbit(f32({-0.4f}, 1).round().item()));
  EXPECT_TRUE(std::signbit(f32({-0.0f}, 1).floor().item()));
  EXPECT_FALSE(std::signbit(f32({-0.0f}, 1).abs().item()));
  EXPECT_FALSE(std::signbit(f32({-0.0f}, 1).relu().item()));
  expect_tensor(f32({3, -3}, 2).copysign(f32({-0.0f, 1}, 2)), 2, {-3, 3});
  expect_tensor(f32({-kInf, 0, kInf}, 3).isinf(true, false).cast(DType::Int32), 3, {0, 0, 1});
  expect_tensor(f32({kInf, -kInf}, 2).logaddexp(f32({kInf, -kInf}, 2)), 2, {kInf, -kInf});
}

TEST(TensorMath, Powers) {
  expect_tensor(f32({-2, 0, 3}, 3).pow(3), 3, {-8, 0, 27});
  expect_tensor(f32({2, 0}, 2).pow(-1), 2, {0.5, kInf});
  expect_tensor(f32({4, 9}, 2).pow(0.5), 2, {2, 3}, 1e-6);
  expect_tensor(f32({0, 2}, 2).pow(0), 2, {1, 1});
  expect_tensor(i32({3, -2}, 2).pow(3), 2, {27, -8});
  expect_tensor(Tensor(2).pow(f32({3, -1}, 2)), 2, {8, 0.5}, 1e-6);
}

TEST(TensorMath, Reductions) {
  const Tensor x = f32({1, 2, 3, 4, 5, 6}, {2, 3});
  expect_tensor(x.sum({0, 1}), {}, {21});
  expect_tensor(x.mean(1, true), {2, 1}, {2, 5});
  expect_tensor(x.var(1), 2, {1, 1});
  expect_tensor(x.std(1, false, 0), 2, {std::sqrt(2.0 / 3), std::sqrt(2.0 / 3)}, 1e-6);
  expect_tensor(x.prod(0), 3, {4, 10, 18});
  expect_tensor(x.sum(std::initializer_list<int64_t>{}), {2, 3}, {1, 2, 3, 4, 5, 6});
  expect_tensor(x.argmax(0), 3, {1, 1, 1});
  expect_tensor(f32({2, 5, 5}, 3).argmax(), {}, {1});
  expect_tensor(Tensor::zeros({0}).sum(), {}, {0});
  expect_tensor(Tensor::zeros({0}).max(), {}, {-kInf});
  expect_tensor(x.logsumexp(), {}, {6.456193316}, 1e-6);
  expect_tensor(f32({-kInf, -kInf}, 2).logsumexp(), {}, {-kInf});
  expect_tensor(f32({1000, 1000}, 2).softmax(), 2, {0.5, 0.5});
}

TEST(TensorMath, Scans) {
  const Tensor x = f32({3, 1, 4, 1, 5}, 5);
  expect_tensor(x.cumsum(), 5, {3, 4, 8, 9, 14});
  expect_tensor(x.cumprod(0), 5, {3, 3, 12, 12, 60});
  expect_tensor(x.cummax().second, 5, {0, 0, 2, 2, 4});
  expect_tensor(x.cummin().second, 5, {0, 1, 1, 1, 1});
  const Tensor ones = Tensor::ones({1500});
  EXPECT_EQ(ones.cumsum()[1499].item(), 1500);  // in blocks
  EXPECT_EQ(ones.cumsum()[700].item(), 701);
  for (const int64_t n : {32, 33, 48, 600}) {  // the same along every axis
    const Tensor y = (Tensor::arange(0, 3 * n, 1, DType::Int32) * 7919 % 31 - 15).reshape({3, n}).clone();
    for (const auto& scan :
         {+[](const Tensor& t, int64_t axis) { return t.cumsum(axis); }, +[](const Tensor& t, int64_t axis) { return t.cummax(axis).first; },
          +[](const Tensor& t, int64_t axis) { return t.cummax(axis).second; }}) {
      const std::vector<int64_t> rows = scan(y, 1).to_vector<int64_t>();
      EXPECT_EQ(scan(y.T().clone(), 0).T().to_vector<int64_t>(), rows);
      EXPECT_EQ(rows.back(), scan(y[2], 0)[-1].item());
    }
    std::vector<int64_t> sums = y.to_vector<int64_t>();
    for (int64_t k = 1; k < 3 * n; ++k)
      if (k % n != 0) sums[k] += sums[k - 1];
    EXPECT_EQ(y.cumsum(1).to_vector<int64_t>(), sums);
  }
}

TEST(TensorMath, Order) {
  const Tensor x = i32({3, 1, 2, 1}, 4);
  const auto [v, i] = x.sort();
  expect_tensor(v, 4, {1, 1, 2, 3});
  expect_tensor(i, 4, {1, 3, 2, 0});
  expect_tensor(x.sort(0, true).second, 4, {0, 2, 1, 3});
  expect_tensor(x.topk(2).first, 2, {3, 2});
  // A few of many are selected: those that a sort puts first, equal ones in their order, NaN last.
  const Tensor many = (Tensor::arange(0, 1200, 1, DType::Int32) * 7919 % 61 - 30).reshape({3, 400}).clone();
  Tensor floats = many.cast(DType::Float32);
  floats = many.eq(7).where(NAN, floats).contiguous();
  for (const Tensor& t : {many, floats, many.cast(DType::UInt8), many.cast(DType::Int64), many.cast(DType::Bool)})
    for (const bool largest : {true, false}) {
      const auto [values, places] = t.topk(9, 1, largest);
      const auto [all, order] = t.sort(1, largest);
      EXPECT_EQ(places.to_vector<int64_t>(), order.split({9, 391}, 1)[0].to_vector<int64_t>());
      EXPECT_EQ(t.T().topk(9, 0, largest).second.T().to_vector<int64_t>(), places.to_vector<int64_t>());
      expect_tensor(values, values.shape(), all.split({9, 391}, 1)[0].to_vector<double>());
    }
}

TEST(TensorMath, Contractions) {
  const Tensor a = f32({1, 2, 3, 4, 5, 6}, {2, 3}), b = f32({1, 0, 0, 1, 1, 1}, {3, 2});
  expect_tensor(a.matmul(b), {2, 2}, {4, 5, 10, 11});
  expect_tensor(a.matmul(f32({1, 1, 1}, 3)), 2, {6, 15});
  EXPECT_EQ(Tensor::ones({4, 1, 2, 3}).matmul(Tensor::ones({5, 3, 2})).shape().str(), "(4, 5, 2, 2)");
  EXPECT_EQ(Tensor::from<int8_t>({100, 100}).matmul(Tensor::from<int8_t>({100, 100}), DType::Int32).item(), 20000);
  expect_tensor(Tensor::einsum("ij,jk->ki", {a, b}), {2, 2}, {4, 10, 5, 11});
  expect_tensor(Tensor::einsum("ii", {f32({1, 2, 3, 4}, {2, 2})}), {}, {5});
  expect_tensor(Tensor::einsum("...i->...", {a}), 2, {6, 15});
  const auto [q, r] = f32({3, 1, 4, 2}, {2, 2}).qr();
  expect_tensor(q.matmul(r), {2, 2}, {3, 1, 4, 2}, 1e-5);
}

TEST(TensorRandom, Streams) {
  // Threefry2x32 with 20 rounds, key (0, 1337), counters 0..19 in two halves.
  const Tensor bits = Tensor::random_bits(Tensor::from<uint32_t>({0, 1337}), Tensor::from<uint64_t>({0}), 20);
  const std::vector<uint64_t> got = bits.to_vector<uint64_t>();
  EXPECT_EQ(got[0], 2221762175u);
  EXPECT_EQ(got[1], 1752107825u);
  EXPECT_EQ(got[10], 3544324138u);
  Tensor::manual_seed(7);
  const std::vector<double> a = Tensor::rand({6}).to_vector<double>(), b = Tensor::rand({6}).to_vector<double>();
  Tensor::manual_seed(7);
  EXPECT_EQ(Tensor::rand({6}).to_vector<double>(), a);
  EXPECT_EQ(Tensor::rand({6}).to_vector<double>(), b);
  EXPECT_NE(a, b);
  // Two draws that are realised together are those that would be realised apart.
  Tensor::manual_seed(7);
  const Tensor both[] = {Tensor::rand({6}), Tensor::rand({6})};
  Tensor::realize_all(both);
  EXPECT_EQ(both[0].to_vector<double>(), a);
  EXPECT_EQ(both[1].to_vector<double>(), b);
}

TEST(Hash, Keccak) {
  const Tensor abc = Tensor::from<uint8_t>({'a', 'b', 'c'});
  const std::vector<uint8_t> sha = abc.keccak().to_vector<uint8_t>(), shake = abc.keccak("shake_128").to_vector<uint8_t>();
  EXPECT_EQ(std::vector<uint8_t>(sha.begin(), sha.begin() + 4), (std::vector<uint8_t>{0x3a, 0x98, 0x5d, 0xa7}));
  EXPECT_EQ(shake.size(), 16u);
  EXPECT_EQ(std::vector<uint8_t>(shake.begin(), shake.begin() + 4), (std::vector<uint8_t>{0x58, 0x81, 0x09, 0x2d}));
  expect_error(ErrorKind::Key, "[keccak] 'md5'; expected", [&] { (void)abc.keccak("md5"); });
  expect_error(ErrorKind::Value, "[keccak] rate 7; expected", [&] { (void)abc.keccak(7, 6); });
}

// Long rows are sorted by the bits of a key, and scanned in blocks.
TEST(Order, LongRows) {
  constexpr int64_t n = 2500;
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<double>(i * 7919 % 101) - 50;
  values[5] = NAN, values[6] = INFINITY, values[7] = -INFINITY, values[8] = -0.0;
  const auto before = [](double a, double b) { return !std::isnan(a) && (std::isnan(b) || a < b); };
  for (const DType dt : {DType::Float64, DType::Float16, DType::Int8, DType::UInt64, DType::Bool})
    for (const bool descending : {false, true}) {
      std::vector<double> own = values;
      for (double& v : own)
        if (!is_float(dt)) v = std::isfinite(v) ? (dt == DType::Bool ? v > 0 : dt == DType::UInt64 ? v + 50 : v) : 0;
      std::vector<int32_t> want(n);
      for (int32_t i = 0; i < n; ++i) want[static_cast<size_t>(i)] = i;
      std::stable_sort(want.begin(), want.end(), [&](int32_t i, int32_t j) {
        const double a = own[static_cast<size_t>(i)], b = own[static_cast<size_t>(j)];
        return descending && !std::isnan(a) && !std::isnan(b) ? a > b : before(a, b);
      });
      const auto [v, index] = Tensor::from(own, n).cast(dt).sort(-1, descending);
      EXPECT_EQ(index.to_vector<int32_t>(), want) << name(dt) << " descending " << descending;
    }
  const Tensor x = Tensor::from(values, n), clean = x.isfinite().where(x, 0.0);
  expect_tensor(clean.cumsum()[n - 1], {}, {clean.sum().item()}, 1e-9);
  expect_tensor(clean.logcumsumexp()[n - 1], {}, {clean.logsumexp().item()}, 1e-9);
  const auto [most, at] = x.cummax();
  expect_tensor(most.get({Slice{0, 7}}), 7, {-50, -9, 32, 32, 32, NAN, NAN});
  EXPECT_EQ(at[n - 1].item_int(), 5);
}

TEST(Order, EmptySumsEnd) {
  EXPECT_EQ(Tensor::zeros({0, int64_t{1} << 40}).sum().item(), 0);
  EXPECT_EQ(Tensor::zeros({0, int64_t{1} << 40}).sum(0).shape(), Shape({int64_t{1} << 40}));
}

TEST(Order, ManyTensorsAreJoinedInGroups) {
  std::vector<Tensor> parts;
  std::vector<double> want;
  for (int i = 0; i < 300; ++i) {
    parts.push_back(f32({static_cast<float>(i)}, 1).realize());
    want.push_back(i);
  }
  expect_tensor(Tensor::cat(parts), 300, want);
  expect_tensor(Tensor::stack(parts, 1), {1, 300}, want);
}

#if defined(__x86_64__)
// Other code of the process may have told the CPU to flush subnormal numbers, and to round otherwise.
TEST(TensorMath, SubnormalNumbersAreKeptWhateverTheProcessHasSet) {
  const unsigned before = __builtin_ia32_stmxcsr();
  for (const char* device : {"CPU", "REF"})
    for (const int64_t n : {int64_t{3}, int64_t{1} << (device[0] == 'C' ? 21 : 5)}) {  // also enough for several threads
      const Tensor x = Tensor::full({n}, 1e-40, {.device = device, .dtype = DType::Float32}).realize();
      const Tensor z = (x * 2 + Tensor(1e-41)) * 0.5;
      __builtin_ia32_ldmxcsr(before | 0x8040 | 0x6000);
      const std::vector<float> y = z.to_vector<float>();
      const unsigned after = __builtin_ia32_stmxcsr();
      __builtin_ia32_ldmxcsr(before);
      EXPECT_EQ(after & 0xE040, 0xE040u);
      const float want = (1e-40f * 2 + 1e-41f) * 0.5f;
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [&](float v) { return v == want; })) << device << " " << n << ": " << y[0];
    }
}
#endif

// Lanes that nothing reads hold 0, for which some functions are not numbers.
TEST(TensorMath, LanesThatAreNotReadAreNotNumbers) {
  const Tensor x = Tensor::from(std::vector<float>{10.5, 7, 12, 2, 3.5, 0.25, 5, 0.5}, IntList{8}).realize();
  using F = UOp (*)(const UOp&);
  for (const F f : {F([](const UOp& u) { return alu(Op::Cmod, {u, u}); }), F([](const UOp& u) { return alu(Op::FloorMod, {u, u}); }),
                    F([](const UOp& u) { return alu(Op::Pow, {u, alu(Op::Neg, {u})}); }), F([](const UOp& u) { return alu(Op::Fdiv, {u, u}); }),
                    F([](const UOp& u) { return alu(Op::Log2, {u}); }), F([](const UOp& u) { return alu(Op::Sin, {u}); })}) {
    const UOp turned = reshape(flip(f(x.uop()), std::vector<int64_t>{0}), std::vector<int64_t>{2, 4});
    const auto sums = [](const UOp& u) { return Tensor(unwindow(u, 0, 10, 1, 2)).clone().to_vector<float>(); };
    EXPECT_EQ(sums(turned), sums(Tensor(turned).clone().realize().uop()));
  }
}

// A scalar in memory (shape ()) under a product: it has no last axis to ask for.
TEST(TensorMath, ProductsWithAScalarInMemory) {
  const Tensor t = Tensor::ones({1}).contiguous().realize().reshape(IntList{});
  for (const int64_t n : {1, 2, 4, 8}) {
    const Tensor x = Tensor::full({n, n}, 3.0).contiguous().realize(), w = Tensor::full({n, n}, 0.5).contiguous().realize();
    const std::vector<float> twice(static_cast<size_t>(n * n), 3.0F * static_cast<float>(n));
    EXPECT_EQ((x * (t + 1)).matmul(w).to_vector<float>(), twice);
    EXPECT_EQ(x.matmul(w * (t + 1)).to_vector<float>(), twice);
  }
}

}  // namespace
}  // namespace whit
