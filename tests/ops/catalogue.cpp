#include "ops/catalogue.h"

namespace whit::ops {
namespace {

using In = const std::vector<Tensor>&;
using Shapes = std::vector<Dims>;

// Indices 0..n-1 made from any input, so that a row needs no second kind of input.
Tensor indices(const Tensor& x, int64_t n) {
  return x.detach().cast(DType::Float32).abs().mul(7.0).cast(DType::Int32).mod(Tensor::constant_int(n, DType::Int32));
}

constexpr DType kBits[] = {DType::UInt8, DType::Int16, DType::Int32, DType::UInt64};  // by logarithm of the width

std::vector<Row> make() {
  std::vector<Row> rows;
  auto add = [&](Row r) { rows.push_back(std::move(r)); };
  const Shapes kOne = {{3, 37}};

  // ---- elementwise, unary
  struct Unary {
    const char* name;
    unsigned kinds;
    Tensor (*fn)(In);
    double low = -2, high = 2;
    bool gradient = true;
    double n_epsilons = 16;
  };
  const Unary unary[] = {
      {"neg", kNumber, [](In x) { return x[0].neg(); }},
      {"logical_not", kAny, [](In x) { return x[0].logical_not(); }, -2, 2, false},
      {"bitwise_not", kInt | kBool, [](In x) { return x[0].bitwise_not(); }, -9, 9, false},
      {"reciprocal", kFloat, [](In x) { return x[0].reciprocal(); }, 0.5, 3},
      {"trunc", kFloat, [](In x) { return x[0].trunc(); }, -5, 5},
      {"ceil", kFloat, [](In x) { return x[0].ceil(); }, -5, 5},
      {"floor", kFloat, [](In x) { return x[0].floor(); }, -5, 5},
      {"round", kFloat, [](In x) { return x[0].round(); }, -5, 5},
      {"sqrt", kFloat, [](In x) { return x[0].sqrt(); }, 0.1, 9},
      {"rsqrt", kFloat, [](In x) { return x[0].rsqrt(); }, 0.1, 9},
      {"square", kNumber, [](In x) { return x[0].square(); }},
      {"sign", kNumber, [](In x) { return x[0].sign(); }},
      {"abs", kNumber, [](In x) { return x[0].abs(); }},
      {"exp", kFloat, [](In x) { return x[0].exp(); }, -4, 4, true, 32},
      {"exp2", kFloat, [](In x) { return x[0].exp2(); }, -4, 4},
      {"log", kFloat, [](In x) { return x[0].log(); }, 0.1, 9},
      {"log2", kFloat, [](In x) { return x[0].log2(); }, 0.1, 9},
      {"log10", kFloat, [](In x) { return x[0].log10(); }, 0.1, 9},
      {"sin", kFloat, [](In x) { return x[0].sin(); }, -20, 20},
      {"cos", kFloat, [](In x) { return x[0].cos(); }, -20, 20, true, 64},
      {"tan", kFloat, [](In x) { return x[0].tan(); }, -1.4, 1.4, true, 4096},
      {"asin", kFloat, [](In x) { return x[0].asin(); }, -0.9, 0.9, true, 64},
      {"acos", kFloat, [](In x) { return x[0].acos(); }, -0.9, 0.9, true, 64},
      {"atan", kFloat, [](In x) { return x[0].atan(); }, -3, 3, true, 64},
      {"sinh", kFloat, [](In x) { return x[0].sinh(); }, -3, 3, true, 64},
      {"cosh", kFloat, [](In x) { return x[0].cosh(); }, -3, 3, true, 64},
      {"tanh", kFloat, [](In x) { return x[0].tanh(); }, -3, 3, true, 64},
      {"asinh", kFloat, [](In x) { return x[0].asinh(); }, 0.1, 3, true, 64},
      {"acosh", kFloat, [](In x) { return x[0].acosh(); }, 1.5, 4, true, 64},
      {"atanh", kFloat, [](In x) { return x[0].atanh(); }, -0.9, 0.9, true, 64},
      {"erf", kFloat, [](In x) { return x[0].erf(); }, -2, 2, true, 64},
      {"bitcast", kNumber,
       [](In x) { return x[0].bitcast(kBits[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(x[0].element_size())))]); }, -9, 9, false},
      {"nonzero", kAny, [](In x) { return x[0].nonzero(20, -1); }, -2, 2, false},
      {"to_half", kAny, [](In x) { return x[0].to_half(); }, -9, 9, false},
      {"to_float", kAny, [](In x) { return x[0].to_float(); }, -9, 9, false},
      {"to_int", kAny, [](In x) { return x[0].to_int(); }, -9, 9, false},
      {"to_bool", kAny, [](In x) { return x[0].to_bool(); }, -2, 2, false},
      {"isnan", kFloat, [](In x) { return x[0].isnan(); }, -2, 2, false},
      {"isinf", kFloat, [](In x) { return x[0].isinf(); }, -2, 2, false},
      {"isfinite", kFloat, [](In x) { return x[0].isfinite(); }, -2, 2, false},
      {"relu", kNumber, [](In x) { return x[0].relu(); }},
      {"relu6", kNumber, [](In x) { return x[0].relu6(); }, -3, 9},
      {"sigmoid", kFloat, [](In x) { return x[0].sigmoid(); }, -4, 4, true, 32},
      {"logsigmoid", kFloat, [](In x) { return x[0].logsigmoid(); }, -4, 4, true, 64},
      {"hardsigmoid", kFloat, [](In x) { return x[0].hardsigmoid(); }, -5, 5},
      {"hardswish", kFloat, [](In x) { return x[0].hardswish(); }, -5, 5},
      {"hardtanh", kNumber, [](In x) { return x[0].hardtanh(); }, -3, 3},
      {"leaky_relu", kFloat, [](In x) { return x[0].leaky_relu(); }},
      {"elu", kFloat, [](In x) { return x[0].elu(); }, -3, 3, true, 64},
      {"celu", kFloat, [](In x) { return x[0].celu(); }, -3, 3, true, 64},
      {"selu", kFloat, [](In x) { return x[0].selu(); }, -3, 3, true, 64},
      {"gelu", kFloat, [](In x) { return x[0].gelu(); }, -3, 3, true, 64},
      {"gelu_none", kFloat, [](In x) { return x[0].gelu("none"); }, -3, 3, true, 64},
      {"quick_gelu", kFloat, [](In x) { return x[0].quick_gelu(); }, -3, 3, true, 64},
      {"swish", kFloat, [](In x) { return x[0].swish(); }, -3, 3, true, 64},
      {"softplus", kFloat, [](In x) { return x[0].softplus(); }, -3, 3, true, 64},
      {"softsign", kFloat, [](In x) { return x[0].softsign(); }, -3, 3},
      {"mish", kFloat, [](In x) { return x[0].mish(); }, -3, 3, true, 128},
      {"clamp", kNumber, [](In x) { return x[0].clamp(Tensor(-1), Tensor(1)); }},
  };
  for (const Unary& u : unary) add({u.name, kOne, u.kinds, u.fn, u.low, u.high, u.gradient, u.n_epsilons, true});
  for (const Dims& shape : {Dims{}, Dims{1}, Dims{7}, Dims{2, 3, 5, 4}, Dims{64, 65}, Dims{1000}})
    add({"relu of " + Shape(shape).str(), {shape}, kNumber, [](In x) { return x[0].relu(); }});

  // ---- elementwise, binary
  struct Binary {
    const char* name;
    unsigned kinds;
    Tensor (*fn)(In);
    double low = -2, high = 2;
    bool gradient = true;
    double n_epsilons = 16;
  };
  const Binary binary[] = {
      {"add", kAny, [](In x) { return x[0] + x[1]; }},
      {"sub", kNumber, [](In x) { return x[0] - x[1]; }},
      {"mul", kAny, [](In x) { return x[0] * x[1]; }},
      {"div", kFloat, [](In x) { return x[0] / x[1]; }, 0.5, 4},
      {"div_int", kInt, [](In x) { return x[0] / x[1]; }, 1, 50, false},
      {"div_trunc", kInt, [](In x) { return x[0].div(x[1], "trunc"); }, -50, 50, false},
      {"div_floor", kInt, [](In x) { return x[0].div(x[1], "floor"); }, -50, 50, false},
      {"floordiv", kInt, [](In x) { return x[0].floordiv(x[1]); }, -50, 50, false},
      {"mod", kNumber, [](In x) { return x[0].mod(x[1]); }, -50, 50, false},
      {"fmod", kNumber, [](In x) { return x[0].fmod(x[1]); }, -50, 50, false},
      {"pow", kFloat, [](In x) { return x[0].pow(x[1]); }, 0.3, 3, true, 128},
      {"pow_int", kInt, [](In x) { return x[0].pow(x[1].abs()); }, -4, 5, false},
      {"maximum", kAny, [](In x) { return x[0].maximum(x[1]); }},
      {"minimum", kAny, [](In x) { return x[0].minimum(x[1]); }},
      {"bitwise_and", kInt | kBool, [](In x) { return x[0] & x[1]; }, -90, 90, false},
      {"bitwise_or", kInt | kBool, [](In x) { return x[0] | x[1]; }, -90, 90, false},
      {"bitwise_xor", kInt | kBool, [](In x) { return x[0] ^ x[1]; }, -90, 90, false},
      {"lshift", kInt, [](In x) { return x[0] << x[1].abs(); }, 0, 9, false},
      {"rshift", kInt, [](In x) { return x[0] >> x[1].abs(); }, 0, 9, false},
      {"lt", kAny, [](In x) { return x[0] < x[1]; }, -2, 2, false},
      {"gt", kAny, [](In x) { return x[0] > x[1]; }, -2, 2, false},
      {"le", kAny, [](In x) { return x[0] <= x[1]; }, -2, 2, false},
      {"ge", kAny, [](In x) { return x[0] >= x[1]; }, -2, 2, false},
      {"eq", kAny, [](In x) { return x[0] == x[1]; }, -2, 2, false},
      {"ne", kAny, [](In x) { return x[0] != x[1]; }, -2, 2, false},
      {"copysign", kFloat, [](In x) { return x[0].copysign(x[1]); }, -2, 2, false},
      {"isclose", kNumber, [](In x) { return x[0].isclose(x[1], {.rtol = 0.5}); }, -2, 2, false},
      {"allclose", kNumber, [](In x) { return x[0].allclose(x[1], {.rtol = 0.5}); }, -2, 2, false},
      {"threefry", kInt | kFloat, [](In x) { return x[0].cast(DType::UInt64).threefry(x[1].cast(DType::UInt64)); }, 0, 90, false},
      {"logaddexp", kFloat, [](In x) { return x[0].logaddexp(x[1]); }, -3, 3, true, 64},
      {"lerp", kFloat, [](In x) { return x[0].lerp(x[1], 0.3); }},
      {"where", kNumber, [](In x) { return (x[0] > 0).where(x[0], x[1]); }},
  };
  for (const Binary& b : binary) add({b.name, {{3, 37}, {3, 37}}, b.kinds, b.fn, b.low, b.high, b.gradient, b.n_epsilons, true});
  for (const Shapes& s : {Shapes{{4, 33}, {33}}, Shapes{{3, 1}, {1, 5}}, Shapes{{}, {6}}, Shapes{{2, 1, 4}, {3, 1}}})
    add({"add of " + Shape(s[0]).str() + " and " + Shape(s[1]).str(), s, kNumber, [](In x) { return x[0] * x[1] + x[1]; }});

  // ---- reductions
  const Dims kMat = {5, 33}, kCube = {4, 3, 10};
  add({"sum", {kMat}, kAny, [](In x) { return x[0].sum(); }, -2, 2, true, 128});
  add({"sum rows", {kMat}, kNumber, [](In x) { return x[0].sum(1); }, -2, 2, true, 64});
  add({"sum columns", {kMat}, kNumber, [](In x) { return x[0].sum(0, true); }, -2, 2, true, 64});
  add({"sum of two axes", {kCube}, kNumber, [](In x) { return x[0].sum({0, 2}); }, -2, 2, true, 128});
  add({"sum of many", {{3, 5000}}, kNumber, [](In x) { return x[0].sum(1); }, -2, 2, true, 4096});
  add({"prod", {{4, 7}}, kNumber, [](In x) { return x[0].prod(1); }, 0.5, 1.5, true, 64});
  add({"max", {kMat}, kAny, [](In x) { return x[0].max(1); }, -9, 9, true, 16, true});
  add({"min", {kMat}, kAny, [](In x) { return x[0].min(0); }, -9, 9, true, 16, true});
  add({"any", {kMat}, kAny, [](In x) { return x[0].any(1); }, -2, 2, false, 16, true});
  add({"all", {kMat}, kAny, [](In x) { return x[0].all(0); }, -2, 2, false, 16, true});
  add({"mean", {kMat}, kFloat, [](In x) { return x[0].mean(1); }, -2, 2, true, 64});
  add({"var", {kMat}, kFloat, [](In x) { return x[0].var(1); }, -2, 2, true, 128});
  add({"std", {kMat}, kFloat, [](In x) { return x[0].std(1); }, -2, 2, true, 128});
  add({"argmax", {kMat}, kNumber, [](In x) { return x[0].argmax(1); }, -50, 50, false, 16, true});
  add({"argmin", {kMat}, kNumber, [](In x) { return x[0].argmin(); }, -50, 50, false, 16, true});
  add({"logsumexp", {kMat}, kFloat, [](In x) { return x[0].logsumexp(1); }, -3, 3, true, 128});
  add({"softmax", {kMat}, kFloat, [](In x) { return x[0].softmax(); }, -3, 3, true, 128});
  add({"log_softmax", {kCube}, kFloat, [](In x) { return x[0].log_softmax(1); }, -3, 3, true, 128});
  add({"cumsum", {{3, 40}}, kNumber, [](In x) { return x[0].cumsum(1); }, -2, 2, true, 256});
  add({"cumprod", {{3, 9}}, kFloat, [](In x) { return x[0].cumprod(1); }, 0.5, 1.5, true, 128});
  add({"cummax", {{3, 9}}, kNumber, [](In x) { return x[0].cummax(1).first; }, -50, 50, false, 16, true});
  add({"sort", {{3, 13}}, kNumber, [](In x) { return x[0].sort().first; }, -50, 50, false, 16, true});
  add({"argsort", {{3, 13}}, kNumber, [](In x) { return x[0].argsort(); }, -50, 50, false, 16, true});
  add({"topk", {{3, 13}}, kNumber, [](In x) { return x[0].topk(4).first; }, -50, 50, false, 16, true});

  // ---- movement
  add({"reshape", {kCube}, kAny, [](In x) { return x[0].reshape({12, 10}).relu(); }});
  add({"permute", {kCube}, kAny, [](In x) { return x[0].permute({2, 0, 1}).contiguous(); }, -2, 2, true, 16, true});
  add({"expand", {{3, 1, 4}}, kNumber, [](In x) { return x[0].expand({3, 5, 4}) * 2; }});
  add({"pad", {kMat}, kNumber, [](In x) { return x[0].pad({1, 2, 3, 0}); }, -2, 2, true, 16, true});
  add({"pad reflect", {kMat}, kNumber, [](In x) { return x[0].pad({2, 3}, {.mode = "reflect"}); }});
  add({"pad replicate", {kMat}, kNumber, [](In x) { return x[0].pad({2, 3}, {.mode = "replicate"}); }});
  add({"flip", {kCube}, kNumber, [](In x) { return x[0].flip({0, 2}).contiguous(); }});
  add({"slice", {kMat}, kNumber, [](In x) { return x[0].get({Slice{1, 4}, Slice{30, 2, -3}}).contiguous(); }});
  add({"cat", {{3, 4}, {3, 7}}, kNumber, [](In x) { return Tensor::cat({x[0], x[1]}, 1); }});
  add({"stack", {{3, 4}, {3, 4}}, kNumber, [](In x) { return Tensor::stack({x[0], x[1]}, 1); }});
  add({"repeat", {{3, 4}}, kNumber, [](In x) { return x[0].repeat({2, 3}); }});
  add({"repeat_interleave", {{3, 4}}, kNumber, [](In x) { return x[0].repeat_interleave(3, 1); }});
  add({"roll", {{3, 9}}, kNumber, [](In x) { return x[0].roll(2, 1); }});
  add({"unfold", {{3, 12}}, kNumber, [](In x) { return x[0].unfold(1, 4, 2) * 2; }});
  add({"diagonal", {{5, 7}}, kNumber, [](In x) { return x[0].diagonal().contiguous(); }});
  add({"triu", {{5, 7}}, kNumber, [](In x) { return x[0].triu(1); }});
  add({"tril", {{5, 7}}, kNumber, [](In x) { return x[0].tril(); }});

  // ---- by index
  add({"index rows", {{9, 4}, {6}}, kNumber, [](In x) { return x[0][indices(x[1], 9)]; }});
  add({"index both", {{9, 4}, {6}}, kNumber, [](In x) { return x[0].get({indices(x[1], 9), indices(x[1] * 3, 4)}); }});
  add({"gather", {{3, 9}, {3, 5}}, kNumber, [](In x) { return x[0].gather(1, indices(x[1], 9)); }});
  add({"scatter", {{3, 9}, {3, 5}}, kNumber, [](In x) { return x[0].scatter(1, indices(x[1], 9), x[1]); }, -2, 2, false});
  add({"scatter_reduce", {{3, 9}, {3, 5}}, kNumber, [](In x) { return x[0].scatter_reduce(1, indices(x[1], 9), x[1], "sum"); }, -2, 2, true, 64});
  add({"masked_fill", {kMat}, kNumber, [](In x) { return x[0].masked_fill(x[0] < 0, 7); }});
  add({"one_hot", {{9}}, kNumber, [](In x) { return indices(x[0], 5).one_hot(5); }, -2, 2, false});

  // ---- linear algebra, networks
  add({"matmul 8x16x24", {{8, 16}, {16, 24}}, kNumber, [](In x) { return x[0].matmul(x[1]); }, -2, 2, true, 64});
  add({"matmul 33x65x17", {{33, 65}, {65, 17}}, kNumber, [](In x) { return x[0].matmul(x[1]); }, -2, 2, true, 128});
  add({"matmul 1x64x130", {{1, 64}, {64, 130}}, kNumber, [](In x) { return x[0].matmul(x[1]); }, -2, 2, true, 128});
  add({"matmul 130x96x1", {{130, 96}, {96, 1}}, kFloat, [](In x) { return x[0].matmul(x[1]); }, -2, 2, true, 128});
  add({"matmul of batches", {{3, 9, 20}, {3, 20, 11}}, kFloat, [](In x) { return x[0].matmul(x[1]); }, -2, 2, true, 64});
  add({"matmul transposed", {{24, 16}, {40, 16}}, kFloat, [](In x) { return x[0].matmul(x[1].T()); }, -2, 2, true, 64});
  add({"dot", {{50}, {50}}, kNumber, [](In x) { return x[0].dot(x[1]); }, -2, 2, true, 128});
  add({"broadcast matmul",
       {{12, 20}, {20, 8}},
       kFloat,
       [](In x) { return (x[0].reshape({12, 1, 20}) * x[1].T().reshape({1, 8, 20})).sum(2); },
       -2,
       2,
       true,
       64});
  add({"einsum", {{4, 6, 5}, {5, 3}}, kFloat, [](In x) { return Tensor::einsum("abc,cd->bd", {x[0], x[1]}); }, -2, 2, true, 64});
  add({"linear relu", {{7, 12}, {9, 12}, {9}}, kFloat, [](In x) { return x[0].linear(x[1].T(), x[2]).relu(); }, -2, 2, true, 64});
  add({"conv2d", {{2, 3, 9, 8}, {4, 3, 3, 3}}, kFloat, [](In x) { return x[0].conv2d(x[1]); }, -2, 2, true, 64});
  add({"conv2d padded", {{2, 3, 9, 8}, {4, 3, 3, 3}, {4}}, kFloat, [](In x) { return x[0].conv2d(x[1], x[2], {.padding = 1}); }, -2, 2, true, 64});
  add({"conv2d strided",
       {{2, 3, 9, 8}, {4, 3, 3, 3}},
       kFloat,
       [](In x) { return x[0].conv2d(x[1], {.stride = 2, .padding = {1, 0}}); },
       -2,
       2,
       true,
       64});
  add({"conv2d dilated", {{1, 2, 9, 9}, {3, 2, 3, 3}}, kFloat, [](In x) { return x[0].conv2d(x[1], {.dilation = 2}); }, -2, 2, true, 64});
  add({"conv2d grouped", {{2, 6, 7, 7}, {4, 3, 3, 3}}, kFloat, [](In x) { return x[0].conv2d(x[1], {.groups = 2}); }, -2, 2, true, 64});
  add({"conv2d 5x5", {{2, 1, 12, 12}, {8, 1, 5, 5}}, kFloat, [](In x) { return x[0].conv2d(x[1]); }, -2, 2, true, 64});
  add({"conv_transpose2d",
       {{1, 3, 4, 4}, {3, 2, 3, 3}},
       kFloat,
       [](In x) { return x[0].conv_transpose2d(x[1], {}, {.stride = 2}); },
       -2,
       2,
       true,
       64});
  add({"max_pool2d", {{2, 3, 8, 8}}, kNumber, [](In x) { return x[0].max_pool2d(); }, -90, 90, true, 16});
  add({"max_pool2d overlapping",
       {{1, 2, 9, 9}},
       kFloat,
       [](In x) { return x[0].max_pool2d({.kernel_size = 3, .stride = IntList(2), .padding = 1}); },
       -90,
       90});
  add({"avg_pool2d", {{2, 3, 8, 8}}, kFloat, [](In x) { return x[0].avg_pool2d({.padding = 1}); }});
  add({"layernorm", {{6, 40}}, kFloat, [](In x) { return x[0].layernorm(); }, -2, 2, true, 256});
  add({"batchnorm",
       {{4, 3, 5, 5}, {3}, {3}},
       kFloat,
       [](In x) {
         const Tensor mean = x[0].mean({0, 2, 3}), var = x[0].var({0, 2, 3}, false, 0);
         return x[0].batchnorm(x[1], x[2], mean, (var + 1e-5).rsqrt());
       },
       -2,
       2,
       true,
       256});
  add({"interpolate", {{1, 2, 5, 5}}, kFloat, [](In x) { return x[0].interpolate({8, 7}); }, -2, 2, true, 64});
  add({"cross entropy", {{6, 10}, {6}}, kFloat, [](In x) { return x[0].sparse_categorical_crossentropy(indices(x[1], 10)); }, -3, 3, true, 256});
  add({"binary cross entropy", {{20}, {20}}, kFloat, [](In x) { return x[0].binary_crossentropy_logits(x[1].sigmoid()); }, -3, 3, true, 256});
  add({"attention",
       {{1, 2, 6, 8}, {1, 2, 6, 8}, {1, 2, 6, 8}},
       kFloat,
       [](In x) { return x[0].scaled_dot_product_attention(x[1], x[2], {.is_causal = true}); },
       -1,
       1,
       true,
       256});

  add_gradient_rows(rows);

  // ---- dtype
  static constexpr DType kTargets[] = {DType::Bool,     DType::Int8,    DType::UInt8,   DType::Int16,   DType::UInt16,
                                       DType::Int32,    DType::UInt32,  DType::Int64,   DType::UInt64,  DType::Float16,
                                       DType::BFloat16, DType::Float32, DType::Float64, DType::Fp8E4M3, DType::Fp8E5M2};
  auto cast_row = [&]<size_t I>(std::integral_constant<size_t, I>) {
    add({"cast to " + std::string(name(kTargets[I])), {{4, 9}}, kAny, [](In x) { return x[0].cast(kTargets[I]); }, -90, 90, false, 16, true});
  };
  [&]<size_t... I>(std::index_sequence<I...>) {
    (cast_row(std::integral_constant<size_t, I>{}), ...);
  }(std::make_index_sequence<std::size(kTargets)>{});
  return rows;
}

}  // namespace

const std::vector<Row>& catalogue() {
  static const std::vector<Row> rows = make();
  return rows;
}

}  // namespace whit::ops
