// Conditions. What a condition says about index arithmetic is used inside its branch; LOADs and INDEXes there are left
// alone, because they are evaluated whether the condition holds or not.
#include <algorithm>

#include "ir/build.h"
#include "ir/remake.h"
#include "rules/linear.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

constexpr Rule kLogic[] = {
    rule("bool-add", op({Op::Add, Op::Max}, p, q), p | q),
    rule("bool-mul", op({Op::Mul, Op::Min}, p, q), p& q),
    rule("bool-ne", ne(p, q), p ^ q),
    rule("bool-eq", eq(p, q), !(p ^ q)).grows("XOR and NOT have rules of their own"),
    rule("bool-lt", p < q, q & !p).grows("AND and NOT have rules of their own"),
    rule("and-true", p & 1, p),
    rule("or-absorbs", comm(p | comm(p & q)), p),
    rule("not-ne", !ne(x, y), eq(x, y)),
    rule("not-eq", !eq(x, y), ne(x, y)),
    rule("not-lt-constant", !(i < c0), fold(c0 - 1) < i),
    rule("not-constant-lt", !(c0 < i), i < fold(c0 + 1)),
    rule("not-lt-index", !(i < j), j < i + 1).grows("one comparison, no NOT"),
    rule("where-same", where(p, x, x), x),
    rule("where-true", where(1, x, y), x),
    rule("where-false", where(0, x, y), y),
    rule("where-not", where(!p, x, y), where(p, y, x)),
    rule("where-is-condition", where(p, 1, 0).of(kBool), p),
    rule("where-is-not", where(p, 0, 1).of(kBool), !p),
    rule("where-and", where(p, q, 0).of(kBool), p& q),
    rule("where-or", where(p, 1, q).of(kBool), p | q),
    rule("where-in-true", where(p, where(p, x, y), z), where(p, x, z)),
    rule("where-in-false", where(p, x, where(p, y, z)), where(p, x, z)),
    rule("where-both", where(p, where(q, x, y), y), where(p& q, x, y)),
    rule("where-either", where(p, x, where(q, x, y)), where(p | q, x, y)),
};

// ---- what a condition says
// X = sum of terms lies in [lo, hi]. The first term of X (in the order of the terms) has a positive factor.
struct Fact {
  Linear sum;
  int64_t lo = INT64_MIN, hi = INT64_MAX;
};

bool same_terms(const Linear& a, const Linear& b) {
  if (a.terms.size() != b.terms.size()) return false;
  return std::ranges::all_of(a.terms, [&](const auto& t) { return b.factor_of(t.node) == t.factor; });
}

// The fact that a comparison of index values states.
std::optional<Fact> fact_of(const UOp& clause) {
  if ((clause.op() != Op::CmpLt && clause.op() != Op::CmpEq) || clause.src(0).dtype() != DType::WeakInt) return {};
  Linear d = linear_of(clause.src(0));
  d.add(linear_of(clause.src(1)), -1);
  if (!d.ok || d.terms.empty() || d.constant == INT64_MIN || d.constant == INT64_MAX) return {};
  Fact fact;
  fact.hi = clause.op() == Op::CmpLt ? -d.constant - 1 : -d.constant;
  if (clause.op() == Op::CmpEq) fact.lo = -d.constant;
  d.constant = 0;
  size_t n_negative = 0;
  for (const auto& t : d.terms) n_negative += t.factor < 0;
  if (2 * n_negative > d.terms.size() || (2 * n_negative == d.terms.size() && d.terms[0].factor < 0)) {
    d = negative(d);
    if (!d.ok) return {};
    const int64_t lo = fact.lo;
    fact.lo = -fact.hi;
    fact.hi = lo == INT64_MIN ? INT64_MAX : -lo;
  }
  fact.sum = d;
  return fact;
}

void join(std::vector<Fact>& facts, const Fact& f) {
  for (Fact& have : facts) {
    if (!same_terms(have.sum, f.sum)) continue;
    have.lo = std::max(have.lo, f.lo);
    have.hi = std::min(have.hi, f.hi);
    return;
  }
  facts.push_back(f);
}

// Not below a LOAD, INDEX or REDUCE.
bool is_open(const Node* n) { return n->op != Op::Load && n->op != Op::Index && n->op != Op::Reduce; }

UOp variable(int64_t number, int64_t lo, int64_t hi) {
  return UOp::make(Op::Variable, DType::WeakInt, {}, Arg::list({Arg(fmt::format("\x01{}", number)), lo, hi}));
}

WHIT_RULE_SET(plain_rules, rules::algebra() + rules::index() + rules::cast() + RuleSet("gate", kLogic))

// Divisions weigh more than other nodes.
int64_t cost(const UOp& u) {
  int64_t total = 0;
  for (const Node* n : toposort(u, is_open)) total += n->op == Op::FloorDiv || n->op == Op::FloorMod ? 8 : n->op == Op::Const ? 0 : 1;
  return total;
}

// The best of `expr` where the fact holds, or expr.
UOp under(const UOp& expr, const Fact& fact, int64_t number) {
  UOp best = expr;
  int64_t best_cost = INT64_MAX;
  size_t n_tried = 0;
  for (const auto& t : fact.sum.terms) {
    if ((t.factor != 1 && t.factor != -1) || t.node.is_const() || ++n_tried > 4) continue;
    Linear sum_of_rest = fact.sum;
    sum_of_rest.add(t.node, -t.factor);
    const auto known_rest = fact.sum.bounds();
    const int64_t lo = known_rest ? std::max(fact.lo, known_rest->lo) : fact.lo;
    const int64_t hi = known_rest ? std::min(fact.hi, known_rest->hi) : fact.hi;
    if (lo > hi) return expr;
    // t = factor * (X - rest)
    const UOp whole = lo == hi ? idx(lo) : variable(number, lo, hi);
    Linear solved;
    solved.add(linear_of(whole), t.factor);
    solved.add(sum_of_rest, -t.factor);
    if (!solved.ok) continue;
    const UOp inside = substitute(expr, {{t.node.node(), solved.to_uop()}}, is_open);
    if (inside == expr) continue;
    UOp out = graph_rewrite(inside, plain_rules(), {.name = "given"});
    if (lo != hi) {
      out = substitute(out, {{whole.node(), fact.sum.to_uop()}}, is_open);
      out = graph_rewrite(out, plain_rules(), {.name = "given"});
    }
    const int64_t c = cost(out);
    if (c < best_cost) {
      best_cost = c;
      best = out;
    }
  }
  return best_cost < cost(expr) ? best : expr;
}

bool share_ranges(const UOp& a, const Linear& sum) {
  for (const auto& t : sum.terms) {
    if (t.node.ranges().empty()) return true;
    for (const Node* loop : t.node.ranges())
      if (a.depends_on(UOp(loop))) return true;
  }
  return false;
}

// An AND with its clauses joined: the stronger of two bounds of one sum stays, an impossible AND is false.
UOp join_clauses(const UOp& root) {
  const auto all = clauses(root);
  if (all.size() > 16) return {};
  std::vector<UOp> kept;
  std::vector<std::optional<Fact>> facts;
  for (const UOp& c : all) {
    const auto fact = fact_of(c);
    bool implied = false;
    for (size_t s = 0; s < kept.size(); ++s) {
      implied |= kept[s] == c;
      if (!fact || !facts[s] || !same_terms(fact->sum, facts[s]->sum)) continue;
      const int64_t lo = std::max(fact->lo, facts[s]->lo), hi = std::min(fact->hi, facts[s]->hi);
      if (lo > hi) return const_bool(false);
      if (lo == facts[s]->lo && hi == facts[s]->hi) {
        implied = true;
      } else if (lo == fact->lo && hi == fact->hi) {
        kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(s));
        facts.erase(facts.begin() + static_cast<std::ptrdiff_t>(s--));
      }
    }
    if (implied) continue;
    kept.push_back(c);
    facts.push_back(fact);
  }
  return kept.size() < all.size() ? all_of(kept) : UOp();
}

constexpr Rule kGates[] = {
    rule_fn("join-clauses", p& q, [](const Match& at, RuleCtx&) { return join_clauses(at.root_uop()); }),
    rule_fn("given-condition", where(p, i, j),
            [](const Match& at, RuleCtx&) -> UOp {
              if (at[p].is_const()) return {};
              const UOp yes = given(at[i], at[p]);
              const UOp no = substitute(at[j], {{at.raw(p), const_bool(false)}}, is_open);
              return yes == at[i] && no == at[j] ? UOp() : where(at[p], yes, no);
            })
        .grows("what the branches shared may be in one of them only"),
    rule_fn("gate", op(Op::Index, x, i, p),
            [](const Match& at, RuleCtx&) -> UOp {
              const UOp flat = given(at[i], at[p]);
              return flat == at[i] && !is_const_int(at[p], 1) ? UOp() : index(at[x], flat, at[p]);
            })
        .grows("what address and gate shared may be in one of them only"),
    rule("load-never", op(Op::Load, op(Op::Index, x, y, 0)), 0),
};

}  // namespace

std::vector<UOp> clauses(const UOp& condition) {
  std::vector<UOp> out;
  std::vector<UOp> work{condition};
  while (!work.empty()) {
    const UOp c = work.back();
    work.pop_back();
    if (c.op() == Op::And && c.dtype() == DType::Bool) {
      work.push_back(c.src(1));
      work.push_back(c.src(0));
    } else if (!is_const_int(c, 1) && std::ranges::find(out, c) == out.end()) {
      out.push_back(c);
    }
  }
  return out;
}

UOp all_of(std::span<const UOp> clauses) {
  UOp out;
  for (const UOp& c : clauses) out = out ? out & c : c;
  return out ? out : const_bool(true);
}

UOp given(const UOp& expr, const UOp& condition) {
  if (expr.is_const() || expr.op() == Op::Range) return expr;
  std::vector<Fact> facts;
  std::unordered_map<const Node*, UOp> true_nodes;
  for (const UOp& c : clauses(condition)) {
    if (c.is_const()) continue;
    true_nodes.emplace(c.node(), const_bool(true));
    if (const auto fact = fact_of(c)) join(facts, *fact);
  }
  UOp out = substitute(expr, true_nodes, is_open);
  int64_t number = 0;
  for (const Fact& fact : facts)
    if (share_ranges(out, fact.sum)) out = under(out, fact, number++);
  return out;
}

WHIT_RULE_SET(rules::gate, RuleSet("gate", kLogic) + RuleSet("gate", kGates))

}  // namespace whit
