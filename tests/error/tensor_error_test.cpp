// The texts of the front end's errors: operation, offender, expectation.
#include <gtest/gtest.h>

#include "../unit/tensor_checks.h"
#include "base/flags.h"

namespace whit {
namespace {

TEST(TensorErrors, ShapesAndAxes) {
  const Tensor x = Tensor::zeros({4, 5});
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x.sum(3); }), "[sum] axis 3 is out of range for shape (4, 5); valid axes are -2..1");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.sum({0, -2}); }), "[sum] axis 0 is given twice");
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x + Tensor::zeros({3}); }), "[add] shapes (4, 5) and (3,) do not broadcast: 3 against 5");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.reshape({3, 7}); }), "[reshape] 20 elements of shape (4, 5) do not fit (3, 7)");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.reshape({-1, -1}); }), "[reshape] shape (-1, -1) has more than one -1");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.expand({4, 6}); }), "[expand] axis 1 of shape (4, 5) cannot become 6 (of (4, 6))");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.permute({0, 0}); }), "[permute] (0, 0) is no permutation of the 2 axes of (4, 5)");
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { Tensor::cat({x, Tensor::zeros({4, 6})}); }),
            "[cat] shapes (4, 5) and (4, 6) differ in axis 1, which is not the joined axis 0");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.matmul(x); }), "[matmul] shapes (4, 5) and (4, 5): 5 columns against 4 rows");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.split({1, 2}); }), "[split] sizes (1, 2) sum to 3, axis 0 of shape (4, 5) has 4");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.topk(9); }), "[topk] k is 9, axis 1 of shape (4, 5) has 5");
}

TEST(TensorErrors, Networks) {
  const Tensor x = Tensor::zeros({1, 3, 8, 8});
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { x.conv2d(Tensor::zeros({2, 2, 3, 3})); }),
            "[conv2d] input (1, 3, 8, 8), weight (2, 2, 3, 3) and groups 1 do not match: expected 2 input channels and "
            "outputs divisible by 1");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.max_pool2d({.kernel_size = {9, 9}}); }),
            "[max_pool2d] a window of 9 (dilation 1) is larger than axis 2 of the padded shape (1, 3, 8, 8)");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.max_pool2d({.padding = {1, 1, 1}}); }), "[max_pool2d] padding has 3 numbers; expected 1, 2 or 4");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x[0][0].cross_entropy(Tensor::zeros({8}), "typo"); }),
            "[cross_entropy] reduction 'typo'; expected 'mean', 'sum' or 'none'");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { nn::SGD({Tensor::zeros({1})}).step(); }),
            "[optim] a step outside of training; set the flag TRAINING to 1");
  const FlagScope training("TRAINING", int64_t{1});
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { nn::SGD({Tensor::zeros({1})}).step(); }),
            "[optim] parameter 0 of shape (1,) has no gradient; call backward first");
}

TEST(TensorErrors, DTypes) {
  const Tensor x = Tensor::zeros({2}), i = Tensor::zeros({2}, {.dtype = DType::Int32});
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x & x; }), "[bitwise_and] float32 has no bits to work on; expected integers or bool");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.where(x, x); }), "[where] the condition is float32; expected bool");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { i.sum().backward(); }), "[backward] the result is int32; expected a float dtype");
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { x.backward(); }), "[backward] the result has shape (2,); expected a scalar, or give `gradient`");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.bitcast(DType::Float64).bitcast(DType::WeakInt); }),
            "[bitcast] float64 to weakint: a weak dtype and void have no bits");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { Tensor(x).assign(i); }), "[assign] the value is int32, the target is float32");
  EXPECT_EQ(error_of(ErrorKind::Attribute, [] { dtype_by_name("bogus"); }),
            "[dtype] unknown dtype 'bogus'; expected a name such as float32, int64, bool");
  EXPECT_EQ(error_of(ErrorKind::Value, [] { Tensor::rand({2}, {.dtype = DType::Int32}); }), "[rand] int32; expected a float dtype");
}

TEST(TensorErrors, Indices) {
  Tensor x = Tensor::zeros({2, 3});
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x[2]; }), "[getitem] index 2 is out of bounds for axis 0 of size 2");
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x.get({0, 0, 0}); }), "[getitem] too many indices: 3 for shape (2, 3)");
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x.get({Ellipsis, Ellipsis}); }), "[getitem] 2 ellipses; an index can only have a single one");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x[Slice{.step = 0}]; }), "[getitem] the slice step is 0; expected a positive or negative one");
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x[Tensor::zeros({2})]; }), "[getitem] index tensor of float32; expected integers");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.set({0}, Tensor::zeros({4})); }), "[assign] a value of shape (4,) does not broadcast to (3,)");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x[0].expand({4, 3}).assign(Tensor::zeros({4, 3})); }),
            "[assign] the target repeats elements (it was expanded to (4, 3)); clone it first");
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { x.item(); }), "[item] the tensor has shape (2, 3); expected exactly one element");
}

TEST(TensorErrors, Movement) {
  const Tensor x = Tensor::zeros({4, 5});
  EXPECT_EQ(error_of(ErrorKind::Index, [&] { x.transpose(0, 2); }), "[transpose] axis 2 is out of range for shape (4, 5); valid axes are -2..1");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.flip({0, 0}); }), "[flip] axis 0 is given twice");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.pad_to(std::vector<std::optional<Sint>>{2, 5}); }),
            "[pad_to] axis 0 of shape (4, 5) is larger than 2");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.pad({5, 0}, {.mode = "reflect"}); }), "[pad] reflect by (5, 0) needs padding smaller than the size 5");
  EXPECT_EQ(error_of(ErrorKind::NotImplemented, [&] { x.pad({1, 1}, {.mode = "typo"}); }),
            "[pad] mode 'typo'; expected constant, reflect, replicate or circular");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.repeat({2}); }), "[repeat] 1 repeats for shape (4, 5); expected at least 2");
  EXPECT_EQ(error_of(ErrorKind::Runtime, [&] { x.unfold(1, 6, 1); }), "[unfold] size 6 is more than the 5 of axis 1");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.diag(); }), "[diag] shape (4, 5); expected one axis");
  EXPECT_EQ(error_of(ErrorKind::Assertion, [&] { x.rearrange("a b -> b c"); }), "[rearrange] 'c' is not on the left of 'a b -> b c'");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { Tensor::stack({x, Tensor::zeros({5, 4})}); }), "[stack] shapes (4, 5) and (5, 4) differ");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { x.chunk(0); }), "[chunk] 0 chunks; expected a positive number");
  EXPECT_EQ(error_of(ErrorKind::Value, [&] { Tensor::arange(1, 5, 0); }), "[arange] the step is 0; expected a positive or negative one");
}

TEST(TensorErrors, Devices) {
  EXPECT_EQ(error_of(ErrorKind::Device, [] { Tensor::zeros({1}, {.device = "BOGUS"}).realize(); }),
            "[device] unknown device BOGUS; there are: CPU, DISK, MPI, NULL, REF");
  EXPECT_EQ(error_of(ErrorKind::Value, [] { Tensor::zeros({1}, {.device = "CPU:x"}); }),
            "[device] 'CPU:x' is no device: expected NAME or NAME:ordinal, the ordinal in 0..4095");
  EXPECT_EQ(error_of(ErrorKind::Type, [] { Tensor().sum(); }), "[shape] the tensor is undefined");
}

}  // namespace
}  // namespace whit
