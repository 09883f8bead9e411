// The rest of the differentiable surface: rows whose gradients are compared with finite differences in float64, and
// whose values are compared in all float dtypes. Many names come several times, with the options that change the graph.
#include "ops/catalogue.h"

namespace whit::ops {
namespace {

using In = const std::vector<Tensor>&;
using Part = AxisPair;

struct Grad {
  const char* name;
  std::vector<Dims> shapes;
  Tensor (*fn)(In);
  double low = -2, high = 2;
  double n_epsilons = 256;
  bool gradient = true;
};

// Everything that a function with several results gives, as one tensor.
Tensor joined(const std::vector<Tensor>& all) {
  std::vector<Tensor> flat;
  for (const Tensor& t : all) flat.push_back(t.flatten());
  return Tensor::cat(flat);
}

Tensor places(const Tensor& x, int64_t n) {
  return x.detach().cast(DType::Float32).abs().mul(7.0).cast(DType::Int32).mod(Tensor::constant_int(n, DType::Int32));
}

Tensor rows_of(const std::vector<int32_t>& at, const Tensor& x) { return Tensor::from(at, static_cast<int64_t>(at.size()), {.device = x.device()}); }

// Different places in each row, so that no two writes meet.
Tensor columns(const Dims& shape, int64_t n, int64_t step) {
  const Tensor at = Tensor::arange(Shape(shape).numel()).reshape(IntList(shape)) * step;
  return at.mod(Tensor(n)).cast(DType::Int32);
}

Tensor written(const Tensor& x, std::initializer_list<Index> at, const Tensor& v) {
  Tensor y = x * 2;
  y.set(at, v);
  return y * y;
}

const Dims kMat = {4, 6}, kCube = {2, 3, 4}, kImage = {1, 2, 6, 5};

const Grad kRows[] = {
    // ---- state
    {"clone", {kMat}, [](In x) { return x[0].clone() * x[0]; }},
    {"contiguous", {kMat}, [](In x) { return x[0].contiguous().square(); }},
    {"contiguous_backward", {kMat}, [](In x) { return x[0].square().contiguous_backward() * 3; }},
    {"detach", {kMat}, [](In x) { return x[0] * x[0].sign().detach(); }, 0.5, 2},
    {"to", {kMat}, [](In x) { return x[0].to(*x[0].device()).square(); }},
    {"assign",
     {kMat, kMat},
     [](In x) {
       Tensor y = x[0] * 2;
       y.assign(y * x[1]);
       return y + x[0];
     }},
    {"cast", {kMat}, [](In x) { return x[0].cast(DType::Float64).square().cast(x[0].dtype()); }},
    // ---- movement
    {"view", {kMat}, [](In x) { return x[0].view({3, -1}).square(); }},
    {"shrink", {kMat}, [](In x) { return x[0].shrink(std::vector<Part>{Part({1, 3}), {}}).square(); }},
    {"shrink_to", {kMat}, [](In x) { return x[0].shrink_to(std::vector<std::optional<Sint>>{2, 5}).square(); }},
    {"pad_axes", {kMat}, [](In x) { return x[0].square().pad_axes(std::vector<Part>{Part({1, 0}), Part({0, 2})}); }},
    {"pad_to", {kMat}, [](In x) { return x[0].square().pad_to(std::vector<std::optional<Sint>>{5, 8}, 3); }},
    {"pad circular", {kMat}, [](In x) { return x[0].square().pad({2, 3}, {.mode = "circular"}); }},
    {"pad negative", {kMat}, [](In x) { return x[0].square().pad({-1, 2, 1, -2}); }},
    {"squeeze", {{3, 1, 4}}, [](In x) { return x[0].squeeze(1).square(); }},
    {"unsqueeze", {kMat}, [](In x) { return x[0].unsqueeze(1).square(); }},
    {"transpose", {kCube}, [](In x) { return x[0].transpose(0, 2).square(); }},
    {"T", {kMat}, [](In x) { return x[0].T() * x[0].reshape({6, 4}); }},
    {"flatten", {kCube}, [](In x) { return x[0].flatten(1).square(); }},
    {"unflatten", {kMat}, [](In x) { return x[0].unflatten(1, {2, 3}).square(); }},
    {"rearrange",
     {kMat},
     [](In x) {
       const std::pair<std::string, int64_t> sizes[] = {{"c", 2}};
       return x[0].rearrange("a (b c) -> c (a b)", sizes).square();
     }},
    {"split",
     {kMat},
     [](In x) {
       const auto s = x[0].split({2, 4}, 1);
       return joined({s[0] * 2, s[1].square()});
     }},
    {"chunk",
     {kMat},
     [](In x) {
       const auto s = x[0].chunk(3, 1);
       return s[0] * s[1] + s[2];
     }},
    {"meshgrid",
     {{3}, {4}},
     [](In x) {
       const auto g = Tensor::meshgrid(std::vector{x[0], x[1]});
       return g[0] * g[1].square();
     }},
    {"diag", {{5}}, [](In x) { return x[0].square().diag(); }},
    {"diagonal of a cube", {{3, 4, 3}}, [](In x) { return x[0].diagonal(1, 0, 2).square(); }},
    {"stack of three", {kMat, kMat}, [](In x) { return Tensor::stack({x[0], x[1], x[0] * x[1]}, -1); }},
    // ---- indexing
    {"get", {kCube}, [](In x) { return x[0].get({Slice{.step = -1}, NewAxis, Ellipsis, Slice{0, 4, 2}}).square(); }},
    {"get a row", {kCube}, [](In x) { return x[0].get({1}) * x[0].get({0}); }},
    {"get by two tensors", {kCube, {3}}, [](In x) { return x[0].get({places(x[1], 2), Slice{}, places(x[1] * 3, 4)}).square(); }},
    {"set", {kMat, {2, 3}}, [](In x) { return written(x[0], {Slice{1, 3}, Slice{0, 6, 2}}, x[1]); }},
    {"set a row", {kMat, {6}}, [](In x) { return written(x[0], {-1}, x[1]); }},
    {"set a number", {kMat}, [](In x) { return written(x[0], {Slice{.step = 2}}, x[0].sum()); }},
    {"set by a tensor", {kMat, {2, 6}}, [](In x) { return written(x[0], {rows_of({2, 0}, x[0])}, x[1] * x[1]); }},
    {"set by a tensor twice", {kMat, {3, 6}}, [](In x) { return written(x[0], {rows_of({2, 0, 2}, x[0])}, x[1]); }},
    {"set by a mask", {kMat}, [](In x) { return written(x[0], {x[0] < 0}, 3); }},
    {"set in memory",
     {kMat, {2, 6}},
     [](In x) {
       Tensor y = Tensor::zeros({4, 6}, {.device = x[0].device(), .dtype = x[0].dtype()}).contiguous();
       y.set({Slice{0, 2}}, x[1].square());
       return y * x[0];
     }},
    {"gather twice", {kMat, {4, 9}}, [](In x) { return x[0].gather(1, places(x[1], 6)).square(); }},
    {"scatter of new places", {kMat, {4, 3}}, [](In x) { return x[0].square().scatter(1, columns({4, 3}, 6, 1), x[1].square()); }},
    {"scatter twice", {kMat, {4, 3}}, [](In x) { return x[0].scatter(1, columns({4, 3}, 2, 1), x[1]).square(); }},
    {"scatter add", {kMat}, [](In x) { return x[0].scatter(1, columns({4, 3}, 2, 1), 1.5, "add").square(); }},
    {"scatter multiply", {kMat}, [](In x) { return x[0].scatter(1, columns({4, 3}, 2, 1), 1.5, "multiply").square(); }},
    {"scatter_reduce prod", {kMat, {4, 5}}, [](In x) { return x[0].scatter_reduce(1, columns({4, 5}, 3, 1), x[1], "prod"); }, 0.5, 2},
    {"scatter_reduce mean", {kMat, {4, 5}}, [](In x) { return x[0].scatter_reduce(1, columns({4, 5}, 3, 1), x[1], "mean", false).square(); }},
    {"scatter_reduce amax", {kMat, {4, 5}}, [](In x) { return x[0].scatter_reduce(1, columns({4, 5}, 3, 1), x[1], "amax").square(); }},
    {"scatter_reduce amin", {kMat, {4, 5}}, [](In x) { return x[0].scatter_reduce(1, columns({4, 5}, 3, 1), x[1], "amin", false).square(); }},
    {"masked_select", {kMat}, [](In x) { return x[0].square().masked_select(x[0] > 0, 20, 2.0); }},
    // ---- elementwise
    {"softplus of beta", {kMat}, [](In x) { return x[0].softplus(2.5); }},
    {"elu of alpha", {kMat}, [](In x) { return x[0].elu(0.7); }},
    {"celu of alpha", {kMat}, [](In x) { return x[0].celu(1.7); }},
    {"hardsigmoid of alpha", {kMat}, [](In x) { return x[0].hardsigmoid(0.3, 0.4); }},
    {"hardtanh of bounds", {kMat}, [](In x) { return x[0].hardtanh(-0.5, 0.7).square(); }},
    {"silu", {kMat}, [](In x) { return x[0].silu(); }},
    {"clip", {kMat}, [](In x) { return x[0].square().clip(0.5, {}); }},
    {"clamp by tensors", {kMat, kMat}, [](In x) { return x[0].clamp(x[1] - 1, x[1] + 1).square(); }},
    {"pow of a square", {kMat}, [](In x) { return x[0].pow(2); }},
    {"pow of a cube", {kMat}, [](In x) { return x[0].pow(3.0); }},
    {"pow of minus two", {kMat}, [](In x) { return x[0].pow(-2); }, 0.5, 2},
    {"pow of a root", {kMat}, [](In x) { return x[0].pow(0.5); }, 0.5, 2},
    {"pow of a number", {kMat}, [](In x) { return Tensor(1.7).pow(x[0]); }},
    {"pow of a negative base", {kMat}, [](In x) { return x[0].pow(x[0].detach().round()); }, -3, -1},
    {"div by itself", {kMat}, [](In x) { return x[0] / x[0].square().sum(1, true); }},
    {"mod of floats", {kMat, {6}}, [](In x) { return x[0].mod(x[1] + 3).square(); }},
    {"fmod of floats", {kMat, {6}}, [](In x) { return x[0].fmod(x[1] + 3).square(); }},
    {"floordiv of floats", {kMat, {6}}, [](In x) { return x[0].floordiv(x[1] + 3); }, -9, 9},
    {"div by trunc", {kMat, {6}}, [](In x) { return x[0].div(x[1] + 12, "trunc"); }, -9, 9},
    {"copysign by a tensor", {kMat, kMat}, [](In x) { return x[0].square().copysign(x[1]); }},
    {"lerp by a tensor", {kMat, kMat, kMat}, [](In x) { return x[0].lerp(x[1], x[2]); }},
    {"where of both", {kMat, kMat}, [](In x) { return (x[0] < x[1]).where(x[0].square(), x[1] * x[0]); }},
    {"maximum of a number", {kMat}, [](In x) { return x[0].square().maximum(1.3); }},
    // ---- reductions
    {"sum of squares", {kCube}, [](In x) { return x[0].square().sum({0, 2}, true) * x[0]; }},
    {"prod of all", {{7}}, [](In x) { return x[0].prod(); }, 0.5, 1.5},
    {"max of squares", {kMat}, [](In x) { return x[0].square().max(0, true) * x[0]; }},
    {"min of all", {kMat}, [](In x) { return x[0].square().min(); }},
    {"mean of two axes", {kCube}, [](In x) { return x[0].square().mean({0, 2}); }},
    {"var of all", {kCube}, [](In x) { return x[0].var({}, false, 0); }},
    {"std of rows", {kMat}, [](In x) { return x[0].std(1, true, 2) * x[0]; }},
    {"var_mean",
     {kMat},
     [](In x) {
       const auto p = x[0].var_mean(1);
       return p.first * p.second;
     }},
    {"std_mean",
     {kMat},
     [](In x) {
       const auto p = x[0].std_mean(0);
       return p.first * p.second;
     }},
    {"normalize", {kMat}, [](In x) { return x[0].normalize(); }, 0.2, 2},
    {"normalize of p 3", {kMat}, [](In x) { return x[0].normalize(3, 0); }, 0.2, 2},
    {"logsumexp of all", {kMat}, [](In x) { return x[0].logsumexp(); }},
    {"softmin", {kMat}, [](In x) { return x[0].softmin(0); }},
    {"softmax of an axis", {kCube}, [](In x) { return x[0].softmax(1); }},
    {"cumsum of squares", {kMat}, [](In x) { return x[0].square().cumsum(1).square(); }, -1, 1},
    {"cumprod of rows", {{3, 5}}, [](In x) { return x[0].cumprod(0); }, 0.5, 1.5},
    {"cummax of squares", {kMat}, [](In x) { return x[0].square().cummax(1).first; }},
    {"cummin", {kMat}, [](In x) { return x[0].cummin(0).first * x[0]; }},
    {"logcumsumexp", {kMat}, [](In x) { return x[0].logcumsumexp(1); }},
    {"sort of squares", {kMat}, [](In x) { return x[0].square().sort(1).first; }},
    {"sort descending", {{7}}, [](In x) { return x[0].sort(0, true).first * x[0]; }},
    {"topk of squares", {kMat}, [](In x) { return x[0].square().topk(3).first; }},
    // ---- linear algebra
    {"matmul of a vector", {{5}, {5, 4}}, [](In x) { return x[0].matmul(x[1]); }},
    {"matmul broadcast", {{2, 1, 3, 4}, {3, 4, 2}}, [](In x) { return x[0].matmul(x[1]); }},
    {"matmul by itself", {{4, 4}}, [](In x) { return x[0].matmul(x[0]).matmul(x[0].T()); }},
    {"dot of vectors", {{7}, {7}}, [](In x) { return x[0].dot(x[1]) * x[0]; }},
    {"einsum of three", {{3, 4}, {4, 2}, {3, 2}}, [](In x) { return Tensor::einsum("ij,jk,ik->ji", std::vector{x[0], x[1], x[2]}); }},
    {"einsum of a trace", {{4, 4}}, [](In x) { return Tensor::einsum("ii->i", {x[0]}).square(); }},
    {"qr",
     {{4, 3}},
     [](In x) {
       const auto p = x[0].qr();
       return joined({p.first, p.second});
     },
     -2,
     2,
     4096},
    {"svd", {{3, 3}}, [](In x) { return x[0].svd()[1]; }, -2, 2, 4096},
    {"newton_schulz",
     {{3, 4}},
     [](In x) {
       const double params[] = {2.0, -1.5, 0.5};
       return x[0].newton_schulz(2, params);
     }},
    // ---- networks
    {"linear", {{3, 4}, {4, 5}, {5}}, [](In x) { return x[0].linear(x[1], x[2]).square(); }},
    {"linear of a vector", {{3, 4}, {4}}, [](In x) { return x[0].linear(x[1]).square(); }},
    {"conv2d of one axis", {{2, 3, 9}, {4, 3, 3}}, [](In x) { return x[0].conv2d(x[1], {.stride = 2, .padding = 1}); }},
    {"conv2d of three axes", {{1, 2, 4, 4, 4}, {2, 2, 2, 3, 2}}, [](In x) { return x[0].conv2d(x[1]); }},
    {"conv2d uneven",
     {kImage, {2, 2, 3, 2}},
     [](In x) { return x[0].conv2d(x[1], {.stride = {2, 1}, .dilation = {1, 2}, .padding = {1, 0, 2, 1}}).square(); }},
    {"conv_transpose2d grouped",
     {{1, 4, 3, 3}, {4, 1, 3, 2}, {2}},
     [](In x) { return x[0].conv_transpose2d(x[1], x[2], {.groups = 2, .stride = 2, .padding = 1, .output_padding = 1}); }},
    {"conv_transpose2d of one axis", {{1, 2, 5}, {2, 3, 3}}, [](In x) { return x[0].conv_transpose2d(x[1], {}, {.dilation = 2}).square(); }},
    {"avg_pool2d",
     {kImage},
     [](In x) { return x[0].avg_pool2d({.stride = IntList(2), .padding = 1, .ceil_mode = true, .count_include_pad = false}).square(); }},
    {"max_pool2d with ceil", {kImage}, [](In x) { return x[0].max_pool2d({.kernel_size = 3, .stride = IntList(2), .ceil_mode = true}).square(); }},
    {"max_pool2d dilated", {kImage}, [](In x) { return x[0].max_pool2d({.stride = IntList(1), .dilation = 2}); }},
    {"max_pool2d_indices", {kImage}, [](In x) { return x[0].max_pool2d_indices().first.square(); }},
    {"max_unpool2d",
     {{1, 2, 4, 4}},
     [](In x) {
       const auto p = x[0].max_pool2d_indices();
       return p.first.square().max_unpool2d(p.second) + x[0];
     }},
    {"interpolate nearest", {kImage}, [](In x) { return x[0].interpolate({9, 5}, "nearest").square(); }},
    {"interpolate nearest-exact", {kImage}, [](In x) { return x[0].interpolate({4, 8}, "nearest-exact").square(); }},
    {"interpolate aligned", {kImage}, [](In x) { return x[0].interpolate({9, 3}, "linear", true).square(); }},
    {"layernorm of two axes", {{3, 4, 5}}, [](In x) { return x[0].layernorm({1, 2}); }},
    {"batchnorm without weight",
     {{4, 3, 2, 2}},
     [](In x) {
       const Tensor mean = x[0].mean({0, 2, 3}), var = x[0].var({0, 2, 3}, false, 0);
       return x[0].batchnorm({}, {}, mean, (var + 1e-5).rsqrt()).square();
     }},
    {"scaled_dot_product_attention",
     {{1, 2, 4, 3}, {1, 2, 5, 3}, {1, 2, 5, 3}},
     [](In x) {
       const Tensor mask = Tensor::arange(20).mod(Tensor(3)).cast(x[0].dtype()).reshape({4, 5});
       return x[0].scaled_dot_product_attention(x[1], x[2], {.attn_mask = &mask});
     }},
    {"scaled_dot_product_attention of groups",
     {{1, 4, 3, 2}, {1, 2, 3, 2}, {1, 2, 3, 2}},
     [](In x) { return x[0].scaled_dot_product_attention(x[1], x[2], {.is_causal = true, .enable_gqa = true}); }},
    {"sequential", {kMat}, [](In x) { return x[0].tanh().exp().sum(1); }},
    // ---- losses
    {"binary_crossentropy", {{9}, {9}}, [](In x) { return x[0].sigmoid().binary_crossentropy(x[1].sigmoid(), "none"); }},
    {"binary_crossentropy_logits", {{9}, {9}}, [](In x) { return x[0].binary_crossentropy_logits(x[1].sigmoid(), "sum", Tensor(2.5)); }},
    {"sparse_categorical_crossentropy", {{6, 5}, {6}}, [](In x) { return x[0].sparse_categorical_crossentropy(places(x[1], 5), 2, 0.1, "none"); }},
    {"cross_entropy", {{6, 5}, {6}}, [](In x) { return x[0].cross_entropy(places(x[1], 5), "mean", 0.2); }},
    {"cross_entropy of probabilities", {{6, 5}, {6, 5}}, [](In x) { return x[0].cross_entropy(x[1].softmax(1)); }},
    {"nll_loss", {{6, 5}, {6}, {5}}, [](In x) { return x[0].log_softmax(1).nll_loss(places(x[1], 5), x[2].square(), 3); }},
};

}  // namespace

void add_gradient_rows(std::vector<Row>& rows) {
  for (const Grad& g : kRows) rows.push_back({g.name, g.shapes, kFloat, g.fn, g.low, g.high, g.gradient, g.n_epsilons});
}

}  // namespace whit::ops
