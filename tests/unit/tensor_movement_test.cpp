#include "tensor_checks.h"

namespace whit {
namespace {

Tensor grid() { return Tensor::arange(0, 6, 1, DType::Float32).reshape({2, 3}).clone(); }

TEST(TensorMovement, Primitives) {
  const Tensor x = grid();
  expect_tensor(x.T(), {3, 2}, {0, 3, 1, 4, 2, 5});
  expect_tensor(x.reshape({-1, 2}), {3, 2}, {0, 1, 2, 3, 4, 5});
  expect_tensor(x.flip({0, 1}), {2, 3}, {5, 4, 3, 2, 1, 0});
  expect_tensor(x[0].expand({2, -1}), {2, 3}, {0, 1, 2, 0, 1, 2});
  expect_tensor(x.pad({1, 0, 0, 1}), {3, 4}, {0, 0, 1, 2, 0, 3, 4, 5, 0, 0, 0, 0});
  expect_tensor(x.pad({-1, 1}, {.value = 9}), {2, 3}, {1, 2, 9, 4, 5, 9});
  expect_tensor(x.pad({2, 1}, {.mode = "reflect"})[0], 6, {2, 1, 0, 1, 2, 1});
  expect_tensor(x.pad({2, 1}, {.mode = "replicate"})[0], 6, {0, 0, 0, 1, 2, 2});
  expect_tensor(x.pad({2, 1}, {.mode = "circular"})[0], 6, {1, 2, 0, 1, 2, 0});
}

TEST(TensorMovement, JoinAndSplit) {
  const Tensor x = grid();
  expect_tensor(Tensor::cat({x, x[0].unsqueeze(0)}), {3, 3}, {0, 1, 2, 3, 4, 5, 0, 1, 2});
  expect_tensor(Tensor::cat({x, x}, 1), {2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  expect_tensor(Tensor::stack({x[0], x[1]}, -1), {3, 2}, {0, 3, 1, 4, 2, 5});
  const auto parts = x.split(2, 1);
  ASSERT_EQ(parts.size(), 2u);
  expect_tensor(parts[1], {2, 1}, {2, 5});
  EXPECT_EQ(Tensor::arange(10).chunk(4).size(), 4u);
  // -0.0 and NaN survive: no addition of padded parts.
  const Tensor z = Tensor::cat({f32({-0.0f}, 1), f32({NAN, -0.0f}, 2)});
  EXPECT_TRUE(std::signbit(z.to_vector<double>()[0]));
  EXPECT_TRUE(std::isnan(z.to_vector<double>()[1]));
  EXPECT_TRUE(std::signbit(z.to_vector<double>()[2]));
}

TEST(TensorMovement, Composed) {
  const Tensor x = grid();
  expect_tensor(x.roll(1, IntList(1)), {2, 3}, {2, 0, 1, 5, 3, 4});
  expect_tensor(x.repeat({1, 2}), {2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  expect_tensor(x.repeat_interleave(2, 0)[1], 3, {0, 1, 2});
  expect_tensor(x.unfold(1, 2, 1), {2, 2, 2}, {0, 1, 1, 2, 3, 4, 4, 5});
  expect_tensor(x.diagonal(1), 2, {1, 5});
  expect_tensor(x.diagonal(-1), 1, {3});
  expect_tensor(x.tril(), {2, 3}, {0, 0, 0, 3, 4, 0});
  expect_tensor(x.triu(1), {2, 3}, {0, 1, 2, 0, 0, 5});
  expect_tensor(f32({1, 2}, 2).diag(), {2, 2}, {1, 0, 0, 2});
  const std::pair<std::string, int64_t> sizes[] = {{"d", 3}};
  expect_tensor(x.reshape({1, 6}).rearrange("b (c d) -> d b c", sizes), {3, 1, 2}, {0, 3, 1, 4, 2, 5});
  expect_tensor(x.rearrange("... c -> c (...)"), {3, 2}, {0, 3, 1, 4, 2, 5});
}

TEST(TensorIndexing, Basic) {
  const Tensor x = Tensor::arange(0, 24, 1).reshape({2, 3, 4}).clone();
  expect_tensor(x.get({1, -1, 2}), {}, {22});
  expect_tensor(x.get({0, Slice{2, {}, -2}, Slice{1, 3}}), {2, 2}, {9, 10, 1, 2});
  expect_tensor(x.get({Ellipsis, 0}), {2, 3}, {0, 4, 8, 12, 16, 20});
  EXPECT_EQ(x.get({NewAxis, 0, Ellipsis, NewAxis}).shape().str(), "(1, 3, 4, 1)");
  EXPECT_EQ((x[Slice{.start = 5}].shape().str()), "(0, 3, 4)");
  expect_tensor(x.get({0, 0, Slice{{}, {}, 3}}), 2, {0, 3});
}

TEST(TensorIndexing, ByTensors) {
  const Tensor x = Tensor::arange(0, 24, 1).reshape({2, 3, 4}).clone();
  expect_tensor(x.get({1, i32({2, -3}, 2), 0}), 2, {20, 12});
  expect_tensor(x.get({i32({0, 1}, 2), i32({1, 2}, 2)})[1], 4, {20, 21, 22, 23});
  EXPECT_EQ(x.get({i32({0}, 1), Slice{}, i32({1, 2}, 2)}).shape().str(), "(2, 3)");
  EXPECT_EQ(x.get({Slice{}, i32({0, 1, 2, 0}, {2, 2})}).shape().str(), "(2, 2, 2, 4)");
  expect_tensor(x.get({i32({0, 2, -3}, 3), 0, 0}), 3, {0, 0, 0});  // out of range reads 0
  expect_tensor(f32({1, 2, 3, 4}, {2, 2}).gather(1, i32({1, 0}, {2, 1})), {2, 1}, {2, 3});
}

TEST(TensorIndexing, ByMasks) {
  Tensor x = f32({1, -2, 3, -4}, {2, 2});
  expect_tensor(x[x.lt(0)], 2, {-2, -4});
  expect_tensor(x[f32({0, 1}, 2).gt(0)], {1, 2}, {3, -4});
  expect_tensor(x.get({0, f32({0, 1}, 2).gt(0)}), 1, {-2});
  x.set({x.lt(0)}, 0.0);
  expect_tensor(x, {2, 2}, {1, 0, 3, 0});
  x.set({x.gt(0)}, f32({7, 8}, 2));
  expect_tensor(x, {2, 2}, {7, 0, 8, 0});
}

TEST(TensorIndexing, Scatter) {
  const Tensor z = Tensor::zeros({3});
  const Tensor i = i32({1, 1, 2}, 3), v = f32({1, 2, 3}, 3);
  expect_tensor(z.scatter(0, i, v), 3, {0, 2, 3});
  expect_tensor(z.scatter_reduce(0, i, v, "sum"), 3, {0, 3, 3});
  expect_tensor((z + 5).scatter_reduce(0, i, v, "mean", false), 3, {5, 1.5, 3});
  expect_tensor((z + 5).scatter_reduce(0, i, v, "prod"), 3, {5, 10, 15});
  expect_tensor(z.scatter_reduce(0, i, v, "amax"), 3, {0, 2, 3});
  // An index that is spread over the last axes names rows; as numbers of its own it says the same.
  const Tensor base = Tensor::arange(0, 42, 1, DType::Float32).reshape({2, 7, 3}).clone(),
               src = (Tensor::arange(0, 54, 1, DType::Float32) + 50).reshape({2, 9, 3}).clone();
  const Tensor rows = i32({6, 0, -1, 3, 3, 7, 1, 0, 0, 2, 2, 2, 5, -9, 4, 1, 6, 6}, {2, 9, 1}).expand({2, 9, 3}), numbers = rows.clone();
  for (const char* reduce : {"sum", "mean", "prod", "amin"})
    for (const bool include_self : {true, false}) {
      const Tensor want = base.scatter_reduce(1, numbers, src, reduce, include_self);
      expect_tensor(base.scatter_reduce(1, rows, src, reduce, include_self), want.shape(), want.to_vector<double>());
    }
  expect_tensor(base.scatter(1, rows, src), base.shape(), base.scatter(1, numbers, src).to_vector<double>());
  expect_tensor(v.masked_select(v.gt(1)), 2, {2, 3});
  expect_tensor(f32({0, 3, 4, 0}, {2, 2}).nonzero(), {2, 2}, {0, 1, 1, 0});
}

}  // namespace
}  // namespace whit
