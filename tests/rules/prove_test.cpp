// Proofs by Z3. Rules without function and condition are proved as they stand, constants included, for the index type
// (as unbounded integers), bool, and sized integers (as bit vectors). Rules with a condition or a function are proved on
// recorded firings: the nodes before and after, for all values of the leaves. "Unknown" is a failure.
#include "rules/prove.h"

#include <gtest/gtest.h>

#include <chrono>

#include "ir/text.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

bool divides_somewhere(const Pat& a) {
  for (unsigned s = 0; s < a.len; ++s)
    for (const Op o : {Op::Cdiv, Op::Cmod, Op::FloorDiv, Op::FloorMod})
      if (a.node[s].kind == pat::PatKind::Node && a.node[s].ops.has(o)) return true;
  return false;
}

// The patterns that a row stands for: a variant and an op of its root each.
std::vector<Pat> single_patterns(const Pat& lhs) {
  std::vector<Pat> out;
  for (const Pat& variant : expand_variants(lhs))
    for (int o = 0; o < kNumOps; ++o) {
      if (variant.node[0].kind != pat::PatKind::Node || !variant.node[0].ops.has(static_cast<Op>(o))) continue;
      Pat one = variant;
      one.node[0].ops = static_cast<Op>(o);
      if (is_comparison(static_cast<Op>(o))) one.node[0].dtypes &= pat::kBool;
      out.push_back(one);
    }
  return out;
}

TEST(Prove, RulesWithoutFunctionAndCondition) {
  int n_proofs = 0, n_rules = 0;
  for (const RuleSet* table : rules::tables())
    for (const Rule* rule : table->rules()) {
      if (rule->then || rule->when) continue;
      z3::context z;
      bool any = false;
      for (const Pat& lhs : single_patterns(rule->lhs))
        for (const DType dt : {DType::WeakInt, DType::Bool, DType::Int8, DType::UInt8, DType::Int16, DType::UInt16, DType::Int32, DType::UInt32,
                               DType::Int64, DType::UInt64})
          for (const DType operand : {DType::WeakInt, DType::Bool, DType::Int8, DType::UInt8}) {
            // The dtype of operands matters to comparisons alone; elsewhere one is enough.
            if (dt != DType::Bool && operand != DType::WeakInt) continue;
            // Division of wide bit vectors takes Z3 minutes, and is the same for every width.
            if (is_int(dt) && info(dt).bits > 16 && dt != DType::WeakInt && divides_somewhere(lhs)) continue;
            const Proof proof = prove_pattern(z, lhs, rule->rhs, dt, operand, 10000);
            if (proof == Proof::NotApplicable) continue;
            ++n_proofs;
            any = true;
            EXPECT_EQ(proof, Proof::Yes) << table->full_name(rule) << " for " << name(dt) << " of " << name(operand)
                                         << (proof == Proof::No ? " is wrong" : " is not decided");
          }
      n_rules += any;
    }
  printf("%d rules proved, %d proofs\n", n_rules, n_proofs);
  EXPECT_GT(n_rules, 45);
}

// Firings of each rule that works on integers and has a function, or a condition.
void prove_firings(int n_of_function, int n_of_condition, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  Instances random(11);
  int n_proofs = 0;
  for (const RuleSet* table : rules::tables()) {
    if (std::string_view(table->name()) == "loops") continue;
    for (const Rule* rule : table->rules()) {
      if (std::string_view(rule->name).ends_with("-of-product")) continue;  // DivisionOfAProduct
      if ((!rule->then && !rule->when) || (rule->lhs.node[0].dtypes & pat::kNonFloats) == 0) continue;
      const RuleSet alone(table->name(), {*rule});
      const auto variants = expand_variants(rule->lhs);
      int n = 0;
      const int n_firings = rule->then ? n_of_function : n_of_condition;
      z3::context z;
      const auto rule_start = std::chrono::steady_clock::now();
      for (int t = 0; t < n_firings * (rule->then ? 2000 : 400) && n < n_firings; ++t) {
        const UOp before = random.make(variants[static_cast<size_t>(random.below(std::ssize(variants)))]);
        const UOp after = before ? alone.rewrite(before) : UOp();
        if (!after) continue;
        Proof proof = prove_firing(z, before, after, 50);
        if (proof == Proof::Unknown) proof = prove_by_trying(before, after);
        if (proof == Proof::Unknown) proof = prove_firing(z, before, after, 20000);
        if (proof == Proof::NotApplicable) continue;
        ++n, ++n_proofs;
        ASSERT_EQ(proof, Proof::Yes) << table->full_name(rule) << (proof == Proof::No ? " is wrong" : " is not decided") << "\n"
                                     << to_text(before) << "---\n"
                                     << to_text(after);
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        if (spent.count() > seconds) {
          FAIL() << "out of time at " << table->full_name(rule) << " after " << n_proofs << " proofs";
        }
      }
      if (rule->then) {
        EXPECT_EQ(n, n_firings) << table->full_name(rule) << " fires too seldom";
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - rule_start;
      printf("%-24s %5d firings proved %8.2f s\n", rule->name, n, took.count());
    }
  }
  printf("%d firings proved\n", n_proofs);
}

// div-of-product and mod-of-product: a*b = b*q + r with b > 0 and 0 <= r < b has q = a and r = 0. Too nonlinear for
// integers, but true of reals, when a and q differ by at least 1.
TEST(Prove, DivisionOfAProduct) {
  z3::context z;
  const z3::expr a = z.real_const("a"), b = z.real_const("b"), q = z.real_const("q"), rem = z.real_const("rem");
  z3::solver solver = z3::tactic(z, "qfnra-nlsat").mk_solver();
  solver.add(b > 0 && a * b == b * q + rem && rem >= 0 && rem < b);
  solver.push();
  solver.add(q >= a + 1 || q <= a - 1);
  EXPECT_EQ(solver.check(), z3::unsat);
  solver.pop();
  solver.add(q == a && rem != 0);
  EXPECT_EQ(solver.check(), z3::unsat);
}

TEST(Prove, Firings) { prove_firings(1000, 30, 300); }
TEST(Prove, Firings_slow) { prove_firings(3000, 300, 1800); }

}  // namespace
}  // namespace whit::test
