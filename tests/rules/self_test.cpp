// Every rule of every table proves itself: an instance of its left side is made from random leaves, the rule must fire
// on it, both sides must evaluate equal, the cost must not grow (unless the rule says why), and rewriting by the whole
// table must end, keep the value and be complete. The tables of decompose do so for a target that has no op; what they
// approximate is measured against `long double`.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numbers>
#include <set>
#include <unordered_set>

#include "interpret_tensor.h"
#include "ir/text.h"
#include "rules/decompose_build.h"
#include "rules/instance.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

// `evaluate` of this test knows no REDUCE: Loops.ThatAreNotUsedGo has one. Movement ops need shapes: Rules.EveryMovementRuleProvesItself.
const std::unordered_set<std::string> kTestedByHand = {"loops/reduce-unused"};

// "At most" of docs/accuracy.md, in ULP of the exact value.
const std::unordered_map<std::string, double> kMaxUlp = {{"decompose-math/exp2", 1}, {"decompose-math/log2", 1}, {"decompose-trig/sin", 1},
                                                         {"decompose-trig/cos", 2},  {"decompose-math/exp", 2},  {"decompose-math/logistic", 2},
                                                         {"decompose-math/pow", 4}};

bool is_transcendental(Op op) { return op == Op::Exp2 || op == Op::Log2 || op == Op::Sin || op == Op::Pow; }

// How a table is run, and what comes after it.
struct Setting {
  RewriteOptions options{};
  UOp (*all)(const UOp&) = simplify;
  int n_instances = 20;
};

// The exact value of what `kMaxUlp` names. A product with log2(e) is exact in both factors, others are rounded as they
// are written; so is an EXP2 that is infinite.
long double exact(const Node* n, Values& values, Instances& random) {
  const auto src = [&](size_t i) { return exact(n->src_begin()[i], values, random); };
  switch (n->op) {
    case Op::Exp2: {
      const long double v = std::exp2(src(0));
      return std::isinf(round_to(n->dtype, static_cast<double>(v))) ? HUGE_VALL : v;
    }
    case Op::Log2: return std::log2(src(0));
    case Op::Sin: return std::sin(src(0));
    case Op::Pow: return std::pow(src(0), src(1));
    case Op::Recip: return 1 / src(0);
    case Op::Add: return src(0) + src(1);
    case Op::Sub: {  // 1 - (s * s) * 2 with s = SIN(x * 0.5)
      const Node* const sine = n->src_begin()[1]->src_begin()[0]->src_begin()[0];
      return std::cos(exact(sine->src_begin()[0]->src_begin()[0], values, random));
    }
    case Op::Mul:
      for (const double log2e : {std::numbers::log2e, -std::numbers::log2e})
        if (n->src_begin()[1] == constant(n->dtype, log2e).node())
          return src(0) * std::copysign(std::numbers::log2e_v<long double>, static_cast<long double>(log2e));
      [[fallthrough]];
    default: return evaluate(UOp(n), values, random).f;
  }
}

// `got` is within `max_ulp` of the exact value.
bool is_near(const Scalar& got, long double want, double max_ulp) {
  const Scalar rounded = Scalar::of(got.dtype, static_cast<double>(want));
  if (same_value(got, rounded)) return true;
  if (std::isnan(got.f) || std::isnan(rounded.f) || std::isinf(want) || (got.f == 0 && rounded.f == 0)) return false;
  const bool is_f32 = got.dtype == DType::Float32;
  const int n_mantissa = is_f32 ? 23 : 52, least = is_f32 ? -126 : -1022, most = is_f32 ? 128 : 1024;
  const long double unit = std::ldexp(1.0L, std::max(want == 0 ? least : std::ilogb(want), least) - n_mantissa);
  const long double value = std::isinf(got.f) ? std::copysign(std::ldexp(1.0L, most), got.f) : got.f;
  return std::fabs(value - want) <= static_cast<long double>(max_ulp) * unit;
}

// `got` is `want` or next to it.
bool is_next(const Scalar& got, const Scalar& want) {
  if (same_value(got, want)) return true;
  if (std::isnan(got.f) || std::isnan(want.f) || (got.f == 0 && want.f == 0)) return false;
  const auto order = [](const Scalar& v) {
    uint64_t bits = 0;
    write_element(v.dtype, &bits, 0, v);
    const uint64_t sign = uint64_t{1} << (8 * n_bytes(v.dtype) - 1);
    return bits & sign ? -static_cast<int64_t>(bits & ~sign) : static_cast<int64_t>(bits);
  };
  return std::abs(order(got) - order(want)) <= 1;
}

void expect_equal(const UOp& before, const UOp& after, Instances& random, int n_inputs, const std::string& what, const std::string& rule = "") {
  ASSERT_EQ(before.dtype(), after.dtype()) << what;
  const auto bound = kMaxUlp.find(rule);
  const bool next_is_fine = rule.starts_with("decompose-narrow/") && is_transcendental(before.op());
  for (int t = 0; t < n_inputs; ++t) {
    Values values;
    const Scalar a = evaluate(before, values, random), b = evaluate(after, values, random);
    if (bound != kMaxUlp.end() ? is_near(b, exact(before.node(), values, random), bound->second) : next_is_fine ? is_next(b, a) : same_value(a, b))
      continue;
    std::string inputs;
    for (const auto& [n, v] : values) inputs += fmt::format("{} = {}\n", to_text(UOp(n)), show(v));
    FAIL() << what << ": " << show(a) << " became " << show(b) << "\n" << inputs << to_text(before) << "---\n" << to_text(after);
  }
}

void test_rule(const RuleSet& table, const Rule& rule, Instances& random, const Setting& setting = {}) {
  const std::string what = table.full_name(&rule);
  if (kTestedByHand.contains(what)) return;
  const RuleSet alone(what, {rule});
  const auto variants = expand_variants(rule.lhs);
  int n_fired = 0, n_first = 0;
  const auto n_failures = [] { return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count(); };
  const int n_before = n_failures();
  for (int t = 0; t < 20000 && (n_fired < setting.n_instances || n_first == 0); ++t) {
    const UOp before = random.make(variants[static_cast<size_t>(random.below(std::ssize(variants)))]);
    if (!before) continue;
    RuleCtx cx{.user = setting.options.ctx};
    const UOp after = alone.rewrite(before.node(), cx);
    if (!after) continue;
    const Rule* first = nullptr;
    (void)table.rewrite(before.node(), cx, &first);
    n_first += first == &rule;
    if (++n_fired > setting.n_instances) continue;
    // The rest of an approximation may be as written still: only the fixed point is accurate.
    if (!kMaxUlp.contains(what)) expect_equal(before, after, random, 50, what, what);
    if (!rule.grows_why) {
      EXPECT_LE(cost(after), cost(before)) << what << "\n" << to_text(before) << "---\n" << to_text(after);
    }
    const UOp full = graph_rewrite(before, table, setting.options);
    expect_equal(before, full, random, kMaxUlp.contains(what) ? 50 : 10, what + " then the table", what);
    EXPECT_EQ(graph_rewrite(full, table, setting.options), full) << what << ": the table changes its own result\n" << to_text(full);
    const UOp best = setting.all(before);
    expect_equal(before, best, random, 10, what + " then all tables", what);
    const UOp again = setting.all(best);
    EXPECT_EQ(again, best) << what << ": not a fixed point\n" << to_text(before) << "---\n" << to_text(best) << "---\n" << to_text(again);
    if (n_failures() != n_before) return;
  }
  EXPECT_GE(n_fired, 5) << what << " hardly ever fires on instances of its own pattern";
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
            ASSERT_TRUE(same_value(want.at(e), got.at(e))) << what << ": " << show(want.at(e)) << " became " << show(got.at(e)) << "\n"
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

const std::vector<const RuleSet*> kDecompositions = {&rules::decompose_int(), &rules::decompose_math(), &rules::decompose_trig(),
                                                     &rules::decompose_narrow()};

// tests/rules/fired.txt says which rules fire in models, in fuzzers and in the programs of programs_test.cpp
// (tools/rule_coverage.py). A rule that no program fires is of no use.
TEST(Rules, WhatFiresThemIsWrittenDown) {
  std::map<std::string, std::string> written;
  std::ifstream in("tests/rules/fired.txt");
  for (std::string line; std::getline(in, line);)
    if (const size_t space = line.find(' '); line[0] != '#') written[line.substr(0, space)] = line.substr(space + 1);
  std::vector<const RuleSet*> tables = rules::tables();
  tables.insert(tables.end(), kDecompositions.begin(), kDecompositions.end());
  std::set<std::string> names;
  for (const RuleSet* table : tables)
    for (const Rule* rule : table->rules()) names.insert(table->full_name(rule));
  for (const std::string& name : names) {
    EXPECT_TRUE(written.contains(name)) << name << " is new: run tools/rule_coverage.py";
    EXPECT_NE(written[name], "-") << name << " is fired by no model, fuzzer or program: write the program into programs_test.cpp, or take it out";
  }
  for (const auto& [name, by] : written) EXPECT_TRUE(names.contains(name)) << name << " is gone: take it out of tests/rules/fired.txt";
}

// For a target that can do nothing itself.
TEST(Rules, EveryDecompositionProvesItself) {
  static Caps nothing;
  Setting setting;
  setting.options.ctx = &nothing;
  setting.options.bottom_up = true;
  setting.options.vectors = true;
  setting.all = [](const UOp& u) { return decompose(u, nothing); };
  setting.n_instances = 200;
  Instances random(seed(), true);
  for (const RuleSet* table : kDecompositions)
    for (const Rule* rule : table->rules()) test_rule(*table, *rule, random, setting);
}

}  // namespace
}  // namespace whit::test
