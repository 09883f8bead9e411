#include "rewrite/rewrite.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/flags.h"
#include "base/os.h"
#include "base/ptr_map.h"

namespace whit {
namespace {

thread_local RewriteTrace* current_trace = nullptr;
std::atomic<int64_t> n_rewrites{0};  // of the process, counted only under RULE_LIMIT

struct Frame {
  enum Stage : uint8_t { Rules, Sources, Link };
  const Node* node;
  const Node* next = nullptr;  // Link: what the node became
  const Rule* rule = nullptr;  // the rule that made `next`, null for new sources
  uint32_t n_done = 0;         // sources that are done
  uint32_t n_steps = 0;        // rewrites that led to this node
  Stage stage = Sources;
};

}  // namespace

struct Rewriter::Impl {
  const RuleSet rules;
  const RewriteOptions options;
  PtrMap<Node, const Node*> memo{};  // null value: in progress
  std::vector<UOp> keep{};           // owns every node that this run made, and the roots
  std::vector<Frame> stack{};
  const int64_t limit = flag::REWRITE_STACK_LIMIT();
  const int64_t rule_limit = flag::RULE_LIMIT();

  Impl(const RuleSet& r, const RewriteOptions& o) : rules(r), options(o) {}

  void push(const Node* n, uint32_t n_steps) {
    memo[n] = nullptr;
    Frame f{n};
    f.n_steps = n_steps;
    f.stage = options.bottom_up ? Frame::Rules : Frame::Sources;
    stack.push_back(f);
  }

  void finish(const Node* result) {
    memo[stack.back().node] = result;
    stack.pop_back();
  }

  // The rules of the frames from the one of `n` upwards.
  [[noreturn]] void fail_cycle(const Node* n) {
    size_t first = stack.size();
    while (first > 0 && stack[first - 1].node != n) --first;
    fail(first > 0 ? first - 1 : 0, "goes in circles");
  }
  [[noreturn]] void fail(size_t first, std::string_view what) {
    std::vector<std::string> names;
    for (size_t f = stack.size(); f-- > first && names.size() < 8;) {
      if (!stack[f].rule) continue;
      std::string name = rules.full_name(stack[f].rule);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
    std::string text;
    for (size_t s = names.size(); s-- > 0;) text += (text.empty() ? "" : ", ") + names[s];
    const std::string_view at = name(stack.back().node->op);
    stack.clear();
    raise(ErrorKind::Internal, fmt::format("[rewrite] pass '{}' {} at {}; rules: {}", options.name, what, at, text));
  }

  UOp apply(const Node* n, const Rule** fired, bool* stop) {
    if (rule_limit >= 0 && n_rewrites.load(std::memory_order_relaxed) >= rule_limit) return {};
    RuleCtx cx{options.ctx, options.name, false, options.vectors};
    const int64_t start = current_trace ? os::now_ns() : 0;
    UOp out = rules.rewrite(n, cx, fired);
    *stop = cx.stop;
    if (!out) return out;
    if (rule_limit >= 0 && n_rewrites.fetch_add(1, std::memory_order_relaxed) + 1 == rule_limit)
      fmt::print(stderr, "rewrite {}: {} in pass '{}' is the last\n", rule_limit, rules.full_name(*fired),
                 options.name);
    if (current_trace) {
      const int64_t time_ns = os::now_ns() - start;
      current_trace->events.push_back({options.name, rules.full_name(*fired), *fired, UOp(n), out, time_ns});
    }
    return out;
  }

  // Tries the rules on the top frame's node. True when the frame changed (a rule fired, or the node is finished).
  bool try_rules() {
    Frame& f = stack.back();
    const Rule* fired = nullptr;
    bool stop = false;
    UOp out = apply(f.node, &fired, &stop);
    if (stop) {
      finish(f.node);
      return true;
    }
    if (!out) return false;
    const Node* n = out.node();
    keep.push_back(std::move(out));
    if (options.walk) {
      finish(n);
      return true;
    }
    Frame& top = stack.back();
    top.rule = fired;
    top.next = n;
    top.stage = Frame::Link;
    return true;
  }

  const Node* source_result(const Node* n, uint32_t s) {
    const Node* src = n->src_begin()[s];
    if (n->op == Op::Call && s == 0 && !options.enter_calls) return src;
    const Node** found = memo.find(src);
    return *found;
  }

  void step() {
    Frame& f = stack.back();
    const Node* n = f.node;
    if (f.n_steps > limit) fail(0, fmt::format("does not end after {} rewrites", f.n_steps));
    switch (f.stage) {
      case Frame::Rules:
        if (!try_rules()) stack.back().stage = Frame::Sources;
        return;
      case Frame::Sources: {
        for (; f.n_done < n->n_src; ++f.n_done) {
          const Node* src = n->src_begin()[f.n_done];
          if (n->op == Op::Call && f.n_done == 0 && !options.enter_calls) continue;
          const Node** found = memo.find(src);
          if (!found) return push(src, f.n_steps);
          if (!*found) fail_cycle(src);
        }
        bool changed = false;
        for (uint32_t s = 0; s < n->n_src && !changed; ++s) changed = source_result(n, s) != n->src_begin()[s];
        if (changed) {
          SmallVec<UOp, 6> src;
          for (uint32_t s = 0; s < n->n_src; ++s) src.push_back(UOp(source_result(n, s)));
          UOp made = UOp::make(n->op, n->dtype, src, n->arg);
          f.next = made.node();
          f.rule = nullptr;
          keep.push_back(std::move(made));
          if (!options.walk) {
            f.stage = Frame::Link;
            return;
          }
          if (options.bottom_up) return finish(f.next);
          // One pass: the rules see the node over its new sources, once.
          const Rule* fired = nullptr;
          bool stop = false;
          UOp out = apply(f.next, &fired, &stop);
          const Node* result = out && !stop ? out.node() : stack.back().next;
          if (out) keep.push_back(std::move(out));
          return finish(result);
        }
        if (options.bottom_up || !try_rules()) finish(n);
        return;
      }
      case Frame::Link: {
        const Node** found = memo.find(f.next);
        if (!found) return push(f.next, f.n_steps + (f.rule ? 1 : 0));
        if (!*found) fail_cycle(f.next);
        return finish(*found);
      }
    }
  }

  UOp run(const UOp& root) {
    if (const Node** found = memo.find(root.node())) return UOp(*found);
    keep.push_back(root);
    push(root.node(), 0);
    while (!stack.empty()) step();
    return UOp(*memo.find(root.node()));
  }
};

Rewriter::Rewriter(const RuleSet& rules, const RewriteOptions& options)
    : impl_(std::make_unique<Impl>(rules, options)) {}
Rewriter::~Rewriter() = default;
UOp Rewriter::operator()(const UOp& root) { return impl_->run(root); }

UOp graph_rewrite(const UOp& root, const RuleSet& rules, const RewriteOptions& options) {
  return Rewriter(rules, options)(root);
}

std::vector<UOp> graph_rewrite(std::span<const UOp> roots, const RuleSet& rules, const RewriteOptions& options) {
  Rewriter rewriter(rules, options);
  std::vector<UOp> out;
  out.reserve(roots.size());
  for (const UOp& root : roots) out.push_back(rewriter(root));
  return out;
}

RewriteTrace::RewriteTrace() : outer_(std::exchange(current_trace, this)) {}
RewriteTrace::~RewriteTrace() { current_trace = outer_; }

}  // namespace whit
