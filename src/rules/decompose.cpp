// Runs the tables over a graph, or over a LINEAR, whose order has to be kept.
#include "rules/decompose.h"

#include <unordered_set>

#include "base/flags.h"
#include "base/text.h"
#include "ir/build.h"
#include "ir/remake.h"
#include "rules/decompose_build.h"

namespace whit {
namespace {

WHIT_RULE_SET(all_tables, rules::decompose_narrow() + rules::decompose_int() + rules::decompose_math() + rules::decompose_trig())

DType strong(DType dt) { return strong_dtype(dt, DType::Int64, DType::Float64); }

// A cast choice between two weak constants: the choice between their casts.
UOp choice_of_constants(const Node* n, const Remade& made) {
  if (n->op != Op::Cast || n->src()[0]->op != Op::Where || n->src()[0]->dtype != DType::WeakFloat) return {};
  const Node* w = n->src()[0];
  for (const size_t arm : {1, 2})
    if (w->src()[arm]->op != Op::Const || w->src()[arm]->arg.is_invalid()) return {};
  const auto arm = [&](size_t i) { return constant(n->dtype, w->src()[i]->arg.to_double()); };
  return is_float(n->dtype) && !is_weak(n->dtype) ? where(made.of(w->src()[0]), arm(1), arm(2)) : UOp();
}

// Weak dtypes become strong: the index type is an int64, and weak floats have the precision of a float64 as they have in
// constants.
UOp strengthen(const UOp& root) {
  Remade made;
  std::unordered_set<const Node*> gone;  // casts that are their source now: a list must not have that twice
  for (const Node* n : toposort(root)) {
    std::vector<UOp>& src = made.src(n);
    if (n->op == Op::Linear && !gone.empty()) {
      src.clear();
      for (const Node* s : n->src())
        if (!gone.contains(s)) src.push_back(made.of(s));
    }
    if (UOp choice = choice_of_constants(n, made)) {
      made.set(n, std::move(choice));
    } else if (n->op == Op::Const && !n->arg.is_invalid() && n->dtype == DType::WeakFloat) {
      made.set(n, constant(DType::Float64, n->arg.to_double()));
    } else if (n->op == Op::Cast && src[0].dtype() == strong(n->dtype)) {
      made.set(n, src[0]);
      gone.insert(n);
    } else if (is_weak(n->dtype)) {
      made.set(n, UOp::make(n->op, strong(n->dtype), src, n->arg));
    } else if (UOp over = UOp(n).with_src(src); over.node() != n) {
      made.set(n, std::move(over));
    }
  }
  return made.of(root.node());
}

// Each item of a list is rewritten, and what is new in it is listed right before it. Requirements:
//  1. An item that stands twice (a register that is read again) is listed twice, with all that is new below it.
//  2. What was listed inside a loop or IF does not count after its end.
class ListRewriter {
 public:
  explicit ListRewriter(Rewriter& rewrite) : rewrite_(rewrite) {}

  UOp run(const UOp& linear) {
    scopes_.emplace_back();
    for (const UOp& item : linear.srcs()) {
      const UOp made = rewrite_(item);
      if (item.op() == Op::EndRange || item.op() == Op::EndIf) close_scope();
      // An item that has become what is there already; not one that is listed once more.
      if (items_.insert(item.node()).second && made.node() != item.node() && listed_.contains(made.node())) continue;
      list_below(made);
      out_.push_back(made);
      if (item.op() == Op::Range || item.op() == Op::If) scopes_.emplace_back();
      if (listed_.insert(made.node()).second) scopes_.back().push_back(made.node());
    }
    return UOp::make(Op::Linear, DType::Void, out_, linear.arg());
  }

 private:
  void close_scope() {
    WHIT_CHECK(scopes_.size() > 1, "a LINEAR closes more blocks than it opens");
    for (const Node* n : scopes_.back()) listed_.erase(n);
    scopes_.pop_back();
  }
  // INDEX stands where it is used; everything else that is computed needs a place.
  static bool needs_place(const Node* n) { return is_elementwise(n->op) || n->op == Op::Vec || n->op == Op::Lane || n->op == Op::Fold; }
  void list_below(const UOp& made) {
    const auto is_new = [&](const Node* n) { return n == made.node() || !listed_.contains(n); };
    for (const Node* n : post_order(std::span(&made, 1), [&](const Node* m) { return std::pair(0u, is_new(m) ? m->n_src : 0u); }))
      if (n != made.node() && is_new(n) && needs_place(n)) out_.emplace_back(n);
  }

  Rewriter& rewrite_;
  std::vector<UOp> out_;
  std::unordered_set<const Node*> items_, listed_;
  std::vector<std::vector<const Node*>> scopes_;
};

// What the flags leave of a target's abilities.
Caps allowed(Caps caps) {
  if (flag::TRANSCENDENTAL() >= 2)
    for (const Op op : {Op::Exp2, Op::Log2, Op::Sin}) caps.ops.reset(static_cast<size_t>(op));
  if (flag::EMULATED_DTYPES().empty()) return caps;
  for (const std::string& text : split(flag::EMULATED_DTYPES(), ',')) {
    if (text.empty()) continue;
    const DType dt = dtype_by_name(text);
    WHIT_USER(is_fp8(dt) || dt == DType::Float16 || dt == DType::BFloat16, NotImplemented,
              "EMULATED_DTYPES={}: only float16, bfloat16 and the float8 types can be emulated", text);
    caps.arith.reset(static_cast<size_t>(dt));
    caps.converts.reset(static_cast<size_t>(dt));
  }
  return caps;
}

}  // namespace

UOp decompose(const UOp& root, const Caps& target) {
  const Caps caps = allowed(target);
  // Bottom-up: a rule about several ops sees them before they are taken apart.
  Rewriter rewrite(all_tables(), {.name = "decompose", .ctx = const_cast<Caps*>(&caps), .bottom_up = true, .vectors = true});
  const UOp typed = strengthen(root);
  if (typed.op() == Op::Linear) return ListRewriter(rewrite).run(typed);
  return rewrite(typed);
}

}  // namespace whit
