// Every rule of every table proves itself: an instance of its left side is made from random leaves, the rule must fire
// on it, both sides must evaluate equal, the cost must not grow (unless the rule says why), and rewriting by the whole
// table must end, keep the value and be complete.
#include <gtest/gtest.h>

#include <cstdlib>
#include <unordered_set>

#include "ir/interpret.h"
#include "ir/text.h"
#include "rules/instance.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

// Rules over what `evaluate` of this test does not know; each has a test of its own.
const std::unordered_set<std::string> kTestedByHand = {
    "loops/end-constant", "loops/reduce-constant", "loops/reduce-unused", "cast/bitcast-same", "cast/bitcast-bitcast"};

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

// The same rules over tensors: some leaves get a shape, others stay scalars that are spread.
TEST(Rules, ShapesAreKept) {
  Instances random(seed() + 100);
  for (const RuleSet* table : {&rules::algebra(), &rules::index(), &rules::gate(), &rules::cast()})
    for (const Rule* rule : table->rules()) {
      const auto variants = expand_variants(rule->lhs);
      int n_fired = 0;
      for (int t = 0; t < 2000 && n_fired < 10; ++t) {
        const UOp scalar = random.make(variants[static_cast<size_t>(random.below(std::ssize(variants)))]);
        if (!scalar) continue;
        std::unordered_map<const Node*, UOp> shaped;
        bool usable = true;
        for (const Node* n : toposort(scalar)) {
          usable &= n->op != Op::Index && n->op != Op::Load && n->op != Op::Range && n->op != Op::Threefry;
          if (n->op != Op::Param && n->op != Op::Variable) continue;
          if (random.chance(60)) shaped[n] = param(1000 + std::ssize(shaped), n->dtype, Dims{3});
        }
        if (!usable || shaped.empty()) continue;
        const UOp before = substitute(scalar, shaped);
        RuleCtx cx;
        const UOp after = RuleSet("alone", std::span(rule, 1)).rewrite(before.node(), cx);
        if (!after) continue;
        ++n_fired;
        const std::string what = table->full_name(rule);
        const UOp full = graph_rewrite(before, rules::symbolic());
        ASSERT_EQ(after.shape(), before.shape()) << what << "\n" << to_text(before) << "---\n" << to_text(after);
        ASSERT_EQ(full.shape(), before.shape()) << what << "\n" << to_text(before) << "---\n" << to_text(full);
        HostInputs inputs;
        std::vector<std::vector<std::byte>> memory;
        for (const Node* n : toposort(before)) {
          if (n->op == Op::Variable) inputs.variables[std::string(n->arg.at(0).as_str())] = random.random_value(n).i;
          if (n->op != Op::Param) continue;
          const DType stored = strong_dtype(n->dtype, DType::Int64, DType::Float64);
          auto& bytes = memory.emplace_back(static_cast<size_t>(n->shape.numel() * n_bytes(stored)));
          for (int64_t e = 0; e < n->shape.numel(); ++e) {
            Scalar one = random.random_value(n);
            if (n->dtype == DType::WeakInt) one.i %= 1000;
            one.dtype = stored;
            write_element(stored, bytes.data(), e, one);
          }
          inputs.memory[n] = bytes.data();
        }
        const HostTensor want = evaluate_tensor(before, inputs);
        for (const UOp& got_graph : {after, full}) {
          const HostTensor got = evaluate_tensor(got_graph, inputs);
          for (int64_t e = 0; e < want.shape.numel(); ++e)
            ASSERT_TRUE(same_value(want.at(e), got.at(e)))
                << what << ": " << show(want.at(e)) << " became " << show(got.at(e)) << "\n"
                << to_text(before) << "---\n"
                << to_text(got_graph);
        }
      }
    }
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
