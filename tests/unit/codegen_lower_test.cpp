#include <gtest/gtest.h>

#include "codegen/optimize.h"
#include "ir/build.h"
#include "ir/text.h"
#include "unit/run_kernel.h"

namespace whit {
namespace {

UOp buf(int64_t slot, int64_t n, DType dt = DType::Float32) { return param(slot, dt, std::vector<int64_t>{n}); }
UOp at(const UOp& b, const UOp& i, const UOp& gate = {}) { return load(index(b, i, gate)); }
UOp sink(std::vector<UOp> ends) { return UOp::make(Op::Sink, DType::Void, ends, Arg::list({Arg("k")})); }
UOp put(const UOp& b, const UOp& i, const UOp& v, std::vector<UOp> ranges, const UOp& gate = {}) { return end(store(index(b, i, gate), v), ranges); }
std::string check(const UOp& k, double tolerance = 1e-5, int parts = 1) {
  const std::string plain = testing::difference(k, lower_optimized(k, testing::test_target()), tolerance, parts);
  if (!plain.empty()) return "not optimised: " + plain;
  return testing::difference(k, lower_kernel(k, testing::test_target()), tolerance, parts);
}
int count(const UOp& program, Op op) {
  int n = 0;
  for (const Node* m : program->src()[1]->src()) n += m->op == op;
  return n;
}

TEST(Lower, Elementwise) {
  const UOp i = range(37, 0, AxisType::Weak), j = range(5, 1, AxisType::Weak);
  const UOp e = i * 5 + j;
  EXPECT_EQ(check(sink({put(buf(0, 185), e, at(buf(1, 185), e) * at(buf(2, 5), j) + at(buf(3, 37), i), {i, j})})), "");
}

// Loads whose lanes do not lie side by side.
int n_gathers(const UOp& program) {
  int n = 0;
  for (const Node* m : program->src()[1]->src()) n += m->op == Op::Load && m->src()[0]->op == Op::Index && !m->src()[0]->src()[1]->shape.empty();
  return n;
}

TEST(Lower, TransposesAreInRegisters) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{256, 512}, {33, 50}, {40, 32}})
    for (const DType dt : {DType::Float32, DType::Float64, DType::Int16, DType::Bool}) {
      const UOp i = range(rows, 0, AxisType::Weak), j = range(columns, 1, AxisType::Weak);
      const int64_t n = rows * columns;
      const UOp far = at(buf(1, n, dt), j * rows + i), near = at(buf(2, n, dt), i * columns + j);
      const UOp k = sink({put(buf(0, n, dt), i * columns + j, dt == DType::Bool ? far & near : far + near, {i, j})});
      EXPECT_EQ(check(k, 0, 3), "");
      const UOp optimised = codegen::optimize(k, testing::test_target());
      EXPECT_NE(to_text(optimised).find(dt == DType::Int16 || dt == DType::Bool ? "tile 16x16" : "tile 8x8"), std::string::npos)
          << to_text(optimised);
      EXPECT_EQ(n_gathers(lower_kernel(k, testing::test_target())), 0);
    }
  const UOp i = range(256, 0, AxisType::Weak), j = range(512, 1, AxisType::Weak);
  const UOp straight = sink({put(buf(0, 256 * 512), i * 512 + j, at(buf(1, 256 * 512), i * 512 + j) + 1.0, {i, j})});
  EXPECT_EQ(to_text(codegen::optimize(straight, testing::test_target())).find("tile"), std::string::npos);
}

TEST(Lower, ReversedAndSecondElementsAreShuffles) {
  // Gates differ from lane to lane, and are made without taking masks apart.
  const UOp i = range(6, 0, AxisType::Weak), j = range(70, 1, AxisType::Weak);
  for (const DType dt : {DType::Float32, DType::Float64, DType::Int16})
    for (const UOp& from : {j * -1 + 69, j * 2, j * 2 - 1}) {
      const UOp inside = lt(idx(-1), from) & lt(from, 131);
      for (const UOp& gate : {inside, UOp()}) {
        const UOp k = sink({put(buf(0, 420, dt), i * 70 + j, at(buf(1, 1000, dt), i * 140 + from + 1, gate), {i, j})});
        EXPECT_EQ(check(k, 0, 3), "");
        const UOp program = lower_kernel(k, testing::test_target());
        EXPECT_EQ(n_gathers(program), 0) << to_text(program);
        int n_bits = 0;
        for (const Node* n : program->src()[1]->src()) n_bits += n->op == Op::Lane && n->dtype == DType::Bool;
        EXPECT_EQ(n_bits, 0) << to_text(program);
      }
    }
}

TEST(Lower, RangesOfQuotientsAreSplit) {
  const UOp i = range(5, 0, AxisType::Weak), j = range(192, 1, AxisType::Weak), r = range(192, 2, AxisType::Reduce);
  const UOp repeated = sink({put(buf(0, 960), i * 192 + j, at(buf(1, 240), i * 48 + floor_mod(j, 48)) + at(buf(2, 4), floor_div(j, 48)), {i, j})});
  EXPECT_EQ(check(repeated, 0, 3), "");
  EXPECT_EQ(n_gathers(lower_kernel(repeated, testing::test_target())), 0);
  // A weight for each channel of a group: the pixels of a channel are lanes.
  const UOp term = at(buf(1, 960), i * 192 + r) * at(buf(2, 20), i * 4 + floor_div(r, 48)), rr[] = {r};
  const UOp grouped = sink({put(buf(0, 5), i, reduce(term, "add", rr), {i})});
  EXPECT_EQ(check(grouped, 1e-5, 3), "");
  EXPECT_NE(to_text(codegen::optimize(grouped, testing::test_target())).find("split-reduce"), std::string::npos);
}

TEST(Lower, PartsOfAShortRowAreOnePassOverMemory) {
  // 28 = 16 + 8 + 4 lanes: three stores in one loop over the rows, also where each is a sum without a loop.
  const UOp i = range(64, 0, AxisType::Weak), j = range(28, 1, AxisType::Weak), r = range(3, 2, AxisType::Reduce);
  const UOp rr[] = {r};
  for (const UOp& value : {at(buf(1, 64 * 28), i * 28 + j), reduce(at(buf(1, 64 * 28 + 2), i * 28 + j + r), "max", rr)}) {
    const UOp k = sink({put(buf(0, 64 * 30), i * 30 + j, value, {i, j})});
    EXPECT_EQ(check(k, 0, 3), "");
    const UOp optimised = codegen::optimize(k, testing::test_target());
    EXPECT_EQ(optimised.n_src(), 3u);
    int64_t n_loops = 0;
    for (const Node* n : toposort(optimised)) n_loops += n->op == Op::Range && range_size(n) == 64;
    EXPECT_EQ(n_loops, 1) << to_text(optimised);
  }
}

TEST(Lower, TypesOfAxes) {
  // One nest by hand: GLOBAL x LOOP x UPCAST x LANE.
  const UOp g = range(3, 0, AxisType::Global), l = range(5, 1, AxisType::Loop), u = range(2, 2, AxisType::Upcast), v = range(8, 3, AxisType::Lane);
  const UOp e = ((g * 5 + l) * 2 + u) * 8 + v;
  const UOp k = sink({put(buf(0, 240), e, at(buf(1, 240), e) + at(buf(2, 30), (g * 5 + l) * 2 + u), {g, l, u, v})});
  const UOp p = lower_optimized(k, testing::test_target());
  EXPECT_EQ(testing::difference(k, p, 1e-5, 2), "");
  EXPECT_EQ(count(p, Op::Range), 2);
  EXPECT_EQ(count(p, Op::Store), 2);
  EXPECT_EQ(ProgramInfo::of(p).extent, 3);
}

TEST(Lower, CopiesOfAReduceHaveRegistersOfTheirOwn) {
  const UOp u = range(6, 0, AxisType::Upcast), w = range(2, 1, AxisType::Upcast), r = range(9, 2, AxisType::Reduce);
  const UOp rr[] = {r};
  const UOp sum = reduce(at(buf(1, 54), u * 9 + r), "add", rr);  // does not depend on w
  const UOp k = sink({put(buf(0, 12), u * 2 + w, sum * at(buf(2, 2), w), {u, w})});
  const UOp p = lower_optimized(k, testing::test_target());
  EXPECT_EQ(testing::difference(k, p), "");
  EXPECT_EQ(count(p, Op::Reg), 6);
}

TEST(Lower, SumAndScalarSum) {
  const UOp i = range(7, 0, AxisType::Weak), r = range(33, 1, AxisType::Reduce);
  const UOp rr[] = {r};
  EXPECT_EQ(check(sink({put(buf(0, 7), i, reduce(at(buf(1, 231), i * 33 + r), "add", rr), {i})})), "");
  const UOp all = range(1000, 0, AxisType::Reduce);
  const UOp ar[] = {all};
  const UOp k = sink({put(buf(0, 1), idx(0), reduce(at(buf(1, 1000), all), "max", ar), {})});
  EXPECT_EQ(check(k), "");
  EXPECT_EQ(ProgramInfo::of(lower_optimized(k, testing::test_target())).extent, 1);
}

TEST(Lower, SoftmaxSharesAndHoists) {
  const UOp i = range(6, 0, AxisType::Weak), j = range(50, 1, AxisType::Weak), r = range(50, 2, AxisType::Reduce), s = range(50, 3, AxisType::Reduce),
            t = range(50, 4, AxisType::Reduce);
  const UOp x = buf(1, 300);
  const UOp rr[] = {r}, ss[] = {s}, tt[] = {t};
  const UOp m = reduce(at(x, i * 50 + r), "max", rr);
  const UOp d = reduce(at(x, i * 50 + s) - m, "add", ss);
  const UOp q = reduce(at(x, i * 50 + t) * (at(x, i * 50 + t) - m), "add", tt);
  const UOp k = sink({put(buf(0, 300), i * 50 + j, (at(x, i * 50 + j) - m) * d + q, {i, j})});
  EXPECT_EQ(check(k), "");
  // i, j, the maximum, and one loop for both sums; a GLOBAL of extent 1.
  EXPECT_EQ(count(lower_optimized(k, testing::test_target()), Op::Range), 5);
}

TEST(Lower, NestedReduce) {
  const UOp i = range(4, 0, AxisType::Weak), r = range(5, 1, AxisType::Reduce), s = range(6, 2, AxisType::Reduce);
  const UOp rr[] = {r}, ss[] = {s};
  const UOp inner = reduce(at(buf(1, 120), (i * 5 + r) * 6 + s), "max", ss);
  EXPECT_EQ(check(sink({put(buf(0, 4), i, reduce(inner * at(buf(2, 5), r), "add", rr), {i})})), "");
}

TEST(Lower, GatesAndNegativeDivision) {
  const UOp i = range(20, 0, AxisType::Weak);
  const UOp inside = ge(i, 3) & lt(i, 15);
  EXPECT_EQ(check(sink({put(buf(0, 20), i, at(buf(1, 12), i - 3, inside), {i}, lt(i, 18))})), "");
  const UOp shifted = i - 10;
  EXPECT_EQ(check(sink({put(buf(0, 20), i, at(buf(1, 20), floor_mod(shifted, 7) + floor_div(shifted, 3) + 4), {i})})), "");
}

TEST(Lower, EverySecondElementWithinAnEdgeIsNoGather) {
  for (const int64_t first : {-4, -3, 0, 1})
    for (const int64_t n : {29, 30, 64}) {
      const UOp i = range(32, 0, AxisType::Weak), j = range(8, 1, AxisType::Weak), from = i * 2 + first;
      const UOp inside = ge(from, 0) & lt(from, n);
      const UOp k = sink({put(buf(0, 320), j * 40 + i, at(buf(1, n * 8), j * n + from, inside), {j, i})});
      EXPECT_EQ(check(k, 0), "");
      const UOp program = lower_kernel(k, testing::test_target());
      for (const Node* m : program->src()[1]->src()) EXPECT_FALSE(m->op == Op::Load && !m->src()[0]->src()[1]->shape.empty()) << first << " of " << n;
    }
}

TEST(Lower, ElementsThatAreReadSeveralTimesAreNoGather) {
  const UOp i = range(36, 0, AxisType::Weak), j = range(8, 1, AxisType::Weak);
  for (const int64_t times : {2, 3, 4}) {
    const UOp part = at(buf(1, 300), j * 36 + floor_div(i, times), lt(j, 7));
    const UOp k = sink({put(buf(0, 8 * 40), j * 40 + i, part, {j, i})});
    EXPECT_EQ(check(k, 0), "");
    if (times == 3) continue;  // does not divide the lanes
    const UOp program = lower_kernel(k, testing::test_target());
    for (const Node* m : program->src()[1]->src()) EXPECT_FALSE(m->op == Op::Load && !m->src()[0]->src()[1]->shape.empty()) << times;
  }
}

TEST(Lower, SeveralNests) {
  const UOp i = range(20, 0, AxisType::Weak), j = range(30, 1, AxisType::Weak);
  const UOp k = sink({put(buf(0, 20), i, at(buf(1, 20), i) * at(buf(0, 20), i), {i}), put(buf(2, 20), i, at(buf(0, 20), i) + at(buf(1, 20), i), {i}),
                      put(buf(3, 30), j, at(buf(4, 30), j) + at(buf(5, 1), idx(0)), {j})});
  // The first two are one nest: both read buffer 0 before it is written.
  const UOp p = lower_optimized(k, testing::test_target());
  EXPECT_EQ(ProgramInfo::of(p).extent, 2);
  testing::KernelMemory have(k), before(k);
  auto q = have.pointers();
  testing::BuiltKernel(p).run(q.data());
  const float *a = reinterpret_cast<float*>(before.bytes[0].data()), *b = reinterpret_cast<float*>(before.bytes[1].data());
  for (int n = 0; n < 20; ++n) {
    EXPECT_EQ(static_cast<float*>(q[0])[n], a[n] * b[n]);
    EXPECT_EQ(static_cast<float*>(q[2])[n], a[n] + b[n]);
  }
}

// The first output reads what the second overwrites: parts of a launch run at the same time.
TEST(Lower, OutputsOfANestAreOnePartOfTheLaunch) {
  const UOp i = range(16, 0, AxisType::Weak), r = range(100, 1, AxisType::Reduce);
  const UOp rr[] = {r};
  const UOp sum = reduce(at(buf(2, 100), r), "add", rr);  // serves all lanes
  const UOp k = sink({put(buf(0, 16), i, at(buf(0, 16), i) - at(buf(1, 16), i) * sum, {i}),
                      put(buf(1, 16), i, at(buf(1, 16), i) * constant(DType::Float32, 0.5) + sum, {i})});
  EXPECT_EQ(ProgramInfo::of(lower_kernel(k, testing::test_target())).extent, 1);
}

TEST(Lower, LanesOfAReduceAreFolded) {
  const UOp i = range(3, 0, AxisType::Weak), r = range(8, 1, AxisType::Reduce), u = range(2, 2, AxisType::Unroll), l = range(16, 3, AxisType::Lane);
  const UOp e = i * 256 + (r * 2 + u) * 16 + l;
  const UOp ranges[] = {r, u, l};
  const UOp k = sink({put(buf(0, 3), i, reduce(at(buf(1, 768), e) * at(buf(2, 768), e), "add", ranges), {i})});
  const UOp p = lower_optimized(k, testing::test_target());
  EXPECT_EQ(testing::difference(k, p), "");
  EXPECT_EQ(count(p, Op::MulAcc), 2);
  EXPECT_EQ(count(p, Op::Fold), 1);
}

TEST(Lower, StageAndPlacedAccumulators) {
  // C[i, j] = sum over (ko, k) of A[i, ko*8 + k] * B[ko*8 + k, j], with the K block outside of the output's loops and
  // B's block packed.
  const int64_t M = 6, N = 32, K = 24;
  const UOp ko = range(3, 0, AxisType::Reduce), i = range(M / 2, 1, AxisType::Loop), iu = range(2, 3, AxisType::Upcast),
            j = range(2, 2, AxisType::Loop), v = range(16, 4, AxisType::Lane), k = range(8, 5, AxisType::Reduce);
  const UOp pk = range(8, 6, AxisType::Loop), pj = range(2, 7, AxisType::Loop), pv = range(16, 8, AxisType::Lane);
  const UOp pack[] = {at(buf(2, K * N), (ko * 8 + pk) * N + pj * 16 + pv), pk, pj, pv};
  const UOp tile = UOp::make(Op::Stage, DType::Float32, pack);
  const UOp row = i * 2 + iu, ranges[] = {ko, k};
  const UOp product = at(buf(1, M * K), row * K + ko * 8 + k) * load(index(tile, (k * 2 + j) * 16 + v));
  const UOp sum = reduce(product, "add", ranges);
  const UOp out = row * N + j * 16 + v;
  // The graph the evaluator sees: without the STAGE.
  const UOp plain = reduce(at(buf(1, M * K), row * K + ko * 8 + k) * at(buf(2, K * N), (ko * 8 + k) * N + j * 16 + v), "add", ranges);
  const UOp bias = at(buf(3, N), j * 16 + v);
  const UOp want = sink({put(buf(0, M * N), out, plain * bias, {i, iu, j, v})});
  const UOp p = lower_optimized(sink({put(buf(0, M * N), out, sum * bias, {i, iu, j, v})}), testing::test_target());
  EXPECT_EQ(testing::difference(want, p), "");
  EXPECT_EQ(count(p, Op::Scratch), 1);
  EXPECT_EQ(ProgramInfo::of(p).scratch_bytes, 8 * N * 4);
}

TEST(Lower, DeepChain) {
  const UOp i = range(4, 0, AxisType::Weak);
  UOp v = at(buf(1, 4), i);
  for (int n = 0; n < 100000; ++n) v = alu(n % 2 ? Op::Add : Op::Sub, {v, constant(DType::Float32, 0.5)});
  const UOp p = lower_kernel(sink({put(buf(0, 4), i, v, {i})}), testing::test_target());
  EXPECT_GE(p.src(1).n_src(), 100000u);
}

}  // namespace
}  // namespace whit
