// Bounds must hold: random expressions over variables, each evaluated on random values of the variables.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "ir/build.h"
#include "ir/eval.h"
#include "ir/text.h"

using namespace whit;

namespace {

struct Generator {
  std::mt19937_64 random;
  DType dtype;
  std::vector<UOp> ints, bools;

  int64_t below(int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }
  int64_t any_int() {
    const int64_t edges[] = {0, 1, -1, 2, -2, 3, 7, 8, 64, 127, 255, int_min(dtype), int_max(dtype)};
    if (below(3) == 0) return edges[below(static_cast<int64_t>(std::size(edges)))];
    return below(41) - 20;
  }

  UOp leaf(int i) {
    const auto sorted = [&](int64_t a, int64_t b) {
      a = wrap_to(dtype, a), b = wrap_to(dtype, b);
      return UOp::make(Op::Variable, dtype, {}, Arg::list({fmt::format("v{}", i).c_str(), std::min(a, b), std::max(a, b)}));
    };
    return sorted(any_int(), any_int());
  }

  void grow() {
    static constexpr Op kInt[] = {Op::Add,      Op::Sub, Op::Mul, Op::Max, Op::Min, Op::Cdiv, Op::Cmod, Op::FloorDiv,
                                  Op::FloorMod, Op::And, Op::Or,  Op::Xor, Op::Shl, Op::Shr,  Op::Pow};
    static constexpr Op kCompare[] = {Op::CmpLt, Op::CmpNe, Op::CmpEq};
    static constexpr Op kBool[] = {Op::And, Op::Or, Op::Xor, Op::Add, Op::Mul, Op::Max, Op::Min};
    const auto pick = [&](const std::vector<UOp>& from) { return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))]; };
    switch (below(8)) {
      case 0: ints.push_back(UOp::make(Op::Neg, dtype, {pick(ints)})); break;
      case 1: bools.push_back(UOp::make(kCompare[below(3)], DType::Bool, {pick(ints), pick(ints)})); break;
      case 2:
        if (!bools.empty()) bools.push_back(UOp::make(kBool[below(7)], DType::Bool, {pick(bools), pick(bools)}));
        break;
      case 3:
        if (!bools.empty()) ints.push_back(UOp::make(Op::Where, dtype, {pick(bools), pick(ints), pick(ints)}));
        break;
      case 4: {
        static constexpr DType kTypes[] = {DType::Int8,   DType::UInt8, DType::Int32,   DType::UInt32, DType::Int64,
                                           DType::UInt64, DType::Bool,  DType::WeakInt, DType::Float32};
        ints.push_back(UOp::make(Op::Cast, dtype, {UOp::make(Op::Cast, kTypes[below(9)], {pick(ints)})}));
        break;
      }
      default: ints.push_back(UOp::make(kInt[below(15)], dtype, {pick(ints), pick(ints)}));
    }
  }
};

TEST(IrBounds, HoldOnRandomExpressions) {
  const DType types[] = {DType::Int8, DType::UInt8, DType::Int32, DType::UInt32, DType::Int64, DType::UInt64, DType::WeakInt};
  for (int seed = 0; seed < 2000; ++seed) {
    Generator g{std::mt19937_64(static_cast<uint64_t>(seed)), types[seed % 7], {}, {}};
    std::vector<UOp> variables;
    for (int i = 0; i < 3; ++i) variables.push_back(g.leaf(i));
    g.ints = variables;
    for (int i = 0; i < 4; ++i) g.ints.push_back(constant(g.dtype, g.any_int()));
    for (int i = 0; i < 12; ++i) g.grow();
    std::vector<UOp> roots = g.ints;
    roots.insert(roots.end(), g.bools.begin(), g.bools.end());
    const NodeList order = toposort(roots);
    for (int sample = 0; sample < 30; ++sample) {
      std::unordered_map<const Node*, Scalar> values;
      bool overflowed = false;  // weakint is unbounded by contract: what does not fit int64 says nothing
      for (const Node* n : order) {
        Scalar v;
        if (n->op == Op::Variable) {
          const uint64_t width = static_cast<uint64_t>(n->vmax) - static_cast<uint64_t>(n->vmin);
          const uint64_t step = sample == 0 ? 0 : sample == 1 || width == ~uint64_t{0} ? width : g.random() % (width + 1);
          v = Scalar::of(n->dtype, static_cast<int64_t>(static_cast<uint64_t>(n->vmin) + step));
        } else if (n->op == Op::Const) {
          v = scalar_of(UOp(n));
        } else {
          std::vector<Scalar> src;
          for (const Node* s : n->src()) src.push_back(values.at(s));
          v = eval_scalar(n->op, n->dtype, src);
          if (n->dtype == DType::WeakInt && is_elementwise(n->op) && n->n_src <= 2 && n->op != Op::Cast) {
            const __int128 x = src[0].i, y = n->n_src > 1 ? src[1].i : 0;
            const __int128 exact = n->op == Op::Add ? x + y : n->op == Op::Sub ? x - y : n->op == Op::Mul ? x * y : n->op == Op::Neg ? -x : v.i;
            overflowed |= exact != v.i || n->op == Op::Pow || (n->op == Op::Shl && y >= 0 && (y > 62 || (x << y) != v.i)) ||
                          (y == -1 && x == std::numeric_limits<int64_t>::min());
          }
        }
        if (overflowed) break;
        values[n] = v;
        if (is_float(n->dtype)) continue;
        ASSERT_LE(n->vmin, v.i) << "seed " << seed << "\n" << to_text(UOp(n));
        ASSERT_GE(n->vmax, v.i) << "seed " << seed << "\n" << to_text(UOp(n));
      }
    }
  }
}

TEST(IrBounds, AreTightWhereIndexMathNeedsIt) {
  const UOp i = range(10, 0, AxisType::Weak), j = range(4, 1, AxisType::Weak);
  const auto bounds = [](const UOp& u) { return std::pair(u.vmin(), u.vmax()); };
  using Bounds = std::pair<int64_t, int64_t>;
  EXPECT_EQ(bounds(i * 4 + j), (Bounds{0, 39}));
  EXPECT_EQ(bounds(floor_div(i * 4 + j, 4)), (Bounds{0, 9}));
  EXPECT_EQ(bounds(floor_mod(i * 4 + j, 4)), (Bounds{0, 3}));
  EXPECT_EQ(bounds(floor_mod(j, 8)), (Bounds{0, 3}));
  EXPECT_EQ(bounds(floor_mod(j + 8, 8)), (Bounds{0, 3}));
  EXPECT_EQ(bounds(floor_div(i - 5, 2)), (Bounds{-3, 2}));
  EXPECT_EQ(bounds(lt(j, 4)), (Bounds{1, 1}));
  EXPECT_EQ(bounds(lt(i, 4)), (Bounds{0, 1}));
  EXPECT_EQ(bounds(ge(i, 10)), (Bounds{0, 0}));
  EXPECT_EQ(bounds(cast(constant(DType::Int32, 300), DType::UInt8)), (Bounds{0, 255}));
  EXPECT_EQ(bounds(pad(reshape(constant(DType::Int32, 5), Dims{1}), Dims{1, 0})), (Bounds{0, 5}));
}

}  // namespace
