// Random tensor graphs: realize on REF against the reference evaluator of tensor graphs.
#include <cstdlib>

#include "base/os.h"
#include "unit/engine_test_util.h"

namespace whit::test {
namespace {

// WHIT_FUZZ_DEVICE=CPU compiles and runs the kernels.
const char* device() {
  const char* d = std::getenv("WHIT_FUZZ_DEVICE");
  return d ? d : "REF";
}

class Maker {
 public:
  explicit Maker(uint32_t seed) : gen_(seed) {}

  std::vector<UOp> graph() {
    const int n_inputs = pick(1, 3);
    for (int i = 0; i < n_inputs; ++i) {
      Dims d;
      for (int r = pick(1, 3); r > 0; --r) d.push_back(pick(1, 5));
      pool_.push_back(leaf(d));
    }
    for (int n = pick(3, 25); n > 0; --n) step();
    std::vector<UOp> roots;
    for (int n = pick(1, 3); n > 0; --n) roots.push_back(strong(any()));
    return roots;
  }

 private:
  int pick(int lo, int hi) { return lo + static_cast<int>(gen_() % static_cast<uint32_t>(hi - lo + 1)); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  UOp any() { return pool_[gen_() % pool_.size()]; }
  static UOp strong(const UOp& x) { return x; }

  UOp leaf(const Dims& d) {
    int64_t n = 1;
    for (const int64_t v : d) n *= v;
    std::vector<float> f(static_cast<size_t>(n));
    for (float& v : f) v = static_cast<float>(pick(-16, 16)) / 4;
    return reshape(engine::buffer_from_host(DType::Float32, f, device()), d);
  }

  void add(const UOp& x) {
    if (x.shape().numel() <= 600 && x.shape().size() <= 6) pool_.push_back(x);
  }

  // y with the shape of x, by whatever moves it there.
  UOp like(const UOp& y, const UOp& x) {
    if (y.shape() == x.shape()) return y;
    if (y.shape().numel() == x.shape().numel()) return reshape(y, x.shape());
    // One axis of it, spread.
    if (!x.shape().empty() && y.shape().numel() >= x.shape().back()) {
      const int64_t n = x.shape().back(), flat[] = {y.shape().numel()}, cut[] = {0, n};
      Dims ones(x.shape().size(), 1);
      ones[ones.size() - 1] = n;
      return expand(reshape(shrink(reshape(y, flat), cut), ones), x.shape());
    }
    return leaf(Dims(x.shape().begin(), x.shape().end()));
  }

  void step() {
    const UOp x = any();
    const size_t rank = x.shape().size();
    const auto axis = static_cast<int64_t>(rank == 0 ? 0 : static_cast<size_t>(pick(0, static_cast<int>(rank) - 1)));
    const int64_t size = rank ? x.shape()[static_cast<size_t>(axis)] : 1;
    switch (pick(0, 19)) {
      case 0:
      case 1:
      case 2: {
        const Op ops[] = {Op::Add, Op::Mul, Op::Sub, Op::Max, Op::Min};
        return add(alu(ops[pick(0, 4)], {clamp(x), clamp(like(any(), x))}));
      }
      case 3: return add(alu(Op::Exp2, {clamp(x) * cst(0.25, x)}));
      case 4: {
        if (chance(50)) return add(where(lt(x, like(any(), x)), x, like(any(), x)));
        // relu, and its gradient.
        const UOp c = lt(x, cst(1e-45, x)), r = where(c, cst(0, x), x);
        add(r);
        if (chance(50)) add(where(c, cst(0, x), like(any(), x)) * clamp(r));
        return;
      }
      case 5: {
        if (rank == 0) return;
        const char* m[] = {"add", "max", "min", "add"};
        Dims axes;
        for (size_t a = 0; a < rank; ++a)
          if (static_cast<int64_t>(a) == axis || chance(25)) axes.push_back(static_cast<int64_t>(a));
        return add(reduce_axes(x, m[pick(0, 3)], axes));
      }
      case 6: {
        Dims p(rank);
        for (size_t i = 0; i < rank; ++i) p[i] = static_cast<int64_t>(i);
        for (size_t i = rank; i-- > 1;) std::swap(p[i], p[gen_() % (i + 1)]);
        return add(permute(x, p));
      }
      case 7: {
        Dims p(2 * rank);
        for (int64_t& v : p) v = chance(50) ? 0 : pick(0, 2);
        return add(pad(x, p));
      }
      case 8: {
        Dims s(2 * rank);
        for (size_t i = 0; i < rank; ++i) {
          s[2 * i] = pick(0, static_cast<int>(x.shape()[i]) - 1);
          s[2 * i + 1] = pick(static_cast<int>(s[2 * i]) + 1, static_cast<int>(x.shape()[i]));
        }
        return add(shrink(x, s));
      }
      case 9: {
        if (rank == 0) return;
        const int64_t a[] = {axis};
        return add(flip(x, a));
      }
      case 10: {
        Dims d;
        int64_t n = x.shape().numel();
        while (n > 1 && d.size() < 4) {
          int64_t f = pick(1, 6);
          while (n % f) --f;
          d.push_back(f);
          n /= f;
        }
        d.push_back(n);
        return add(reshape(x, d));
      }
      case 11: {
        Dims d(x.shape().begin(), x.shape().end()), one = d;
        const auto at = static_cast<size_t>(pick(0, static_cast<int>(rank)));
        d.insert(d.begin() + at, pick(2, 4));
        one.insert(one.begin() + at, 1);
        return add(expand(reshape(x, one), d));
      }
      case 12: {
        if (rank == 0) return;
        const int k = pick(1, static_cast<int>(std::min<int64_t>(3, size))), d = size >= 2 * k ? pick(1, 2) : 1;
        if (d * (k - 1) + 1 > size) return;
        return add(window(x, axis, k, pick(1, 3), d));
      }
      case 13: {
        if (rank < 2 || axis == static_cast<int64_t>(rank) - 1) return;
        const int64_t k = x.shape().back(), s = pick(1, 3), d = pick(1, 2);
        return add(unwindow(x, axis, (size - 1) * s + d * (k - 1) + 1 + pick(0, 2), s, d));
      }
      case 14: return add(contiguous(x));
      case 15: return add(UOp::make(Op::Stack, x.dtype(), {x, like(any(), x), like(any(), x)}));
      case 16: {
        if (rank == 0) return;
        const UOp at = index_into(x.shape()[0], {pick(1, 4)});
        return add(gather(x, at));
      }
      case 17: {
        if (rank == 0) return;
        const UOp at = index_into(x.shape()[0], {pick(1, 4)});
        Dims d{at.shape()[0]};
        d.append(x.shape().begin() + 1, x.shape().end());
        return add(scatter(clamp(x), at, like(any(), leaf(d)), chance(50) ? "add" : "set"));
      }
      case 18: return store_step();
      default: {
        // The product-sum form.
        if (rank != 2) return;
        const UOp y = any();
        if (y.shape().size() != 2) return;
        const int64_t m = x.shape()[0], k = x.shape()[1], n = y.shape()[0];
        if (y.shape()[1] != k) return;
        return add(rs(sum(ex(rs(clamp(x), {m, 1, k}), {m, n, k}) * ex(rs(clamp(y), {1, n, k}), {m, n, k}), {2}), {m, n}));
      }
    }
  }
  // A store into a part of a buffer; older states stay in the pool.
  void store_step() {
    if (!state_ || chance(20)) state_ = leaf({pick(2, 12)});
    const int64_t n = state_.shape()[0], lo = pick(0, static_cast<int>(n) - 1), hi = pick(static_cast<int>(lo) + 1, static_cast<int>(n));
    const int64_t cut[] = {lo, hi};
    UOp view = chance(40) ? state_ : shrink(state_, cut);
    const int64_t zero[] = {0};
    if (chance(30)) view = flip(view, zero);
    const UOp value = chance(30) ? clamp(state_) : any();
    state_ = after(state_, view, like(value, view));
    add(state_);
  }
  UOp clamp(const UOp& x) { return alu(Op::Max, {alu(Op::Min, {x, cst(8, x)}), cst(-8, x)}); }
  UOp index_into(int64_t n, const Dims& d) {
    std::vector<int32_t> v;
    for (int64_t i = 0; i < Shape(d).numel(); ++i) v.push_back(pick(-1, static_cast<int>(n)));
    UOp at = reshape(engine::buffer_from_host(DType::Int32, v, device()), d);
    if (chance(30)) at = at + constant(DType::Int32, pick(-1, 1));
    return at;
  }

  std::mt19937 gen_;
  std::vector<UOp> pool_{};
  UOp state_{};
};

void run_one(uint32_t seed) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  if (std::getenv("WHIT_FUZZ_VERBOSE")) std::fprintf(stderr, "seed %u\n", seed);
  const std::vector<UOp> roots = Maker(seed).graph();
  const auto want = expected(roots);
  std::vector<UOp> got;
  try {
    got = engine::realize(roots);
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    ASSERT_EQ(got[i].shape(), roots[i].shape());
    expect_near(values(got[i]), want[i], 1e-3);
    if (testing::Test::HasFailure()) return;
  }
}

void run_many() {
  const char* seconds = std::getenv("WHIT_FUZZ_SECONDS");
  const char* first = std::getenv("WHIT_FUZZ_SEED");
  const int64_t end = os::now_ns() + (seconds ? std::atoll(seconds) : 2) * 1000000000;
  uint32_t seed = first ? static_cast<uint32_t>(std::atoll(first)) : 1;
  int n = 0;
  for (; n < (seconds ? 1 << 30 : 1500) && os::now_ns() < end && !testing::Test::HasFailure(); ++n) run_one(seed++);
  printf("%d graphs\n", n);
}

TEST(ScheduleFuzz, random_graphs) { run_many(); }

// Decisions are made as for large tensors.
TEST(ScheduleFuzz, random_graphs_as_if_large) {
  set_launch_cost(0);
  run_many();
  set_launch_cost(2500);
}

}  // namespace
}  // namespace whit::test
