#include "rules/prove.h"

#include <map>

namespace whit::test {
namespace {

using pat::PatKind;
using pat::PatNode;

bool provable_dtype(DType dt) { return dt == DType::Bool || is_int(dt); }

}  // namespace

bool provable(const UOp& u) { return provable_dtype(u.dtype()); }

namespace {

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
      const z3::expr towards_zero = z3::ite(a >= 0, z3::ite(b > 0, a / b, -(a / -b)), z3::ite(b > 0, -((-a) / b), (-a) / (-b)));
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
      case Op::Neg: *out = -s[0]; return true;
      case Op::Add: *out = boolean ? s[0] || s[1] : s[0] + s[1]; return true;
      case Op::Mul: *out = boolean ? s[0] && s[1] : s[0] * s[1]; return true;
      case Op::Sub: *out = s[0] - s[1]; return true;
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
      case Op::FloorDiv: *out = quotient(dt, s[0], s[1], op == Op::FloorDiv); return true;
      case Op::Cmod:
      case Op::FloorMod: *out = s[0] - s[1] * quotient(dt, s[0], s[1], op == Op::FloorMod); return true;
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
      case Op::CmpLt: return less(from, s[0], s[1], out);
      case Op::CmpNe: *out = s[0] != s[1]; return true;
      case Op::CmpEq: *out = s[0] == s[1]; return true;
      case Op::Where: *out = z3::ite(s[0], s[1], s[2]); return true;
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
        *out = want <= have ? s[0].extract(want - 1, 0) : is_unsigned(from) ? z3::zext(s[0], want - have) : z3::sext(s[0], want - have);
        return true;
      }
      default: return false;
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
        if (found == slots.end()) found = slots.emplace(a->slot, fresh(dt, fmt::format("s{}", a->slot))).first;
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
    if (n_ops != 1 || op == Op::Cast || (a->flags & ~PatNode::kFold) != 0 || a->slot != pat::kNoSlot || (is_comparison(op) && operand == DType::Void))
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
      if (n->op == Op::Index || (n->op == Op::Param && !n->shape.empty())) continue;
      if (!provable_dtype(n->dtype)) return false;
      z3::expr value(z);
      if (n->op == Op::Const) {
        value = number(n->dtype, n->arg.to_int());
      } else if (n->op == Op::Param || n->op == Op::Variable || n->op == Op::Range || n->op == Op::Load) {
        value = fresh(n->dtype, fmt::format("leaf{}", done.size()));
        if (n->dtype == DType::Bool) {
          if (n->vmin == n->vmax) bounds.push_back(value == number(n->dtype, n->vmin));
        } else if (n->op != Op::Param && n->op != Op::Load) {
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

Proof of(z3::check_result refuted) { return refuted == z3::unsat ? Proof::Yes : refuted == z3::sat ? Proof::No : Proof::Unknown; }

}  // namespace

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
    if (!prover.node(before.src(1), &a) || !prover.node(before.src(2), &gate) || !prover.node(after.src(1), &b)) return Proof::NotApplicable;
    if (after.n_src() > 2 && !prover.node(after.src(2), &new_gate)) return Proof::NotApplicable;
    return of(prover.refute(gate == new_gate && (!gate || a == b), timeout_ms));
  }
  if (!prover.node(before, &a) || !prover.node(after, &b)) return Proof::NotApplicable;
  return of(prover.refute(a == b, timeout_ms));
}

Proof prove_by_trying(const UOp& before, const UOp& after) {
  std::vector<const Node*> leaves;
  int64_t n_cases = 1;
  for (const Node* n : toposort(before)) {
    if (n->op == Op::Load || n->op == Op::Index || (n->op == Op::Param && n->dtype != DType::Bool)) return Proof::Unknown;
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

}  // namespace whit::test
