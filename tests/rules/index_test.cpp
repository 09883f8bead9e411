// Index arithmetic: what rangeify makes from RESHAPE chains, windows and pads must become linear again.
#include <gtest/gtest.h>

#include <random>

#include "ir/build.h"
#include "rules/rules.h"

namespace whit {
namespace {

UOp loop(int64_t id, int64_t size) { return range(size, id, AxisType::Weak); }

// The expression in a short notation: r0*28 + r1.
std::string show(const UOp& a) {
  switch (a.op()) {
    case Op::Range: return fmt::format("r{}", range_id(a.node()));
    case Op::Const:
      return a.arg().is_invalid() ? "Invalid" : a.dtype() == DType::Bool ? (const_int(a) ? "true" : "false") : fmt::format("{}", const_int(a));
    case Op::Variable: return std::string(a.arg().at(0).as_str());
    default: {
      std::string out = a.op() == Op::Add        ? "+"
                        : a.op() == Op::Mul      ? "*"
                        : a.op() == Op::FloorDiv ? "//"
                        : a.op() == Op::FloorMod ? "%"
                        : a.op() == Op::CmpLt    ? "<"
                                                 : std::string(name(a.op()));
      if (a.n_src() != 2) {
        std::string list;
        for (const UOp& s : a.srcs()) list += (list.empty() ? "" : ", ") + show(s);
        return out + "(" + list + ")";
      }
      return "(" + show(a.src(0)) + out + show(a.src(1)) + ")";
    }
  }
}
#define EXPECT_SIMPLE(expr, want) EXPECT_EQ(show(simplify(expr)), want)

TEST(Index, FlattenAndUnflatten) {
  const UOp r0 = loop(0, 10), r1 = loop(1, 28), r2 = loop(2, 28);
  const UOp flat = (r0 * 28 + r1) * 28 + r2;
  EXPECT_SIMPLE(flat, "(((r0*784)+(r1*28))+r2)");
  EXPECT_SIMPLE(floor_div(flat, 28), "((r0*28)+r1)");
  EXPECT_SIMPLE(floor_mod(flat, 28), "r2");
  EXPECT_SIMPLE(floor_div(flat, 784), "r0");
  EXPECT_SIMPLE(floor_mod(floor_div(flat, 28), 28), "r1");
  EXPECT_SIMPLE(floor_mod(flat, 784), "((r1*28)+r2)");
  EXPECT_SIMPLE(floor_div(flat, 56), "((r0*14)+(r1//2))");
  EXPECT_SIMPLE(floor_mod(flat, 56), "(((r1%2)*28)+r2)");
  EXPECT_SIMPLE(floor_div(flat, 7), "(((r0*112)+(r1*4))+(r2//7))");
  EXPECT_SIMPLE(floor_mod(flat, 7), "(r2%7)");
}

TEST(Index, QuotientAndRemainderJoin) {
  const UOp x = loop(0, 1000), y = loop(1, 7);
  EXPECT_SIMPLE(floor_div(x, 12) * 12 + floor_mod(x, 12), "r0");
  EXPECT_SIMPLE(floor_mod(x, 12) * 3 + floor_div(x, 12) * 36, "(r0*3)");
  EXPECT_SIMPLE(floor_mod(floor_div(x, 4), 3) * 4 + floor_mod(x, 4) + floor_div(x, 12) * 12, "r0");
  EXPECT_SIMPLE(floor_mod(floor_div(x, 4), 3) * 4 + floor_mod(x, 4), "(r0%12)");
  EXPECT_SIMPLE(floor_div(x, 12) * 3 + floor_mod(floor_div(x, 4), 3), "(r0//4)");
  const UOp s = x * 8 + y;
  EXPECT_SIMPLE(floor_div(s, 24) * 24 + floor_mod(s, 24), "((r0*8)+r1)");
  // Two axes of 30 and 20 seen as 25 and 24 and back.
  const UOp a = loop(2, 30), b = loop(3, 20), f = a * 20 + b;
  EXPECT_SIMPLE(floor_div(f, 24) * 24 + floor_mod(f, 24), "((r2*20)+r3)");
}

TEST(Index, SplitRanges) {
  const UOp r = loop(0, 14), k = loop(1, 2);
  EXPECT_SIMPLE(floor_div(r * 2 + k, 2), "r0");
  EXPECT_SIMPLE(floor_mod(r * 2 + k, 2), "r1");
  const UOp outer = loop(2, 7), inner = loop(3, 4);
  const UOp joined = outer * 4 + inner;
  EXPECT_SIMPLE(floor_div(joined * 2 + k, 2), "((r2*4)+r3)");
  EXPECT_SIMPLE(floor_div(joined, 4) * 4 + floor_mod(joined, 4), "((r2*4)+r3)");
}

TEST(Index, NegativeOffsetsAndConstants) {
  const UOp r = loop(0, 14), k = loop(1, 3);
  EXPECT_SIMPLE(floor_div(r * 2 + k - 2 + 2, 2), "(r0+(r1//2))");
  EXPECT_SIMPLE(floor_div(r * 4 + 7, 4), "(r0+1)");
  EXPECT_SIMPLE(floor_mod(r * 4 + 7, 4), "3");
  EXPECT_SIMPLE(floor_div(r * 4 - 1, 4), "(r0+-1)");
  EXPECT_SIMPLE(floor_mod(r * 4 - 1, 4), "3");
  EXPECT_SIMPLE(floor_div(idx(27) - loop(2, 28), 28), "0");
  EXPECT_SIMPLE(floor_mod(idx(27) - loop(2, 28), 28), "((r2*-1)+27)");
  EXPECT_SIMPLE(floor_div(r * -1, -1), "r0");
  EXPECT_SIMPLE(floor_div(r * 3, -3), "(r0*-1)");
  EXPECT_SIMPLE(floor_div(floor_div(loop(2, 100), 3), 4), "(r2//12)");
  EXPECT_SIMPLE(floor_mod(floor_mod(loop(2, 100), 12), 4), "(r2%4)");
  EXPECT_SIMPLE(floor_div(floor_mod(loop(2, 100), 12), 4), "((r2//4)%3)");
  EXPECT_SIMPLE(floor_mod(floor_mod(loop(2, 100), 12) + r, 4), "((r0+r2)%4)");
}

TEST(Index, Comparisons) {
  const UOp r = loop(0, 14), k = loop(1, 4), s = loop(2, 14);
  EXPECT_SIMPLE(lt(r * 4 + k, 20), "(r0<5)");
  EXPECT_SIMPLE(lt(r * 4 + k, 56), "true");
  EXPECT_SIMPLE(lt(r * 4 + k, 0), "false");
  EXPECT_SIMPLE(lt(r * 4 + k, 18), "(((r0*4)+r1)<18)");
  EXPECT_SIMPLE(lt(floor_div(r, 3), 2), "(r0<6)");
  EXPECT_SIMPLE(ge(floor_div(r, 3), 2), "(5<r0)");
  EXPECT_SIMPLE(ge(r - 3, 0), "(2<r0)");
  EXPECT_SIMPLE(lt(r - 3, 5), "(r0<8)");
  EXPECT_SIMPLE(lt(r * -1 + 20, 9), "(11<r0)");
  EXPECT_SIMPLE(lt(r + s, s + 4), "(r0<4)");
  EXPECT_SIMPLE(lt(r, s), "(r0<r2)");
  EXPECT_SIMPLE(lt(r, r + k + 1), "true");
  EXPECT_SIMPLE(alu(Op::CmpEq, {r * 4 + 2, idx(10)}), "(r0CMPEQ2)");
  EXPECT_SIMPLE(alu(Op::CmpNe, {r * 4 + 2, idx(9)}), "true");
  EXPECT_SIMPLE(logical_not(lt(r, 5)), "(4<r0)");
}

TEST(Index, SumsAreInOneOrder) {
  const UOp r0 = loop(0, 5), r1 = loop(1, 6), r2 = loop(2, 7);
  EXPECT_SIMPLE(r2 + r0 + r1, "((r0+r1)+r2)");
  EXPECT_SIMPLE(r2 + (r0 + 3) + (r1 - 1), "(((r0+r1)+r2)+2)");
  EXPECT_SIMPLE((r2 - r0) + r0 * 3 - r2, "(r0*2)");
  EXPECT_SIMPLE(r0 * 2 + r0, "(r0*3)");
  EXPECT_SIMPLE(r0 - r0, "0");
}

TEST(Index, Gates) {
  const UOp r = loop(0, 30), k = loop(1, 3);
  const UOp inside = ge(r + k - 1, 0) & lt(r + k - 1, 28);
  EXPECT_SIMPLE(inside, "((0<(r0+r1))AND((r0+r1)<29))");
}

TEST(Index, ConditionIsUsed) {
  const UOp r = loop(0, 30);
  EXPECT_EQ(show(given(floor_mod(r, 10), lt(r, 10))), "r0");
  EXPECT_EQ(show(given(floor_div(r, 10), lt(r, 10))), "0");
  EXPECT_EQ(show(given(floor_div(r, 10), ge(r, 20))), "2");
  const UOp k = loop(1, 3), s = r + k;
  EXPECT_EQ(show(given(floor_mod(s - 1, 28), ge(s, 1) & lt(s, 29))), "((r0+r1)+-1)");
  EXPECT_EQ(show(given(floor_div(s - 1, 28), simplify(ge(s, 1) & lt(s, 29)))), "0");
}

// The place of a flat index in a shape, and back.
std::vector<UOp> unflatten(const UOp& flat, std::span<const int64_t> dims) {
  std::vector<UOp> out(dims.size());
  UOp left = flat;
  for (size_t axis = dims.size(); axis-- > 0;) {
    out[axis] = axis == 0 ? left : floor_mod(left, dims[axis]);
    left = floor_div(left, dims[axis]);
  }
  return out;
}
UOp flatten(std::span<const UOp> at, std::span<const int64_t> dims) {
  UOp flat = idx(0);
  for (size_t axis = 0; axis < dims.size(); ++axis) flat = flat * dims[axis] + at[axis];
  return flat;
}
Dims random_shape(std::mt19937& random, int64_t n_elems) {
  Dims out;
  while (n_elems > 1) {
    SmallVec<int64_t, 32> divisors;
    for (int64_t d = 2; d <= n_elems; ++d)
      if (n_elems % d == 0) divisors.push_back(d);
    out.push_back(divisors[random() % divisors.size()]);
    n_elems /= out.back();
  }
  return out;
}

TEST(Index, AnyChainOfReshapesIsLinearAgain) {
  std::mt19937 random(5);
  const int64_t sizes[] = {24, 60, 96, 144, 360, 600, 784, 1152};
  for (int t = 0; t < 2000; ++t) {
    const int64_t n_elems = sizes[random() % 8];
    const Dims dims = random_shape(random, n_elems);
    std::vector<UOp> loops;
    for (const int64_t d : dims) loops.push_back(loop(std::ssize(loops), d));
    const UOp want = simplify(flatten(loops, dims));
    UOp flat = want;
    std::string chain = dims.size() ? Shape(dims).str() : "";
    for (int64_t steps = 1 + random() % 3; steps > 0; --steps) {
      const Dims through = random_shape(random, n_elems);
      chain += " " + Shape(through).str();
      // Each index is simplified alone, as it is when other movement ops stand between.
      auto at = unflatten(flat, through);
      for (UOp& a : at) a = simplify(a);
      flat = simplify(flatten(at, through));
    }
    ASSERT_EQ(show(flat), show(want)) << chain;
  }
}

TEST(Index, Im2col) {
  // A 5x5 window over 28x28 in NCHW, columns (c, ky, kx) flattened and rows (b, y, x) flattened, then read.
  const UOp row = loop(0, 8 * 24 * 24), column = loop(1, 3 * 25);
  const UOp c = floor_div(column, 25), ky = floor_mod(floor_div(column, 5), 5), kx = floor_mod(column, 5);
  const UOp b = floor_div(row, 576), y = floor_mod(floor_div(row, 24), 24), xx = floor_mod(row, 24);
  // With the loops split the way a kernel splits them, nothing is left to divide.
  const UOp rb = loop(2, 8), ry = loop(3, 24), rx = loop(4, 24), rc = loop(5, 3), rky = loop(6, 5), rkx = loop(7, 5);
  const UOp address = ((b * 3 + c) * 28 + y + ky) * 28 + xx + kx;
  const UOp split = substitute(address, {{row.node(), (rb * 24 + ry) * 24 + rx}, {column.node(), (rc * 5 + rky) * 5 + rkx}});
  EXPECT_SIMPLE(split, "((((((r2*2352)+(r3*28))+r4)+(r5*784))+(r6*28))+r7)");
  // As one loop each: at most a quotient and a remainder an axis.
  const UOp simple = simplify(address);
  int64_t n_divisions = 0;
  for (const Node* a : toposort(simple)) n_divisions += a->op == Op::FloorDiv || a->op == Op::FloorMod;
  EXPECT_LE(n_divisions, 8) << show(simple);
}

TEST(Index, SizesThatAreSymbols) {
  const UOp n = variable("n", 1, 8), m = variable("m", 8, 16), r0 = loop(0, 8);
  const auto div = [](const UOp& a, const UOp& b) { return alu(Op::FloorDiv, {a, b}); };
  const auto mod = [](const UOp& a, const UOp& b) { return alu(Op::FloorMod, {a, b}); };
  EXPECT_SIMPLE(div(n, n), "1");
  EXPECT_SIMPLE(mod(n, n), "0");
  EXPECT_SIMPLE(div(n * m, m), "n");
  EXPECT_SIMPLE(mod(m * n, n), "0");
  EXPECT_SIMPLE(div(r0, m), "0");
  EXPECT_SIMPLE(mod(r0, m), "r0");
}

TEST(Loops, ThatAreNotUsedGo) {
  const UOp a = loop(0, 5), b = loop(1, 2), x = param(0, DType::Float32, {}), n = param(0, DType::Int32, {});
  const std::vector both{a, b};
  EXPECT_EQ(simplify(reduce(x, "max", both)), x);
  EXPECT_EQ(simplify(reduce(x, "add", both)), reduce(x, "add", both));  // ten roundings
  EXPECT_EQ(simplify(reduce(n, "add", both)), n * 10);
  const UOp masked = where(lt(a, 3), n, constant(DType::Int32, 0));
  EXPECT_EQ(simplify(reduce(masked, "add", both)), reduce(masked * 2, "add", std::vector{a}));
}

TEST(Index, WindowsWithSplitLoops) {
  const UOp o = loop(0, 12), kk = loop(1, 2), outer = loop(2, 3), inner = loop(3, 4);
  EXPECT_SIMPLE(floor_div(o * 2 + kk, 2), "r0");
  const UOp split = outer * 4 + inner;
  EXPECT_SIMPLE(floor_div(split * 2 + kk, 2), "((r2*4)+r3)");
  EXPECT_SIMPLE(floor_mod(split * 2 + kk, 8), "(r1+(r3*2))");
  EXPECT_SIMPLE(floor_div(split * 2 + kk, 8), "r2");
}

}  // namespace
}  // namespace whit
