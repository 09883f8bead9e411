// Proofs by Z3. Rules without function and condition are proved as they stand, constants included, for the index type
// (as unbounded integers), bool, and sized integers (as bit vectors). Rules with a condition or a function are proved on
// recorded firings: the nodes before and after, for all values of the leaves. "Unknown" is a failure.
#include <gtest/gtest.h>
#include <z3++.h>

#include <chrono>
#include <cstdlib>

#include "ir/text.h"
#include "rules/instance.h"
#include "rules/rules.h"

namespace whit::test {
namespace {

using pat::PatKind;
using pat::PatNode;

bool provable_dtype(DType dt) { return dt == DType::Bool || is_int(dt); }

// What the ops mean. Every value is a z3 Int (weakint), Bool, or bit vector.
class Prover {
 public:
  explicit Prover(z3::context& context) : z(context) {}
  z3::context& z;

  z3::expr number(DType dt, int64_t value) {
    if (dt == DType::Bool) return z.bool_val(value != 0);
    if (dt == DType::WeakInt) return z.int_val(value);
    return z.bv_val(value, static_cast<unsigned>(info(dt).bits));
  }
  z3::expr fresh(DType dt, const std::string& name) {
    if (dt == DType::Bool) return z.bool_const(name.c_str());
    if (dt == DType::WeakInt) return z.int_const(name.c_str());
    return z.bv_const(name.c_str(), static_cast<unsigned>(info(dt).bits));
  }
  bool less(DType dt, const z3::expr& a, const z3::expr& b, z3::expr* out) {
    *out = dt == DType::Bool ? !a && b : dt == DType::WeakInt ? a < b : is_unsigned(dt) ? z3::ult(a, b) : a < b;
    return true;
  }
  // x / y rounded down or towards zero; 0 for y = 0.
  z3::expr quotient(DType dt, const z3::expr& a, const z3::expr& b, bool down) {
    const z3::expr zero = number(dt, 0);
    if (dt == DType::WeakInt) {  // z3's div leaves a remainder that is not negative
      const z3::expr floor = z3::ite(b > 0, a / b, (-a) / (-b));
      const z3::expr towards_zero =
          z3::ite(a >= 0, z3::ite(b > 0, a / b, -(a / -b)), z3::ite(b > 0, -((-a) / b), (-a) / (-b)));
      return z3::ite(b == zero, zero, down ? floor : towards_zero);
    }
    if (is_unsigned(dt)) return z3::ite(b == zero, zero, z3::udiv(a, b));
    const z3::expr q = a / b, rem = z3::srem(a, b);
    if (!down) return z3::ite(b == zero, zero, q);
    return z3::ite(b == zero, zero, z3::ite(rem != zero && (rem < zero) != (b < zero), q - number(dt, 1), q));
  }
  /// False when the op has no translation.
  bool apply(Op op, DType dt, DType from, const std::vector<z3::expr>& s, z3::expr* out) {
    const bool boolean = from == DType::Bool;
    constexpr OpSet kNumbersOnly{Op::Neg, Op::Sub, Op::Cdiv, Op::Cmod, Op::FloorDiv, Op::FloorMod, Op::Shl, Op::Shr};
    if (boolean && kNumbersOnly.has(op)) return false;
    switch (op) {
      case Op::Neg:
        *out = -s[0];
        return true;
      case Op::Add:
        *out = boolean ? s[0] || s[1] : s[0] + s[1];
        return true;
      case Op::Mul:
        *out = boolean ? s[0] && s[1] : s[0] * s[1];
        return true;
      case Op::Sub:
        *out = s[0] - s[1];
        return true;
      case Op::Max:
      case Op::Min: {
        if (boolean) {
          *out = op == Op::Max ? s[0] || s[1] : s[0] && s[1];
          return true;
        }
        z3::expr lower(z);
        less(dt, s[0], s[1], &lower);
        *out = op == Op::Max ? z3::ite(lower, s[1], s[0]) : z3::ite(lower, s[0], s[1]);
        return true;
      }
      case Op::Cdiv:
      case Op::FloorDiv:
        *out = quotient(dt, s[0], s[1], op == Op::FloorDiv);
        return true;
      case Op::Cmod:
      case Op::FloorMod:
        *out = s[0] - s[1] * quotient(dt, s[0], s[1], op == Op::FloorMod);
        return true;
      case Op::And:
      case Op::Or:
      case Op::Xor:
        if (dt == DType::WeakInt) return false;
        if (op == Op::And) *out = boolean ? s[0] && s[1] : s[0] & s[1];
        if (op == Op::Or) *out = boolean ? s[0] || s[1] : s[0] | s[1];
        if (op == Op::Xor) *out = boolean ? s[0] != s[1] : s[0] ^ s[1];
        return true;
      case Op::Shl:
        if (dt == DType::WeakInt) return false;
        *out = z3::shl(s[0], s[1]);
        return true;
      case Op::Shr:
        if (dt == DType::WeakInt) return false;
        *out = is_unsigned(dt) ? z3::lshr(s[0], s[1]) : z3::ashr(s[0], s[1]);
        return true;
      case Op::CmpLt:
        return less(from, s[0], s[1], out);
      case Op::CmpNe:
        *out = s[0] != s[1];
        return true;
      case Op::CmpEq:
        *out = s[0] == s[1];
        return true;
      case Op::Where:
        *out = z3::ite(s[0], s[1], s[2]);
        return true;
      case Op::Cast: {
        if (from == dt) {
          *out = s[0];
          return true;
        }
        if (dt == DType::Bool) {
          *out = s[0] != number(from, 0);
          return true;
        }
        if (boolean) {
          *out = z3::ite(s[0], number(dt, 1), number(dt, 0));
          return true;
        }
        if (dt == DType::WeakInt || from == DType::WeakInt) return false;
        const auto have = static_cast<unsigned>(info(from).bits), want = static_cast<unsigned>(info(dt).bits);
        *out = want <= have        ? s[0].extract(want - 1, 0)
               : is_unsigned(from) ? z3::zext(s[0], want - have)
                                   : z3::sext(s[0], want - have);
        return true;
      }
      default:
        return false;
    }
  }

  // ---- patterns: slots are free, constants too
  std::map<uint8_t, z3::expr> slots;
  const PatNode* pattern(const PatNode* a, DType dt, z3::expr* out, bool* ok, bool boolean_root = false) {
    (void)boolean_root;
    if (a->kind != PatKind::Node) {
      const bool literal = a->kind == PatKind::IntLit;
      if (a->kind == PatKind::FloatLit || (a->dtypes & pat::bit(dt)) == 0) *ok = false;
      if (literal && is_int(dt) && (a->imm < int_min(dt) || a->imm > int_max(dt))) *ok = false;
      if (!*ok) return a + 1;
      if (literal) {
        *out = number(dt, a->imm);
      } else {
        auto found = slots.find(a->slot);
        if (found == slots.end()) found = slots.emplace(a->slot, fresh(dt, pat::slot_name(a->slot))).first;
        *out = found->second;
        // A name that stands for two dtypes has no single sort.
        if (!z3::eq(found->second.get_sort(), fresh(dt, "probe").get_sort())) *ok = false;
      }
      return a + 1;
    }
    Op op = Op::Const;
    int n_ops = 0;
    for (int o = 0; o < kNumOps; ++o)
      if (a->ops.has_bit(static_cast<unsigned>(o))) op = static_cast<Op>(o), ++n_ops;
    if (n_ops != 1 || op == Op::Cast || (a->flags & ~PatNode::kFold) != 0 || a->slot != pat::kNoSlot ||
        (is_comparison(op) && operand == DType::Void))
      *ok = false;
    DType from = is_comparison(op) ? operand : dt;
    if (is_comparison(op) != (is_comparison(op) && dt == DType::Bool)) *ok = false;
    std::vector<z3::expr> src;
    const PatNode* next = a + 1;
    for (unsigned s = 0; s < a->n_src && *ok; ++s) {
      src.emplace_back(z);
      next = pattern(next, op == Op::Where && s == 0 ? DType::Bool : from, &src.back(), ok);
    }
    if (*ok && src.size() == a->n_src) *ok = apply(op, dt, from, src, out);
    return next;
  }
  DType operand = DType::Void;  // of comparisons in a pattern

  // ---- nodes: leaves are free within their bounds
  std::map<const Node*, z3::expr> done;
  std::vector<z3::expr> bounds;
  bool node(const UOp& root, z3::expr* out) {
    for (const Node* n : toposort(root)) {
      if (done.contains(n)) continue;
      if (n->op == Op::Index || n->op == Op::Load || (n->op == Op::Param && !n->shape.empty())) continue;
      if (!provable_dtype(n->dtype)) return false;
      z3::expr value(z);
      if (n->op == Op::Const) {
        value = number(n->dtype, n->arg.to_int());
      } else if (n->op == Op::Param || n->op == Op::Variable || n->op == Op::Range) {
        value = fresh(n->dtype, fmt::format("leaf{}", done.size()));
        if (n->dtype == DType::Bool) {
          if (n->vmin == n->vmax) bounds.push_back(value == number(n->dtype, n->vmin));
        } else if (n->op != Op::Param) {
          z3::expr low(z), high(z);
          less(n->dtype, value, number(n->dtype, n->vmin), &low);
          less(n->dtype, number(n->dtype, n->vmax), value, &high);
          bounds.push_back(!low && !high);
        }
      } else {
        std::vector<z3::expr> src;
        for (const Node* s : n->src()) {
          const auto found = done.find(s);
          if (found == done.end()) return false;
          src.push_back(found->second);
        }
        if (!apply(n->op, n->dtype, n->src_begin()[n->op == Op::Where ? 1 : 0]->dtype, src, &value)) return false;
      }
      done.emplace(n, value);
    }
    *out = done.at(root.node());
    return true;
  }

  z3::check_result refute(const z3::expr& claim, unsigned timeout_ms) {
    z3::solver solver(z, z3::solver::simple());
    solver.set("timeout", timeout_ms);
    for (const z3::expr& b : bounds) solver.add(b);
    solver.add(!claim);
    return solver.check();
  }
};

enum class Proof { Yes, No, Unknown, NotApplicable };
Proof of(z3::check_result refuted) {
  return refuted == z3::unsat ? Proof::Yes : refuted == z3::sat ? Proof::No : Proof::Unknown;
}

Proof prove_pattern(z3::context& z, const Pat& lhs, const Pat& rhs, DType dt, DType operand, unsigned timeout_ms) {
  Prover prover(z);
  prover.operand = operand;
  z3::expr a(prover.z), b(prover.z);
  bool ok = (lhs.node[0].dtypes & pat::bit(dt)) != 0;
  if (ok) prover.pattern(lhs.node, dt, &a, &ok);
  if (ok) prover.pattern(rhs.node, dt, &b, &ok);
  return ok ? of(prover.refute(a == b, timeout_ms)) : Proof::NotApplicable;
}

Proof prove_firing(z3::context& z, const UOp& before, const UOp& after, unsigned timeout_ms) {
  Prover prover(z);
  z3::expr a(prover.z), b(prover.z);
  if (before.op() == Op::Index) {  // the gates agree, and where they are true the addresses do
    z3::expr gate(prover.z), new_gate = prover.z.bool_val(true);
    if (!prover.node(before.src(1), &a) || !prover.node(before.src(2), &gate) || !prover.node(after.src(1), &b))
      return Proof::NotApplicable;
    if (after.n_src() > 2 && !prover.node(after.src(2), &new_gate)) return Proof::NotApplicable;
    return of(prover.refute(gate == new_gate && (!gate || a == b), timeout_ms));
  }
  if (!prover.node(before, &a) || !prover.node(after, &b)) return Proof::NotApplicable;
  return of(prover.refute(a == b, timeout_ms));
}

// Tries all values of the leaves when they are few: a proof where Z3's nonlinear arithmetic gives up.
Proof prove_by_trying(const UOp& before, const UOp& after) {
  std::vector<const Node*> leaves;
  int64_t n_cases = 1;
  for (const Node* n : toposort(before)) {
    if (n->op == Op::Load || n->op == Op::Index || (n->op == Op::Param && n->dtype != DType::Bool))
      return Proof::Unknown;
    if (n->op != Op::Range && n->op != Op::Variable && n->op != Op::Param) continue;
    leaves.push_back(n);
    if ((n_cases *= n->vmax - n->vmin + 1) > 500000) return Proof::Unknown;
  }
  Instances unused(0);
  for (int64_t c = 0; c < n_cases; ++c) {
    Values values;
    int64_t left = c;
    for (const Node* n : leaves) {
      values.emplace(n, Scalar::of(n->dtype, n->vmin + left % (n->vmax - n->vmin + 1)));
      left /= n->vmax - n->vmin + 1;
    }
    if (!same_value(evaluate(before, values, unused), evaluate(after, values, unused))) return Proof::No;
  }
  return Proof::Yes;
}

TEST(Prove, RulesWithoutFunctionAndCondition) {
  int n_proofs = 0, n_rules = 0;
  for (const RuleSet* table : rules::tables())
    for (const Rule* rule : table->rules()) {
      if (rule->then || rule->when) continue;
      z3::context z;
      bool any = false;
      for (const Pat& lhs : expand_variants(rule->lhs))
        for (const DType dt : {DType::WeakInt, DType::Bool, DType::Int8, DType::UInt8, DType::Int32, DType::UInt32,
                               DType::Int64, DType::UInt64})
          for (const DType operand : {DType::WeakInt, DType::Bool, DType::Int8, DType::UInt8}) {
            // The dtype of operands matters to comparisons alone; elsewhere one is enough.
            if (dt != DType::Bool && operand != DType::WeakInt) continue;
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
  EXPECT_GT(n_rules, 60);
}

// Firings of each rule that works on integers and has a function, or a condition.
void prove_firings(int n_of_function, int n_of_condition, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  Instances random(11);
  int n_proofs = 0;
  for (const RuleSet* table : rules::tables()) {
    if (std::string_view(table->name()) == "movement" || std::string_view(table->name()) == "loops") continue;
    for (const Rule* rule : table->rules()) {
      if ((!rule->then && !rule->when) || (rule->lhs.node[0].dtypes & pat::kNonFloats) == 0) continue;
      const RuleSet alone(table->name(), {*rule});
      const auto variants = expand_variants(rule->lhs);
      int n = 0;
      const int n_firings = rule->then ? n_of_function : n_of_condition;
      z3::context z;
      const auto rule_start = std::chrono::steady_clock::now();
      for (int t = 0; t < n_firings * 400 && n < n_firings; ++t) {
        const UOp before = random.make(variants[static_cast<size_t>(random.below(std::ssize(variants)))]);
        const UOp after = before ? alone.rewrite(before) : UOp();
        if (!after) continue;
        Proof proof = prove_firing(z, before, after, 50);
        if (proof == Proof::Unknown) proof = prove_by_trying(before, after);
        if (proof == Proof::Unknown) proof = prove_firing(z, before, after, 20000);
        if (proof == Proof::NotApplicable) continue;
        ++n, ++n_proofs;
        ASSERT_EQ(proof, Proof::Yes) << table->full_name(rule) << (proof == Proof::No ? " is wrong" : " is not decided")
                                     << "\n"
                                     << to_text(before) << "---\n"
                                     << to_text(after);
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
        if (spent.count() > seconds) {
          FAIL() << "out of time at " << table->full_name(rule) << " after " << n_proofs << " proofs";
        }
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - rule_start;
      printf("%-24s %5d firings proved %8.2f s\n", rule->name, n, took.count());
    }
  }
  printf("%d firings proved\n", n_proofs);
}

TEST(Prove, Firings) { prove_firings(1000, 30, 300); }
TEST(Prove, Firings_slow) { prove_firings(10000, 1000, 1800); }

}  // namespace
}  // namespace whit::test
