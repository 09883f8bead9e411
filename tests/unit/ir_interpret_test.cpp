// The reference evaluator against values worked out by hand or by plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "interpret_tensor.h"
#include "ir/build.h"
#include "ir/text.h"

using namespace whit;

namespace {

UOp dims_param(int64_t slot, DType dtype, std::initializer_list<int64_t> dims) { return param(slot, dtype, std::vector<int64_t>(dims)); }

std::vector<double> values(const HostTensor& t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.shape.numel(); ++i) out.push_back(t.at(i).as_double());
  return out;
}

using Doubles = std::vector<double>;

struct Iota : testing::Test {
  // x is 0 .. 11 as (3, 4) float32.
  std::vector<float> data = std::vector<float>(12);
  UOp x = dims_param(0, DType::Float32, {3, 4});
  HostInputs inputs;
  void SetUp() override {
    std::iota(data.begin(), data.end(), 0.0f);
    inputs.memory[x.node()] = data.data();
  }
  Doubles eval(const UOp& u) { return values(evaluate_tensor(u, inputs)); }
};

using IrInterpretTensor = Iota;

TEST_F(IrInterpretTensor, MovementOps) {
  EXPECT_EQ(eval(shrink(x, Dims{1, 3, 0, 2})), (Doubles{4, 5, 8, 9}));
  EXPECT_EQ(eval(permute(shrink(x, Dims{0, 2, 0, 2}), Dims{1, 0})), (Doubles{0, 4, 1, 5}));
  EXPECT_EQ(eval(flip(shrink(x, Dims{0, 2, 0, 2}), Dims{0, 1})), (Doubles{5, 4, 1, 0}));
  EXPECT_EQ(eval(pad(shrink(x, Dims{1, 2, 0, 2}), Dims{1, 0, 0, 1})), (Doubles{0, 0, 0, 4, 5, 0}));
  EXPECT_EQ(eval(reshape(permute(x, Dims{1, 0}), Dims{2, 6})), (Doubles{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  EXPECT_EQ(eval(expand(reshape(shrink(x, Dims{0, 1, 1, 3}), Dims{2, 1}), Dims{2, 2})), (Doubles{1, 1, 2, 2}));
  EXPECT_EQ(eval(UOp::make(Op::Stack, DType::Float32, {shrink(x, Dims{0, 1, 0, 2}), shrink(x, Dims{2, 3, 0, 2})})), (Doubles{0, 1, 8, 9}));
}

TEST_F(IrInterpretTensor, WindowAndItsTranspose) {
  const UOp row = reshape(shrink(x, Dims{0, 1, 0, 4}), Dims{4});
  EXPECT_EQ(eval(window(row, 0, 2, 1, 1)), (Doubles{0, 1, 1, 2, 2, 3}));
  EXPECT_EQ(eval(window(row, 0, 2, 2, 1)), (Doubles{0, 1, 2, 3}));
  EXPECT_EQ(eval(window(row, 0, 2, 1, 2)), (Doubles{0, 2, 1, 3}));
  EXPECT_EQ(eval(unwindow(window(row, 0, 2, 1, 1), 0, 4, 1, 1)), (Doubles{0, 2, 4, 3}));
  EXPECT_EQ(eval(unwindow(window(row, 0, 2, 1, 2), 0, 5, 1, 2)), (Doubles{0, 1, 2, 3, 0}));
}

TEST_F(IrInterpretTensor, ReducesInDoubleAndRoundsOnce) {
  EXPECT_EQ(eval(reduce_axes(x, "add", Dims{1})), (Doubles{6, 22, 38}));
  EXPECT_EQ(eval(reduce_axes(x, "max", Dims{0, 1})), (Doubles{11}));
  EXPECT_EQ(eval(reduce_axes(x, "min", Dims{0})), (Doubles{0, 1, 2, 3}));
  EXPECT_EQ(eval(reduce_axes(shrink(x, Dims{0, 0, 0, 4}), "mul", Dims{0})), (Doubles{1, 1, 1, 1}));
  EXPECT_EQ(eval(reduce_axes(shrink(x, Dims{0, 0, 0, 4}), "max", Dims{0}))[0], -INFINITY);
  data[0] = 16777216.0f, data[1] = 1, data[2] = -16777216.0f, data[3] = 0;  // in float32 the 1 would be lost
  EXPECT_EQ(eval(reduce_axes(x, "add", Dims{1}))[0], 1);
  data[0] = NAN;
  EXPECT_TRUE(std::isnan(eval(reduce_axes(x, "max", Dims{0, 1}))[0]));
}

TEST_F(IrInterpretTensor, ElementwiseSpreadsScalars) {
  EXPECT_EQ(eval(shrink(x * constant(DType::Float32, 2.0) + constant(DType::Float32, 1.0), Dims{0, 1, 0, 4})), (Doubles{1, 3, 5, 7}));
  EXPECT_EQ(eval(cast(shrink(lt(x, constant(DType::Float32, 2.0)), Dims{0, 1, 0, 4}), DType::Int8)), (Doubles{1, 1, 0, 0}));
}

TEST_F(IrInterpretTensor, GatherAndScatter) {
  std::vector<int32_t> at{2, -1, 0, 3};
  const UOp index = dims_param(1, DType::Int32, {4});
  inputs.memory[index.node()] = at.data();
  const UOp rows = shrink(x, Dims{0, 3, 0, 2});
  const UOp gathered = UOp::make(Op::Gather, DType::Float32, {rows, index});
  EXPECT_EQ(eval(gathered), (Doubles{8, 9, 0, 0, 0, 1, 0, 0}));
  at = {1, 1, 0, 7};
  const UOp src = reshape(shrink(x, Dims{0, 2, 0, 4}), Dims{4, 2});
  EXPECT_EQ(eval(UOp::make(Op::Scatter, DType::Float32, {rows, index, src}, "set")), (Doubles{4, 5, 2, 3, 8, 9}));
  EXPECT_EQ(eval(UOp::make(Op::Scatter, DType::Float32, {rows, index, src}, "add")), (Doubles{4, 6, 6, 9, 8, 9}));
}

TEST_F(IrInterpretTensor, BitcastRescalesTheLastAxis) {
  EXPECT_EQ(eval(UOp::make(Op::Bitcast, DType::UInt32, {shrink(x, Dims{0, 1, 1, 3})})), (Doubles{0x3F800000, 0x40000000}));
  const HostTensor bytes = evaluate_tensor(UOp::make(Op::Bitcast, DType::UInt8, {shrink(x, Dims{0, 1, 1, 3})}), inputs);
  EXPECT_EQ(bytes.shape, (Shape{1, 8}));
  EXPECT_EQ(values(bytes), (Doubles{0, 0, 0x80, 0x3F, 0, 0, 0, 0x40}));
}

TEST(IrInterpretState, StoresThroughViewsAreSeenByAfter) {
  std::vector<int32_t> data{1, 2, 3, 4, 5, 6};
  const UOp b = buffer(DType::Int32, 6, "REF");
  HostInputs inputs;
  inputs.memory[b.node()] = data.data();
  const UOp column = shrink(reshape(b, Dims{2, 3}), Dims{0, 2, 1, 2});
  // The value reads the old content of what it overwrites.
  const UOp put = store(column, flip(column, Dims{0}) * constant(DType::Int32, 10));
  const UOp state = UOp::make(Op::After, DType::Int32, {b, put});
  const UOp again = UOp::make(Op::After, DType::Int32, {state, store(shrink(state, Dims{0, 1}), constant(DType::Int32, 7))});
  const UOp roots[] = {again, state, b};
  const auto out = evaluate_tensor(roots, inputs);
  EXPECT_EQ(values(out[0]), (Doubles{7, 50, 3, 4, 20, 6}));
  EXPECT_EQ(values(out[1]), (Doubles{1, 50, 3, 4, 20, 6}));
  EXPECT_EQ(values(out[2]), (Doubles{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(data, (std::vector<int32_t>{7, 50, 3, 4, 20, 6}));
}

TEST(IrInterpretState, AComputedValueThatIsStoredIntoHasMemoryOfItsOwn) {
  std::vector<int32_t> data{1, 2, 3, 4};
  const UOp b = buffer(DType::Int32, 4, "REF");
  HostInputs inputs;
  inputs.memory[b.node()] = data.data();
  const UOp x = b * constant(DType::Int32, 10);
  const UOp put = store(shrink(x, Dims{1, 3}), shrink(b, Dims{0, 2}));
  const UOp state = UOp::make(Op::After, DType::Int32, {x, put});
  const UOp zeros = broadcast_scalar(constant(DType::Int32, 0), Dims{3});
  const UOp later = UOp::make(Op::After, DType::Int32, {zeros, store(shrink(zeros, Dims{2, 3}), constant(DType::Int32, 5))});
  const UOp roots[] = {state, x, later, zeros};
  const auto out = evaluate_tensor(roots, inputs);
  EXPECT_EQ(values(out[0]), (Doubles{10, 1, 2, 40}));
  EXPECT_EQ(values(out[1]), (Doubles{10, 20, 30, 40}));
  EXPECT_EQ(values(out[2]), (Doubles{0, 0, 5}));
  EXPECT_EQ(values(out[3]), (Doubles{0, 0, 0}));
  EXPECT_EQ(data, (std::vector<int32_t>{1, 2, 3, 4}));
}

TEST(IrInterpretCall, ABodyStoresIntoItsArgument) {
  // f(p) = AFTER(p, STORE(p, p + 1)): a BUFFER is changed, a computed argument is not.
  const UOp p = dims_param(0, DType::Int32, {2});
  const UOp body = UOp::make(Op::After, DType::Int32, {p, store(p, p + constant(DType::Int32, 1))});
  std::vector<int32_t> data{1, 2};
  const UOp b = buffer(DType::Int32, 2, "REF");
  HostInputs inputs;
  inputs.memory[b.node()] = data.data();
  EXPECT_EQ(values(evaluate_tensor(UOp::make(Op::Call, DType::Int32, {body, b}), inputs)), (Doubles{2, 3}));
  EXPECT_EQ(data, (std::vector<int32_t>{2, 3}));
  const UOp twice = UOp::make(Op::Call, DType::Int32, {body, b + b});
  EXPECT_EQ(values(evaluate_tensor(twice, inputs)), (Doubles{5, 7}));
  EXPECT_EQ(data, (std::vector<int32_t>{2, 3}));
}

TEST(IrInterpretCall, BindsParamsInNestedFrames) {
  // inner(a) = a + a; outer(a, b) = (inner(b) - a, b); PARAM 0 means another thing in each body.
  const UOp a = dims_param(0, DType::Int32, {2}), b = dims_param(1, DType::Int32, {2});
  const UOp inner = a + a;
  const UOp outer = UOp::make(Op::Tuple, DType::Void, {UOp::make(Op::Call, DType::Int32, {inner, b}) - a, b});
  const UOp one = expand(reshape(constant(DType::Int32, 1), Dims{1}), Dims{2});
  const UOp five = expand(reshape(constant(DType::Int32, 5), Dims{1}), Dims{2});
  const UOp call = UOp::make(Op::Call, DType::Void, {outer, one, five});
  EXPECT_EQ(values(evaluate_tensor(UOp::make(Op::GetTuple, DType::Int32, {call}, 0))), (Doubles{9, 9}));
  EXPECT_EQ(values(evaluate_tensor(UOp::make(Op::GetTuple, DType::Int32, {call}, 1))), (Doubles{5, 5}));
}

TEST(IrInterpretTensorErrors, Texts) {
  const auto message = [](const UOp& u) -> std::string {
    try {
      evaluate_tensor(u);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message(dims_param(3, DType::Int32, {2})).find("PARAM 3 has no memory"), std::string::npos);
  EXPECT_NE(message(range(3, 0, AxisType::Weak)).find("RANGE cannot be evaluated in a tensor graph"), std::string::npos);
  EXPECT_NE(message(UOp::make(Op::Variable, DType::WeakInt, {}, Arg::list({"n", 1, 5}))).find("variable n has no value"), std::string::npos);
}

TEST(IrInterpretTensor100k, DeepChain) {
  UOp u = constant(DType::Float64, 0.0);
  const UOp step = UOp::make(Op::Variable, DType::Float64, {}, Arg::list({"step", 0, 9}));
  for (int i = 0; i < 100'000; ++i) u = u + step;
  HostInputs inputs;
  inputs.variables["step"] = 2;
  EXPECT_EQ(evaluate_tensor(u, inputs).at(0).f, 200'000);
}

// ---- kernels

TEST(IrInterpretKernel, MatmulWithGatedReadAndEpilogue) {
  constexpr int64_t kM = 5, kN = 7, kK = 6;
  std::vector<float> a(kM * kK), b(kK * kN), out(kM * kN, -1.0f);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 11) - 5;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7) - 3;
  const UOp i = range(kM, 0, AxisType::Weak), j = range(kN, 1, AxisType::Weak), k = range(kK, 2, AxisType::Reduce);
  const UOp pa = dims_param(1, DType::Float32, {kM * kK}), pb = dims_param(2, DType::Float32, {kK * kN});
  const UOp pc = dims_param(0, DType::Float32, {kM * kN});
  const UOp x = load(index(pa, i * kK + k)), y = load(index(pb, k * kN + j, lt(k, 5)));
  const UOp k_range[] = {k};
  const UOp sum = reduce(x * y, "add", k_range) + constant(DType::Float32, 1.0);
  const UOp loops[] = {i, j};
  const UOp sink = UOp::make(Op::Sink, DType::Void, {end(store(index(pc, i * kN + j), sum), loops)}, Arg::list({"mm"}));
  void* buffers[] = {out.data(), a.data(), b.data()};
  evaluate_kernel(sink, buffers);
  for (int64_t r = 0; r < kM; ++r)
    for (int64_t c = 0; c < kN; ++c) {
      float want = 1;
      for (int64_t l = 0; l < 5; ++l) want += a[static_cast<size_t>(r * kK + l)] * b[static_cast<size_t>(l * kN + c)];
      EXPECT_EQ(out[static_cast<size_t>(r * kN + c)], want);
    }
}

// Softmax over rows: two reduces over the same RANGE, one inside the other's use, and one node that both read.
TEST(IrInterpretKernel, SiblingReducesShareARange) {
  const int64_t n = 4;
  std::vector<double> x{1, 2, 3, 4, 0, 0, 0, 8}, out(8);
  const UOp in = dims_param(1, DType::Float64, {8}), to = dims_param(0, DType::Float64, {8});
  const UOp row = range(2, 0, AxisType::Weak), r = range(n, 2, AxisType::Reduce), col = range(n, 1, AxisType::Weak);
  const UOp over[] = {r};
  const UOp at = load(index(in, row * n + r));
  const UOp top = reduce(at, "max", over);
  const UOp sum = reduce(alu(Op::Exp2, {at - top}), "add", over);
  const UOp y = alu(Op::Fdiv, {alu(Op::Exp2, {load(index(in, row * n + col)) - top}), sum});
  const UOp loops[] = {row, col};
  void* buffers[] = {out.data(), x.data()};
  evaluate_kernel(UOp::make(Op::Sink, DType::Void, {end(store(index(to, row * n + col), y), loops)}), buffers);
  EXPECT_DOUBLE_EQ(out[0], 0.125 / 1.875);
  EXPECT_DOUBLE_EQ(out[3], 1 / 1.875);
  EXPECT_DOUBLE_EQ(out[7], 1 / (1 + 3.0 / 256));
}

TEST(IrInterpretKernel, StageIsMadeInsideTheLoopItDependsOn) {
  // out[i, j] = staged[3 - j] with staged[k] = in[i * 4 + k] * 2.
  std::vector<int32_t> in(12), out(12);
  std::iota(in.begin(), in.end(), 0);
  const UOp i = range(3, 0, AxisType::Weak), j = range(4, 1, AxisType::Weak), k = range(4, 2, AxisType::Loop);
  const UOp from = dims_param(1, DType::Int32, {12}), to = dims_param(0, DType::Int32, {12});
  const UOp staged = UOp::make(Op::Stage, DType::Int32, {load(index(from, i * 4 + k)) * 2, k});
  const UOp v = load(index(staged, idx(3) - j));
  const UOp loops[] = {j, i};  // in any order: ids decide
  void* buffers[] = {out.data(), in.data()};
  evaluate_kernel(UOp::make(Op::Sink, DType::Void, {end(store(index(to, i * 4 + j), v), loops)}), buffers);
  EXPECT_EQ(out, (std::vector<int32_t>{6, 4, 2, 0, 14, 12, 10, 8, 22, 20, 18, 16}));
}

TEST(IrInterpretKernel, StoresRunInOrderAndGatesHold) {
  std::vector<int32_t> out(3, 9), state(1, 0);
  const UOp to = dims_param(0, DType::Int32, {3}), one = dims_param(1, DType::Int32, {1});
  const UOp i = range(5, 0, AxisType::Loop);
  const UOp loops[] = {i};
  // The last write of a loop wins; the second store reads what the first one left.
  const UOp first = end(store(index(one, idx(0)), cast(i, DType::Int32)), loops);
  const UOp later = UOp::make(Op::After, DType::Int32, {one, first});
  const UOp second = end(store(index(to, i, lt(i, 2)), load(index(later, idx(0))) + cast(i, DType::Int32)), loops);
  void* buffers[] = {out.data(), state.data()};
  evaluate_kernel(UOp::make(Op::Sink, DType::Void, {first, second}), buffers);
  EXPECT_EQ(state[0], 4);
  EXPECT_EQ(out, (std::vector<int32_t>{4, 5, 9}));
}

TEST(IrInterpretKernel, AnIndexOutsideIsAnError) {
  std::vector<float> out(3);
  const UOp to = dims_param(0, DType::Float32, {3}), i = range(4, 0, AxisType::Loop);
  const UOp loops[] = {i};
  void* buffers[] = {out.data()};
  try {
    evaluate_kernel(UOp::make(Op::Sink, DType::Void, {end(store(index(to, i), constant(DType::Float32, 1.0)), loops)}), buffers);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("STORE at index 3 of buffer 0, which has 3 elements"), std::string::npos) << e.what();
  }
}

TEST(IrInterpretKernel, AMillionSteps) {
  constexpr int64_t kN = 100;
  std::vector<float> a(kN * kN, 1.0f), out(kN * kN);
  const UOp i = range(kN, 0, AxisType::Weak), j = range(kN, 1, AxisType::Weak), k = range(kN, 2, AxisType::Reduce);
  const UOp pa = dims_param(1, DType::Float32, {kN * kN}), pc = dims_param(0, DType::Float32, {kN * kN});
  const UOp over[] = {k}, loops[] = {i, j};
  const UOp sum = reduce(load(index(pa, i * kN + k)) * load(index(pa, k * kN + j)), "add", over);
  void* buffers[] = {out.data(), a.data()};
  evaluate_kernel(UOp::make(Op::Sink, DType::Void, {end(store(index(pc, i * kN + j), sum), loops)}), buffers);
  EXPECT_EQ(out[kN], kN);
}

}  // namespace
