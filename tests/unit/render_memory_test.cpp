// Loops, registers, scratch, gates and every shape of access, by both renderers.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernel_run.h"

namespace whit {
namespace {

using testing::Program;

class RenderMemory : public ::testing::TestWithParam<std::string> {
 protected:
  void run(const Program& p, std::vector<void*> buffers, int64_t n = 1, std::vector<int64_t> variables = {}) {
    const testing::CompiledKernel k = testing::compile_kernel(p.linear(), GetParam());
    source = k.source;
    const KernelSignature s = signature_of(p.linear());
    EXPECT_EQ(s.n_global, n);
    std::vector<double> scratch(static_cast<size_t>(s.scratch_bytes / 8 + 16));
    void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    // In two uneven parts, as two threads would.
    k.call(buffers.data(), variables.data(), aligned, 0, n / 3);
    k.call(buffers.data(), variables.data(), aligned, n / 3, n);
  }
  std::string source;
};

UOp ptr(int64_t slot, DType dt, int64_t n) {
  const int64_t dims[] = {n};
  return param(slot, dt, dims);
}
UOp reg(int64_t id, DType dt, int64_t lanes = 1) {
  const int64_t a[] = {id, lanes};
  return UOp::make(Op::Reg, dt, {}, std::span<const int64_t>(a));
}
UOp lanes_index(int64_t n) { return UOp::make(Op::Lanes, DType::WeakInt, {}, Arg(n)); }

TEST_P(RenderMemory, SumsRowsInARegister) {
  const UOp out = ptr(0, DType::Float32, 5), in = ptr(1, DType::Float32, 35), acc = reg(0, DType::Float32);
  Program p;
  const UOp i = p.range(5, AxisType::Global);
  p.store(acc, constant(DType::Float32, 0.0));
  const UOp j = p.range(7, AxisType::Reduce);
  const UOp at = p.add(p.add(i * 7) + j);
  p.store(acc, p.alu(Op::Add, {p.load(acc), p.load(index(in, at))}));
  p.end(j);
  p.store(index(out, i), p.load(acc));
  p.end(i);
  std::vector<float> x(35), y(5);
  std::iota(x.begin(), x.end(), 0.0f);
  run(p, {y.data(), x.data()}, 5);
  for (size_t r = 0; r < 5; ++r) EXPECT_EQ(y[r], 7 * (7 * static_cast<float>(r)) + 21);
}

TEST_P(RenderMemory, NestsStandOneAfterAnother) {
  const UOp a = ptr(0, DType::Int32, 6), b = ptr(1, DType::Int32, 4);
  Program p;
  const UOp i = p.range(6, AxisType::Global);
  p.store(index(a, i), p.add(cast(i, DType::Int32)));
  p.end(i);
  const UOp j = p.range(4, AxisType::Global);
  p.store(index(b, j), p.add(cast(j, DType::Int32)));
  p.end(j);
  std::vector<int32_t> x(6, -1), y(4, -1);
  run(p, {x.data(), y.data()}, 10);
  EXPECT_EQ(x, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(y, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_P(RenderMemory, ScalarGatesSwitchAccessesOff) {
  const UOp out = ptr(0, DType::Float64, 8), in = ptr(1, DType::Float64, 4);
  Program p;
  const UOp i = p.range(8, AxisType::Global);
  const UOp inside = p.add(lt(i, 4));
  const UOp v = p.load(index(in, i, inside));
  p.store(index(out, i, p.add(lt(i, 7))), p.alu(Op::Add, {v, constant(DType::Float64, 0.5)}));
  p.end(i);
  std::vector<double> x = {1, 2, 3, 4}, y(8, -1);
  run(p, {y.data(), x.data()}, 8);
  EXPECT_EQ(y, (std::vector<double>{1.5, 2.5, 3.5, 4.5, 0.5, 0.5, 0.5, -1}));
}

TEST_P(RenderMemory, IfGuardsABlock) {
  const UOp out = ptr(0, DType::Int8, 8);
  Program p;
  const UOp i = p.range(8, AxisType::Global);
  const UOp c = p.add(lt(i, 3));
  const UOp block = p.add(UOp::make(Op::If, DType::Void, {c}));
  p.store(index(out, i), p.add(cast(p.add(i * 2), DType::Int8)));
  p.add(UOp::make(Op::EndIf, DType::Void, {block}));
  p.end(i);
  std::vector<int8_t> y(8, -1);
  run(p, {y.data()}, 8);
  EXPECT_EQ(y, (std::vector<int8_t>{0, 2, 4, -1, -1, -1, -1, -1}));
}

TEST_P(RenderMemory, VectorsWithMasksAndScalarGates) {
  // Ten elements in vectors of four: the last is masked by lane; a scalar gate drops the second one.
  for (const DType dt : {DType::Float32, DType::Bool, DType::Int8, DType::Float16, DType::Int64}) {
    const UOp out = ptr(0, dt, 10), in = ptr(1, dt, 10), out2 = ptr(2, dt, 12);
    Program p;
    const UOp i = p.range(3, AxisType::Global);
    const UOp at = p.add(i * 4);
    const UOp lane = p.add(at + lanes_index(4));
    const UOp mask = p.add(lt(lane, 10));
    const UOp v = p.load(index(in, at, mask), 4);
    p.store(index(out, at, mask), v);
    const UOp not_one = p.add(alu(Op::CmpNe, {i, idx(1)}));
    p.store(index(out2, at), p.load(index(in, at, p.add(alu(Op::And, {not_one, p.add(lt(i, 2))}))), 4));
    p.end(i);
    const size_t n = static_cast<size_t>(n_bytes(dt));
    std::vector<char> x(10 * n + n, 1), y(10 * n + n, 7), z(12 * n, 7);
    if (dt != DType::Bool)
      for (size_t k = 0; k < 10 * n; ++k) x[k] = static_cast<char>(k % 60);
    run(p, {y.data(), x.data(), z.data()}, 3);
    EXPECT_TRUE(std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(10 * n), y.begin())) << name(dt);
    for (size_t k = 10 * n; k < 11 * n; ++k) EXPECT_EQ(y[k], 7);
    for (size_t k = 0; k < 12 * n; ++k) EXPECT_EQ(z[k], k < 4 * n ? x[k] : 0) << name(dt) << k;
  }
}

TEST_P(RenderMemory, GathersAndScatters) {
  for (const DType dt : {DType::Float32, DType::Bool, DType::UInt16, DType::Float64}) {
    const UOp out = ptr(0, dt, 8), in = ptr(1, dt, 8);
    Program p;
    const UOp r = p.range(1, AxisType::Global);
    const UOp seven = p.add(alu(Op::Sub, {idx(7), lanes_index(8)}));
    const UOp mask = p.add(lt(lanes_index(8), 5));
    const UOp v = p.load(index(in, seven, mask));
    p.store(index(out, seven, p.add(lt(lanes_index(8), 7))), v);
    p.end(r);
    const size_t n = static_cast<size_t>(n_bytes(dt));
    std::vector<char> x(8 * n), y(8 * n, 1);
    for (size_t k = 0; k < x.size(); ++k) x[k] = static_cast<char>(dt == DType::Bool ? k % 2 : k + 1);
    run(p, {y.data(), x.data()}, 1);
    for (size_t k = 0; k < 8 * n; ++k) EXPECT_EQ(y[k], k / n >= 3 ? x[k] : k / n >= 1 ? 0 : 1) << name(dt) << k;
  }
}

TEST_P(RenderMemory, FoldsVecsAndLanes) {
  for (const int64_t lanes : {1, 2, 8, 16}) {
    const UOp out = ptr(0, DType::Float32, 5), in = ptr(1, DType::Float32, lanes), acc = reg(0, DType::Float32, lanes);
    Program p;
    const UOp r = p.range(1, AxisType::Global);
    UOp v = p.load(index(in, idx(0)), lanes == 1 ? 0 : lanes);
    if (lanes == 1) v = p.add(UOp::make(Op::Vec, DType::Float32, {v}));
    if (lanes > 1) {
      p.store(acc, constant(DType::Float32, 1.0));
      p.store(acc, p.alu(Op::Mul, {p.load(acc), v}));
      v = p.load(acc);
    }
    int64_t o = 0;
    for (const char* m : {"add", "mul", "max", "min"}) p.store(index(out, idx(o++)), p.add(UOp::make(Op::Fold, DType::Float32, {v}, Arg(m))));
    const UOp last = p.add(UOp::make(Op::Lane, DType::Float32, {v}, Arg(lanes - 1)));
    const UOp first = p.add(UOp::make(Op::Lane, DType::Float32, {v}, Arg(0)));
    const UOp pair = p.add(UOp::make(Op::Vec, DType::Float32, {last, first}));
    p.store(index(out, idx(4)), p.add(UOp::make(Op::Fold, DType::Float32, {p.alu(Op::Sub, {pair, first})}, Arg("add"))));
    p.end(r);
    std::vector<float> x(static_cast<size_t>(lanes)), y(5);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 1.0f / static_cast<float>(i + 3);
    run(p, {y.data(), x.data()}, 1);
    // The tree that ops.def promises: lane i with lane i + n/2.
    std::vector<float> add = x, mul = x;
    for (size_t n = x.size() / 2; n > 0; n /= 2)
      for (size_t i = 0; i < n; ++i) {
        add[i] = add[i] + add[i + n];
        mul[i] = mul[i] * mul[i + n];
      }
    EXPECT_EQ(y[0], add[0]);
    EXPECT_EQ(y[1], mul[0]);
    EXPECT_EQ(y[2], x.front());
    EXPECT_EQ(y[3], x.back());
    EXPECT_EQ(y[4], (x.back() - x.front()) + (x.front() - x.front()));
  }
}

TEST_P(RenderMemory, ScratchVariablesAndInPlace) {
  const int64_t a0[] = {0, 4}, a1[] = {1, 3};
  const UOp s0 = UOp::make(Op::Scratch, DType::Int32, {}, std::span<const int64_t>(a0));
  const UOp s1 = UOp::make(Op::Scratch, DType::Float64, {}, std::span<const int64_t>(a1));
  const UOp n = UOp::make(Op::Variable, DType::WeakInt, {}, Arg::list({"n", 0, 100}));
  const UOp k = UOp::make(Op::Variable, DType::Int32, {}, Arg::list({"k", 0, 100}));
  const UOp io = ptr(0, DType::Int32, 4);
  Program p;
  const UOp r = p.range(1, AxisType::Global);
  const UOp i = p.add(UOp::make(Op::Range, DType::WeakInt, {n}, [] {
    const int64_t a[] = {7, static_cast<int64_t>(AxisType::Loop), 100};
    return Arg(std::span<const int64_t>(a));
  }()));
  p.store(index(s0, i), p.load(index(io, i)));
  p.end(i);
  p.store(index(s1, idx(2)), constant(DType::Float64, 3.0));
  const UOp j = p.range(4, AxisType::Loop);
  const UOp three = p.add(cast(p.load(index(s1, idx(2))), DType::Int32));
  const UOp v = p.alu(Op::Mul, {p.alu(Op::Add, {p.load(index(s0, p.add(idx(3) - j))), k}), three});
  p.store(index(io, j), v);
  p.end(j);
  p.end(r);
  EXPECT_EQ(signature_of(p.linear()).scratch_bytes, 128);
  EXPECT_EQ(signature_of(p.linear()).variables, (std::vector<std::string>{"k", "n"}));
  std::vector<int32_t> x = {1, 2, 3, 4};
  run(p, {x.data()}, 1, {10, 4});
  EXPECT_EQ(x, (std::vector<int32_t>{42, 39, 36, 33}));
}

TEST_P(RenderMemory, NothingRunsWhenTheRangeIsEmpty) {
  const UOp out = ptr(0, DType::Int32, 4);
  Program p;
  const UOp r = p.range(0, AxisType::Global);
  p.store(index(out, r), constant(DType::Int32, 1));
  p.end(r);
  const UOp q = p.range(2, AxisType::Global);
  const UOp z = p.range(0, AxisType::Loop);
  p.store(index(out, q), constant(DType::Int32, 2));
  p.end(z);
  p.end(q);
  std::vector<int32_t> x = {0, 0, 0, 0};
  run(p, {x.data()}, 2);
  EXPECT_EQ(x, (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST(Render, RefusesWhatIsNoProgram) {
  Program p;
  const UOp r = p.range(4, AxisType::Global);
  p.end(r);
  p.store(index(ptr(0, DType::Int32, 4), idx(0)), constant(DType::Int32, 1));
  for (const char* renderer : {"llvm", "c"}) {
    EXPECT_THROW(renderer_by_name(renderer).render(p.linear(), "k", {}), Error);
    EXPECT_THROW(renderer_by_name(renderer).render(idx(0), "k", {}), Error);
  }
  EXPECT_THROW(renderer_by_name("fortran"), Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, RenderMemory, ::testing::ValuesIn(testing::renderers()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace whit
