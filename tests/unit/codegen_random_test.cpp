// Random kernels, optimised or not, against the reference evaluator.
#include <gtest/gtest.h>

#include "ir/build.h"
#include "ir/text.h"
#include "unit/run_kernel.h"

namespace whit {
namespace {

class RandomKernel {
 public:
  explicit RandomKernel(unsigned seed) : gen_(seed) {}

  UOp make() {
    const int n_out = pick(0, 3);
    std::vector<UOp> out;
    for (int i = 0; i < n_out; ++i) out.push_back(axis(AxisType::Weak));
    std::vector<UOp> ends;
    const int n_stores = pick(1, 2);
    for (int s = 0; s < n_stores; ++s) {
      const UOp v = value(out, pick(1, 4));
      ends.push_back(end(store(index(fresh_buffer(out, v.dtype()), flat_, UOp()), v), out));
    }
    if (pick(0, 3) == 0) {  // an independent nest
      const std::vector<UOp> other{axis(AxisType::Weak)};
      const UOp v = value(other, 2);
      ends.push_back(end(store(index(fresh_buffer(other, v.dtype()), flat_), v), other));
    }
    return UOp::make(Op::Sink, DType::Void, ends, Arg::list({Arg("random")}));
  }

 private:
  int pick(int lo, int hi) { return lo + static_cast<int>(gen_() % static_cast<unsigned>(hi - lo + 1)); }
  UOp axis(AxisType t) {
    static constexpr int kSizes[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 20, 33, 64, 70, 100};
    const int size = kSizes[pick(0, 13)];
    budget_ *= size;
    return range(budget_ > 60000 ? (budget_ /= size, 2) : size, next_range_++, t);
  }
  // A buffer that is indexed by all the ranges in row-major order, or in another one; flat_ is the index.
  UOp fresh_buffer(std::vector<UOp> ranges, DType dt, bool shuffled = false) {
    if (shuffled) std::shuffle(ranges.begin(), ranges.end(), gen_);
    flat_ = idx(0);
    int64_t n = 1;
    for (const UOp& r : ranges) {
      flat_ = flat_ * range_size(r.node()) + r;
      n *= range_size(r.node());
    }
    return param(next_slot_++, dt, std::vector<int64_t>{n});
  }
  UOp leaf(const std::vector<UOp>& ranges) {
    std::vector<UOp> some;
    for (const UOp& r : ranges)
      if (pick(0, 3) > 0) some.push_back(r);
    const int kind = pick(0, 9);
    if (kind == 0 && !some.empty()) {  // a stride
      const UOp r = some[static_cast<size_t>(pick(0, static_cast<int>(some.size()) - 1))];
      const int64_t by = pick(2, 3);
      return load(index(param(next_slot_++, DType::Float32, std::vector<int64_t>{range_size(r.node()) * by}), r * by + 1));
    }
    if (kind == 1 && !some.empty()) {  // padding
      const UOp r = some[0];
      const int64_t n = std::max<int64_t>(1, range_size(r.node()) - 2);
      return load(index(param(next_slot_++, DType::Float32, std::vector<int64_t>{n}), r - 1, ge(r, 1) & lt(r, n + 1)));
    }
    if (kind == 2 && !some.empty()) {  // a flip
      const UOp r = some[0];
      const int64_t n = range_size(r.node());
      return load(index(param(next_slot_++, DType::Float32, std::vector<int64_t>{n}), idx(n - 1) - r));
    }
    if (kind == 3 && !some.empty()) return cast(some.back(), DType::Float32) * constant(DType::Float32, 0.125);
    if (kind == 4) {  // division
      UOp b = fresh_buffer(some, DType::Float32);
      const UOp i = floor_div(flat_, 3) + floor_mod(flat_, 3);
      return load(index(b, alu(Op::Min, {i, idx(b.shape()[0] - 1)})));
    }
    if (kind == 5) {
      const UOp b = fresh_buffer(some, DType::Int32, true);
      return cast(load(index(b, flat_)), DType::Float32);
    }
    const UOp b = fresh_buffer(some, DType::Float32, pick(0, 2) == 0);
    return load(index(b, flat_));
  }
  UOp value(const std::vector<UOp>& ranges, int depth) {
    if (depth == 0) return leaf(ranges);
    switch (pick(0, 7)) {
      case 0: return value(ranges, depth - 1) + value(ranges, depth - 1);
      case 1: return value(ranges, depth - 1) * value(ranges, depth - 1);
      case 2: return alu(Op::Max, {value(ranges, depth - 1), leaf(ranges)});
      case 3: {
        const UOp a = leaf(ranges);
        return where(lt(a, constant(DType::Float32, 0.25)), a, value(ranges, depth - 1));
      }
      case 4:
      case 5:
      case 6: {
        std::vector<UOp> inner = ranges, closed;
        const int n = pick(1, 2);
        for (int i = 0; i < n; ++i) {
          closed.push_back(axis(AxisType::Reduce));
          inner.push_back(closed.back());
        }
        static constexpr const char* kMonoids[] = {"add", "add", "max", "min"};
        UOp x = value(inner, depth - 1);
        const char* m = kMonoids[pick(0, 3)];
        return reduce(pick(0, 1) ? x * leaf(inner) : x, m, closed);
      }
      default: return leaf(ranges);
    }
  }

  std::mt19937 gen_;
  int64_t next_range_ = 0, next_slot_ = 0;
  int64_t budget_ = 1;
  UOp flat_;
};

TEST(RandomKernels, LikeTheEvaluator) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    const UOp k = RandomKernel(seed).make();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    if (seed % 3 == 0) {
      ASSERT_EQ(testing::difference(k, lower_optimized(k, testing::test_target()), 1e-4), "") << to_text(k);
    }
    Target t = testing::test_target();
    t.n_cores = 2;
    ASSERT_EQ(testing::difference(k, lower_kernel(k, t), 1e-4, 1 + static_cast<int>(seed % 3)), "") << to_text(k);
  }
}

}  // namespace
}  // namespace whit
