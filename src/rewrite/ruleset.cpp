#include "rewrite/ruleset.h"

#include <fmt/core.h>

#include <bit>
#include <deque>
#include <unordered_map>

#include "base/flags.h"
#include "base/text.h"
#include "ir/build.h"
#include "ir/eval.h"

namespace whit {
namespace {

using pat::PatKind;
using pat::PatNode;

// Weakint arithmetic is unbounded: a value that does not fit must not be made.
bool overflows(Op op, std::span<const UOp> src) {
  if (src[0].dtype() != DType::WeakInt) return false;
  const int64_t a = const_int(src[0]), b = src.size() > 1 ? const_int(src[1]) : 0;
  int64_t out;
  switch (op) {
    case Op::Add: return __builtin_add_overflow(a, b, &out);
    case Op::Sub: return __builtin_sub_overflow(a, b, &out);
    case Op::Mul: return __builtin_mul_overflow(a, b, &out);
    case Op::Neg: return a == INT64_MIN;
    case Op::FloorDiv:
    case Op::Cdiv: return a == INT64_MIN && b == -1;
    case Op::Shl: return b > 0 && a != 0 && (b > 62 || a > (INT64_MAX >> b) || a < (INT64_MIN >> b));
    case Op::Pow: return true;
    default: return false;
  }
}

bool is_literal(const PatNode* a) { return a->kind == PatKind::IntLit || a->kind == PatKind::FloatLit; }

Op only_op(const OpSet& ops) { return static_cast<Op>(ops.w[0] ? std::countr_zero(ops.w[0]) : 64 + std::countr_zero(ops.w[1])); }

// Builds a result. A literal takes the dtype of its siblings, else `expected`. Null when a fold() overflows.
UOp build(const PatNode* a, const Match& m, DType expected) {
  switch (a->kind) {
    case PatKind::Any:
    case PatKind::Const:
    case PatKind::AnyConst: return UOp(m.slot[a->slot]);
    case PatKind::IntLit: return constant(expected, a->imm);
    case PatKind::FloatLit: return constant(expected, __builtin_bit_cast(double, a->imm));
    case PatKind::Node: break;
  }
  const Op op = only_op(a->ops);
  const PatNode* sub[3] = {};
  UOp src[3];
  const PatNode* next = a + 1;
  DType dtype = is_comparison(op) || op == Op::Cast ? DType::Void : expected;
  const unsigned first = op == Op::Where ? 1 : 0;
  for (unsigned s = 0; s < a->n_src; ++s) {
    sub[s] = next;
    next = skip(next);
    if (is_literal(sub[s])) continue;
    src[s] = build(sub[s], m, s < first ? DType::Bool : expected);
    if (!src[s]) return {};
    if (s >= first) dtype = src[s].dtype();
  }
  for (unsigned s = 0; s < a->n_src; ++s)
    if (!src[s]) src[s] = build(sub[s], m, s < first ? DType::Bool : dtype);
  const std::span<const UOp> srcs(src, a->n_src);
  if (a->has(PatNode::kFold)) return fold_op(op, op == Op::Cast ? m.root->dtype : is_comparison(op) ? DType::Bool : dtype, srcs);
  return op == Op::Cast ? cast(src[0], m.root->dtype) : alu(op, srcs);
}

// A scalar in the shape of the node that it replaces.
UOp spread(const UOp& scalar, const Shape& shape, bool vectors) {
  if (!vectors || shape.size() != 1) return broadcast_scalar(scalar, shape);
  const std::vector<UOp> lanes(static_cast<size_t>(shape[0]), scalar);
  return UOp::make(Op::Vec, scalar.dtype(), lanes);
}

}  // namespace

UOp fold_op(Op op, DType dtype, std::span<const UOp> src) {
  for (const UOp& s : src)
    if (!s.is_const() || s.arg().is_invalid()) return {};
  if (src.empty() || overflows(op, src)) return {};
  return fold_constants(op, dtype, src);
}

struct RuleSet::Impl {
  std::string name;
  std::vector<Rule> owned{};
  std::deque<std::string> names{};
  std::vector<const Rule*> rules{};
  std::unordered_map<const Rule*, const char*> set_of{};
  std::vector<std::shared_ptr<Impl>> parts{};  // keeps run-time made rows alive
  PatTable table{};
  std::mutex mutex{};
  std::string disabled_text{};
  std::shared_ptr<const std::vector<char>> disabled{};

  explicit Impl(std::string n) : name(std::move(n)) {}
  void add(const Rule& rule, const char* set) {
    if (!set_of.emplace(&rule, set).second) return;
    table.add(set, rule, rule.raw_order);
    rules.push_back(&rule);
  }
  void check() const {
    auto fail = [&](const Rule& rule, const char* what, const Rule& other) {
      raise(ErrorKind::Internal, "[rewrite] rule {}/{} {} {} ({}:{}, {}:{})", name, rule.name, what, other.name, rule.file, rule.line, other.file,
            other.line);
    };
    for (size_t b = 0; b < rules.size(); ++b) {
      std::vector<Pat> variants = expand_variants(rules[b]->lhs);
      for (size_t a = 0; a < b; ++a) {
        if (std::string_view(rules[a]->name) == rules[b]->name) fail(*rules[b], "has the name of", *rules[a]);
        if (rules[a]->when || rules[a]->then || !rules[a]->lhs.node[0].ops.covers(rules[b]->lhs.node[0].ops)) continue;
        for (const Pat& general : expand_variants(rules[a]->lhs)) {
          size_t hidden = 0;
          for (const Pat& t : variants) hidden += subsumes(general, t);
          if (hidden == variants.size()) fail(*rules[b], "never runs: it is hidden by", *rules[a]);
        }
      }
    }
  }
  // By row: 1 when RULES switches it off. Null when nothing is.
  std::shared_ptr<const std::vector<char>> switched_off() {
    const std::string& text = flag::RULES();
    if (text.empty()) return nullptr;
    std::lock_guard lock(mutex);
    if (text != disabled_text || !disabled) {
      auto off = std::make_shared<std::vector<char>>(rules.size());
      for (const std::string& word : split(text, ',')) {
        if (word.empty() || word[0] != '-') continue;
        const std::string_view want = std::string_view(word).substr(1);
        for (size_t r = 0; r < rules.size(); ++r) {
          const std::string set = set_of.at(rules[r]);
          if (want == set || want == set + "/" + rules[r]->name) (*off)[r] = 1;
        }
      }
      disabled_text = text;
      disabled = off;
    }
    return disabled;
  }
};

RuleSet::RuleSet(const char* name, std::span<const Rule> rules) : impl_(std::make_shared<Impl>(name)) {
  for (const Rule& r : rules) impl_->add(r, impl_->name.c_str());
  impl_->check();
}

RuleSet::RuleSet(std::string name, std::vector<Rule> rules) : impl_(std::make_shared<Impl>(std::move(name))) {
  impl_->owned = std::move(rules);
  for (Rule& r : impl_->owned) {
    r.name = impl_->names.emplace_back(r.name).c_str();
    impl_->add(r, impl_->name.c_str());
  }
  impl_->check();
}

RuleSet operator+(const RuleSet& a, const RuleSet& b) {
  RuleSet sum;
  sum.impl_ = std::make_shared<RuleSet::Impl>(a.impl_->name == b.impl_->name ? a.impl_->name : a.impl_->name + "+" + b.impl_->name);
  for (const RuleSet* part : {&a, &b}) {
    sum.impl_->parts.push_back(part->impl_);
    for (const Rule* r : part->impl_->rules) sum.impl_->add(*r, part->impl_->set_of.at(r));
  }
  return sum;
}

const char* RuleSet::name() const { return impl_->name.c_str(); }
std::span<const Rule* const> RuleSet::rules() const { return impl_->rules; }
std::string RuleSet::full_name(const Rule* rule) const {
  const auto it = impl_->set_of.find(rule);
  return fmt::format("{}/{}", it == impl_->set_of.end() ? "?" : it->second, rule->name);
}

UOp RuleSet::rewrite(const Node* n, RuleCtx& cx, const Rule** fired) const {
  RewriteStats& stats = rewrite_stats();
  ++stats.visited;
  Impl& impl = *impl_;
  PatTable::Cursor c = impl.table.candidates(n);
  if (c.at == c.end) return {};
  const auto off = flag::RULES().empty() ? nullptr : impl.switched_off();
  Match m;
  uint32_t row;
  while (impl.table.next(c, n, m, &row)) {
    const Rule& rule = *impl.rules[row];
    if (off && (*off)[row]) continue;
    m.row = &rule;
    ++stats.tried;
    if (rule.when && !rule.when(m)) continue;
    UOp out = rule.then ? rule.then(m, cx) : build(rule.rhs.node, m, n->dtype);
    if (cx.stop) return {};
    if (!out || out.node() == n) continue;
    if (out.shape().empty() && !n->shape.empty()) {
      out = spread(out, n->shape, cx.vectors);
      if (out.node() == n) continue;
    }
    ++stats.fired;
    if (fired) *fired = &rule;
    return out;
  }
  return {};
}

UOp RuleSet::rewrite(const UOp& u) const {
  RuleCtx cx;
  return rewrite(u.node(), cx);
}

RewriteStats& rewrite_stats() {
  thread_local RewriteStats stats;
  return stats;
}

}  // namespace whit
