#include "base/flags.h"
#include "ir/uop.h"
#include "tensor_checks.h"
#include "whit/jit.h"

namespace whit {
namespace {

TEST(TensorBasics, ScalarsAreWeakConstants) {
  EXPECT_EQ(Tensor(3).dtype(), DType::WeakInt);
  EXPECT_EQ(Tensor(2.5).dtype(), DType::WeakFloat);
  EXPECT_EQ(Tensor(2.5f).dtype(), DType::WeakFloat);
  EXPECT_EQ(Tensor(true).dtype(), DType::Bool);
  EXPECT_EQ(Tensor(uint64_t{1} << 63).dtype(), DType::UInt64);
  EXPECT_FALSE(Tensor(3).device().has_value());
  EXPECT_EQ(Tensor(3).item(), 3);
}

TEST(TensorBasics, PromotionFollowsTheLattice) {
  const Tensor h = Tensor::from<float>({1, 2}).cast(DType::Float16);
  EXPECT_EQ((h + 2.5).dtype(), DType::Float16);
  EXPECT_EQ((i32({1, 2}, 2) + 2).dtype(), DType::Int32);
  EXPECT_EQ((i32({1, 2}, 2) + 2.5).dtype(), DType::WeakFloat);
  EXPECT_EQ((i32({1, 2}, 2) / 2).dtype(), DType::Float32);
  EXPECT_EQ((Tensor::from<int8_t>({1}) + Tensor::from<uint8_t>({1})).dtype(), DType::Int16);
  EXPECT_EQ((Tensor::from<uint64_t>({1}) + Tensor::from<int64_t>({1})).dtype(), DType::WeakFloat);
  EXPECT_EQ((i32({1, 2}, 2).sigmoid()).dtype(), DType::WeakFloat);
  EXPECT_EQ((i32({1, 2}, 2).exp()).dtype(), DType::Float32);
}

TEST(TensorBasics, SumsAccumulateWider) {
  EXPECT_EQ(Tensor::from<int8_t>({100, 100}).sum().dtype(), DType::Int32);
  EXPECT_EQ(Tensor::from<int8_t>({100, 100}).sum().item(), 200);
  EXPECT_EQ(Tensor::from<uint8_t>({100, 100}).sum().dtype(), DType::UInt32);
  const Tensor h = Tensor::full({4096}, 1.0, {.dtype = DType::Float16});
  EXPECT_EQ(h.sum().dtype(), DType::Float16);
  EXPECT_EQ(h.sum().item(), 4096);  // float16 itself stops counting at 2048
}

TEST(TensorBasics, BroadcastsAndReads) {
  expect_tensor(f32({1, 2, 3}, {3, 1}) + f32({10, 20}, 2), {3, 2}, {11, 21, 12, 22, 13, 23});
  expect_tensor(Tensor(5) - i32({1, 2}, 2), 2, {4, 3});
  EXPECT_EQ(i32({-7}, 1).floordiv(2).item(), -4);
  EXPECT_EQ(i32({-7}, 1).mod(3).item(), 2);
  EXPECT_EQ(i32({-7}, 1).fmod(3).item(), -1);
  EXPECT_EQ(f32({1, 2}, 2).nbytes(), 8);
  EXPECT_EQ(f32({1, 2}, 2).repr(), "<Tensor <UOp CPU (2,) dtypes.float> on CPU with grad None>");
}

TEST(TensorBasics, Creation) {
  expect_tensor(Tensor::arange(2, 9, 3), 3, {2, 5, 8});
  expect_tensor(Tensor::arange(-1, -6, -2), 3, {-1, -3, -5});
  EXPECT_EQ(Tensor::arange(int64_t{1} << 31, (int64_t{1} << 31) + 1).dtype(), DType::Int64);
  expect_tensor(Tensor::linspace(0, 1, 5), 5, {0, 0.25, 0.5, 0.75, 1});
  expect_tensor(Tensor::eye(2, 3), {2, 3}, {1, 0, 0, 0, 1, 0});
  expect_tensor(Tensor::full({2}, 7), 2, {7, 7});
  EXPECT_EQ(Tensor::full({2}, 7).dtype(), DType::Int32);
  EXPECT_EQ(Tensor::full({2}, 7, {.buffer = false}).dtype(), DType::WeakInt);
  expect_tensor(i32({2, 0}, 2).one_hot(3), {2, 3}, {0, 0, 1, 1, 0, 0});
  expect_tensor(Tensor::zeros({0, 3}), {0, 3}, {});
}

TEST(TensorBasics, BuildingRunsNothing) {
  const FlagScope none("ALLOW_DEVICE_USAGE", int64_t{0});
  const Tensor x = Tensor::from<float>({1, 2, 3});
  const Tensor y = (x * 2).softmax().sum() + Tensor::rand({3}).sum();
  y.backward();
  EXPECT_FALSE(y.is_realized());
  EXPECT_TRUE(x.grad().defined());
}

// ---- state

TEST(TensorState, ViewsSeeWrites) {
  const Tensor x = f32({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor row = x[1], column = x.T()[0];
  row.assign(Tensor::from<float>({7, 8, 9}));
  expect_tensor(x, {2, 3}, {1, 2, 3, 7, 8, 9});
  column += 10;
  expect_tensor(x, {2, 3}, {11, 2, 3, 17, 8, 9});
  expect_tensor(row, 3, {17, 8, 9});
}

TEST(TensorState, ValuesKeepWhatTheyRead) {
  Tensor x = f32({1, 2}, 2);
  const Tensor before = x * 10;
  x += 1;
  const Tensor after = x * 10;
  x.realize();
  expect_tensor(before, 2, {10, 20});
  expect_tensor(after, 2, {20, 30});
}

// A view of a value that was realised afterwards reads the memory that the same run writes.
TEST(TensorState, ValuesKeepWhatTheyReadWhenTheyAreRealisedWithTheStore) {
  const Tensor x = f32({1, 2, 3, 4}, 4);
  for (const bool value_first : {true, false}) {
    Tensor y = x * 2;
    Tensor v = y.reshape({2, 2});
    y.realize();
    y.assign(y + 100);
    Tensor::realize_all(value_first ? std::vector{v, y} : std::vector{y, v});
    expect_tensor(v, {2, 2}, {2, 4, 6, 8});
    expect_tensor(y, 4, {102, 104, 106, 108});
  }
}

// A value that is a view of memory has memory of its own once it is realised; a store through the same view does not go
// there.
TEST(TensorState, StoresGoThroughAViewWhoseOldContentWasRealised) {
  const Tensor x = f32({1, 2, 3}, 3);
  Tensor view = x.flip({0});
  Tensor value = view * 2;
  value.assign(view);
  view.assign(view + 10);
  value.realize();
  expect_tensor(x, 3, {11, 12, 13});
  expect_tensor(view, 3, {13, 12, 11});
  expect_tensor(value, 3, {3, 2, 1});
}

TEST(TensorState, ResultOfAJitThatIsWrittenToKeepsItsMemory) {
  TinyJit f([](std::span<const Tensor> in) { return std::vector{(in[0] * 2 + in[1]).realize()}; });
  const Tensor x = f32({1, 2}, 2), y = f32({10, 20}, 2);
  f({x, y});
  Tensor z = f({x, y})[0];
  z.set({i32({0}, 1)}, f32({5}, 1)).realize();
  const Tensor kept = f({z, y})[0];
  expect_tensor(kept, 2, {20, 68});
  expect_tensor(z, 2, {5, 24});
}

TEST(TensorState, SetWritesInPlace) {
  Tensor x = Tensor::zeros({3, 4});
  x.set({1}, 1.0);
  x.set({Slice{}, Slice{{}, {}, 2}}, 2.0);
  x.set({Slice{{}, {}, -1}, 3}, f32({5, 6, 7}, 3));
  expect_tensor(x, {3, 4}, {2, 0, 2, 7, 2, 1, 2, 6, 2, 0, 2, 5});
  // Five columns in steps of two: no movement op alone names the last one.
  Tensor odd = Tensor::zeros({2, 5});
  odd.set({Slice{}, Slice{{}, {}, 2}}, 1.0);
  expect_tensor(odd, {2, 5}, {1, 0, 1, 0, 1, 1, 0, 1, 0, 1});
  Tensor strided = odd.get({Slice{}, Slice{{}, {}, 2}});
  strided.assign(Tensor::full({2, 3}, 4.0));
  expect_tensor(odd, {2, 5}, {4, 0, 4, 0, 4, 4, 0, 4, 0, 4});
}

TEST(TensorState, SetByTensorLastOneWins) {
  Tensor x = f32({0, 0, 0, 0}, 4);
  x.set({i32({2, 0, 2}, 3)}, f32({1, 2, 3}, 3));
  expect_tensor(x, 4, {2, 0, 3, 0});
}

TEST(TensorState, CloneAndReplace) {
  const Tensor x = f32({1, 2}, 2);
  Tensor c = x.clone();
  c += 1;
  expect_tensor(x, 2, {1, 2});
  Tensor r = f32({5, 5}, 2);
  r.replace(x * 3);
  expect_tensor(r, 2, {3, 6});
}

TEST(TensorState, NothingIsLeftBehind) {
  Tensor x = f32({1, 2, 3}, 3);
  for (int i = 0; i < 3; ++i) x.assign(x * 2 + 1).realize();
  const int64_t nodes = live_nodes();
  for (int i = 0; i < 20; ++i) x.assign(x * 2 + 1).realize();
  EXPECT_EQ(live_nodes(), nodes);
  for (int i = 0; i < 3; ++i) Tensor::rand({4}).realize();
  const int64_t with_counter = live_nodes();
  for (int i = 0; i < 20; ++i) Tensor::rand({4}).realize();
  EXPECT_EQ(live_nodes(), with_counter);
}

}  // namespace
}  // namespace whit
