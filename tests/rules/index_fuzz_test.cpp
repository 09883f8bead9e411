// Index arithmetic: random expressions, simplified, mean what they meant, and are simple: by evaluation at the corners and at
// random places, and for a part of them by Z3 for all values. Seeds: see fuzz_run.h.
#include <gtest/gtest.h>

#include <random>

#include "fuzz_run.h"
#include "ir/text.h"
#include "rules/prove.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed) {
    static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 28, 32, 60, 64, 100};
    const int64_t n_loops = 1 + below(4);
    for (int64_t id = 0; id < n_loops; ++id) leaves_.push_back(range(kSizes[below(std::ssize(kSizes))], id, AxisType::Weak));
    if (below(4) == 0) leaves_.push_back(variable("n", -below(3), 1 + below(40)));
  }

  UOp value(int64_t depth) {
    if (depth == 0 || below(10) == 0) return below(6) ? leaves_[below(std::ssize(leaves_))] : idx(below(9) - 2);
    const UOp x = value(depth - 1);
    switch (below(12)) {
      case 0:
      case 1: return floor_div(x, divisor());
      case 2:
      case 3: return floor_mod(x, divisor());
      case 4:
      case 5: return x * factor();
      case 6: return x + factor();
      case 7: return x - value(depth - 1);
      case 8: return below(3) ? where(condition(depth - 1), x, value(depth - 1)) : -x;
      case 9: return alu(below(2) ? Op::Max : Op::Min, {x, value(depth - 1)});
      default: return x + value(depth - 1);
    }
  }

  UOp condition(int64_t depth) {
    if (depth > 0 && below(4) == 0) return logical_not(condition(depth - 1));
    if (depth > 0 && below(3) == 0) return below(2) ? condition(depth - 1) & condition(depth - 1) : condition(depth - 1) | condition(depth - 1);
    static constexpr Op kOps[] = {Op::CmpLt, Op::CmpLt, Op::CmpEq, Op::CmpNe};
    const UOp x = value(depth), y = below(2) ? idx(factor()) : value(depth);
    return alu(kOps[below(4)], below(2) ? std::vector{x, y} : std::vector{y, x});
  }

  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }

 private:
  int64_t factor() {
    static constexpr int64_t kNumbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 28, 32, 49, 64, 100};
    return kNumbers[below(std::ssize(kNumbers))] * (below(4) ? 1 : -1);
  }
  // Mostly a positive one, as shapes give them; by 0 and negative ones it is defined too.
  int64_t divisor() { return below(20) ? std::abs(factor()) : below(2) ? factor() : 0; }

  std::mt19937_64 rng_;
  std::vector<UOp> leaves_;
};

// "" or the place where the two differ.
std::string difference(const UOp& before, const UOp& after, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<const Node*> leaves;
  for (const Node* n : toposort(before))
    if (n->op == Op::Range || n->op == Op::Variable) leaves.push_back(n);
  Instances unused(0);
  for (int t = 0; t < 40; ++t) {
    Values values;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const int64_t lo = leaves[i]->vmin, hi = leaves[i]->vmax;
      const bool is_corner = t < 16 && leaves.size() <= 4;
      const int64_t v = is_corner ? (t >> i & 1 ? hi : lo) : lo + static_cast<int64_t>(rng() % static_cast<uint64_t>(hi - lo + 1));
      values.emplace(leaves[i], Scalar::of(DType::WeakInt, v));
    }
    const Scalar a = evaluate(before, values, unused), b = evaluate(after, values, unused);
    if (same_value(a, b)) continue;
    std::string at;
    for (const Node* n : leaves) at += fmt::format(" {}={}", to_formula(UOp(n)), values.at(n).i);
    return fmt::format("{} became {} at{}", a.i, b.i, at);
  }
  return "";
}

struct Totals {
  int64_t n = 0, n_proved = 0, n_undecided = 0;
};

// "" or what is wrong with what `e` is simplified to.
std::string check(const UOp& e, uint64_t seed, bool prove, Totals& totals) {
  const UOp simple = simplify(e);
  if (const std::string what = difference(e, simple, seed); !what.empty()) return what;
  if (simplify(simple) != simple) return "what it becomes is simplified further";
  if (simple.vmin() > e.vmax() || simple.vmax() < e.vmin()) return "its bounds lie elsewhere";
  if (!prove || simple == e) return "";
  z3::context z;
  Proof proof = prove_firing(z, e, simple, 30);
  if (proof == Proof::Unknown) proof = prove_by_trying(e, simple);
  if (proof == Proof::No) return "Z3 has values for which it differs";
  ++(proof == Proof::Yes ? totals.n_proved : totals.n_undecided);
  return "";
}

UOp expression(uint64_t seed) {
  Maker maker(seed);
  const int64_t depth = 2 + maker.below(4);
  return maker.below(4) ? maker.value(depth) : maker.condition(depth);
}

// The smallest part of a wrong expression that is wrong too.
UOp smallest_wrong(const UOp& e, uint64_t seed) {
  Totals unused;
  for (const Node* n : toposort(e))
    if ((n->dtype == DType::WeakInt || n->dtype == DType::Bool) && !check(UOp(n), seed, false, unused).empty()) return UOp(n);
  return e;
}

TEST(IndexFuzz, SimplifiedMeansTheSame) {
  Totals totals;
  for (FuzzRun run(30, 4000); run.next(); totals.n = run.n()) {
    const uint64_t seed = run.seed();
    const UOp e = expression(seed);
    std::string what;
    try {
      what = check(e, seed, seed % 8 == 0, totals);
    } catch (const std::exception& error) {
      what = error.what();
    }
    if (what.empty()) continue;
    const UOp least = smallest_wrong(e, seed);
    ADD_FAILURE() << "seed " << seed << ": " << what << "\n"
                  << to_formula(least) << "\nbecomes " << to_formula(simplify(least)) << "\n"
                  << to_text(least);
  }
  printf("%lld expressions, %lld proved, %lld not decided\n", static_cast<long long>(totals.n), static_cast<long long>(totals.n_proved),
         static_cast<long long>(totals.n_undecided));
}

}  // namespace
}  // namespace whit::test
