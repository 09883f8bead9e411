// Every rule of every table proves itself: an instance of its left side is made from random leaves, the rule must fire
// on it, both sides must evaluate equal, the cost must not grow (unless the rule says why), and rewriting by the whole
// table must end, keep the value and be complete.
#include <gtest/gtest.h>

#include <cstdlib>
#include <unordered_set>

#include "ir/text.h"
#include "rules/instance.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

// Rules over what `evaluate` of this test does not know; each has a test of its own.
const std::unordered_set<std::string> kTestedByHand = {"loops/end-constant", "loops/reduce-constant",
                                                       "cast/bitcast-same", "cast/bitcast-bitcast"};

void expect_equal(const UOp& before, const UOp& after, Instances& random, int n_inputs, const std::string& what) {
  ASSERT_EQ(before.dtype(), after.dtype()) << what;
  for (int t = 0; t < n_inputs; ++t) {
    Values values;
    const Scalar a = evaluate(before, values, random), b = evaluate(after, values, random);
    if (same_value(a, b)) continue;
    std::string inputs;
    for (const auto& [n, v] : values) inputs += fmt::format("{} = {}\n", to_text(UOp(n)), show(v));
    FAIL() << what << ": " << show(a) << " became " << show(b) << "\n"
           << inputs << to_text(before) << "---\n"
           << to_text(after);
  }
}

void test_rule(const RuleSet& table, const Rule& rule, Instances& random) {
  const std::string what = table.full_name(&rule);
  if (kTestedByHand.contains(what) || what.starts_with("movement/")) return;
  const RuleSet alone(what, {rule});
  const auto variants = expand_variants(rule.lhs);
  int n_fired = 0, n_first = 0;
  const auto n_failures = [] {
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  };
  const int n_before = n_failures();
  for (int t = 0; t < 20000 && (n_fired < 20 || n_first == 0); ++t) {
    const UOp before = random.make(variants[static_cast<size_t>(random.below(std::ssize(variants)))]);
    if (!before) continue;
    const UOp after = alone.rewrite(before);
    if (!after) continue;
    RuleCtx cx;
    const Rule* first = nullptr;
    (void)table.rewrite(before.node(), cx, &first);
    n_first += first == &rule;
    if (++n_fired > 20) continue;
    expect_equal(before, after, random, 50, what);
    if (!rule.grows_why) {
      EXPECT_LE(cost(after), cost(before)) << what << "\n" << to_text(before) << "---\n" << to_text(after);
    }
    const UOp full = graph_rewrite(before, table);
    expect_equal(before, full, random, 10, what + " then the table");
    EXPECT_EQ(graph_rewrite(full, table), full) << what << ": the table changes its own result\n" << to_text(full);
    const UOp best = simplify(before);
    expect_equal(before, best, random, 10, what + " then all tables");
    EXPECT_EQ(simplify(best), best) << what << ": not a fixed point\n"
                                    << to_text(before) << "---\n"
                                    << to_text(best) << "---\n"
                                    << to_text(simplify(best));
    if (n_failures() != n_before) return;
  }
  EXPECT_GE(n_fired, 5) << what << " hardly ever fires on instances of its own pattern " << pat::to_string(rule.lhs);
  EXPECT_GE(n_first, 1) << what << " never fires first: earlier rules hide it";
}

// CI uses one seed; WHIT_FUZZ_SEED tries others.
uint64_t seed() {
  const char* text = getenv("WHIT_FUZZ_SEED");
  return text ? strtoull(text, nullptr, 10) : 1;
}

TEST(Rules, EveryRuleProvesItself) {
  Instances random(seed());
  int n_rules = 0, n_functions = 0;
  for (const RuleSet* table : rules::tables())
    for (const Rule* rule : table->rules()) {
      test_rule(*table, *rule, random);
      ++n_rules;
      n_functions += rule->then != nullptr;
    }
  printf("%d rules, %d of them functions\n", n_rules, n_functions);
}

}  // namespace
}  // namespace whit::test
