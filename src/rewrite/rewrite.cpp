#include "rewrite/rewrite.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/flags.h"
#include "base/os.h"
#include "base/ptr_map.h"
#include "base/text.h"

namespace whit {
namespace {

thread_local RewriteTrace* current_trace = nullptr;
std::atomic<int64_t> n_rewrites{0};  // of the process, counted only under RULE_LIMIT

// TRACK_MATCH_STATS: how often each rule fired and what that took; printed at exit, the dearest first.
void count_match(std::string rule, int64_t time_ns) {
  struct Count {
    int64_t fired = 0, time_ns = 0;
  };
  static std::mutex mutex;
  static auto& counts = *new std::map<std::string, Count>;  // read by an exit handler: never destroyed
  const std::lock_guard lock(mutex);
  if (counts.empty())
    std::atexit([] {
      std::vector<std::pair<std::string, Count>> rows(counts.begin(), counts.end());
      std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.second.time_ns > b.second.time_ns; });
      for (const auto& [name, c] : rows) fmt::print(stderr, "{:9} fired {:10.3f} ms  {}\n", c.fired, static_cast<double>(c.time_ns) * 1e-6, name);
    });
  Count& c = counts[std::move(rule)];
  ++c.fired;
  c.time_ns += time_ns;
}

struct Frame {
  enum Stage : uint8_t { Rules, Sources, Link };
  const Node* node;
  const Node* next = nullptr;  // Link: what the node became, to be done first
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
  const Rule* recent[8] = {};  // a ring of the rules that fired last
  size_t n_fired = 0;
  const int64_t limit = flag::REWRITE_STACK_LIMIT();
  const int64_t rule_limit = flag::RULE_LIMIT();
  const int64_t track_stats = flag::TRACK_MATCH_STATS();

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

  // The rules that fired last, oldest first, each once.
  [[noreturn]] void fail(std::string_view what) {
    std::vector<std::string> names;
    for (size_t back = 0; back < std::min<size_t>(n_fired, std::size(recent)); ++back) {
      std::string rule = rules.full_name(recent[(n_fired - 1 - back) % std::size(recent)]);
      if (std::ranges::find(names, rule) == names.end()) names.insert(names.begin(), std::move(rule));
    }
    const std::string_view at = name(stack.back().node->op);
    raise(ErrorKind::Internal, "[rewrite] pass '{}' {} at {}; rules: {}", options.name, what, at, join(names, ", "));
  }

  UOp apply(const Node* n, bool* stop) {
    if (rule_limit >= 0 && n_rewrites.load(std::memory_order_relaxed) >= rule_limit) return {};
    RuleCtx cx{options.ctx, false, options.vectors};
    const bool timed = current_trace || track_stats > 0;
    const int64_t start = timed ? os::now_ns() : 0;
    const Rule* fired = nullptr;
    UOp out = rules.rewrite(n, cx, &fired);
    *stop = cx.stop;
    if (!out) return out;
    recent[n_fired++ % std::size(recent)] = fired;
    if (rule_limit >= 0 && n_rewrites.fetch_add(1, std::memory_order_relaxed) + 1 == rule_limit)
      fmt::print(stderr, "rewrite {}: {} in pass '{}' is the last\n", rule_limit, rules.full_name(fired), options.name);
    if (!timed) return out;
    const int64_t time_ns = os::now_ns() - start;
    if (track_stats > 0) count_match(rules.full_name(fired), time_ns);
    if (track_stats > 2) fmt::print(stderr, "{}: {} {} -> {}\n", options.name, rules.full_name(fired), name(n->op), name(out.op()));
    if (current_trace) current_trace->events.push_back({options.name, rules.full_name(fired), UOp(n), out, time_ns});
    return out;
  }

  const Node* source_result(const Node* n, uint32_t s) {
    const Node* src = n->src_begin()[s];
    return is_body(n, s) ? src : *memo.find(src);
  }
  bool is_body(const Node* n, uint32_t s) const { return s == 0 && n->op == Op::Call && !options.enter_calls; }

  // Are the sources of n their own results? Then the rules may look at n at once.
  bool has_final_sources(const Node* n) {
    for (uint32_t s = 0; s < n->n_src; ++s) {
      const Node* src = n->src_begin()[s];
      if (is_body(n, s)) continue;
      const Node** found = memo.find(src);
      if (!found || *found != src) return false;
    }
    return true;
  }

  // The node over its sources' results; null when they are its sources.
  UOp rebuilt(const Node* n) {
    bool changed = false;
    for (uint32_t s = 0; s < n->n_src && !changed; ++s) changed = source_result(n, s) != n->src_begin()[s];
    if (!changed) return {};
    SmallVec<UOp, 6> src;
    for (uint32_t s = 0; s < n->n_src; ++s) src.push_back(UOp(source_result(n, s)));
    return UOp::make(n->op, n->dtype, src, n->arg);
  }

  const Node* kept(UOp u) {
    keep.push_back(std::move(u));
    return keep.back().node();
  }

  // Continues with what the top frame's node became.
  void link(const Node* next, uint32_t n_steps) {
    Frame& f = stack.back();
    f.next = next;
    f.stage = Frame::Link;
    const Node** found = memo.find(next);
    if (!found) return push(next, n_steps);
    if (!*found) fail("goes in circles");
    finish(*found);
  }

  // Rules on the top frame's node, or on `over`, the same over its sources' results, until none applies. What is only
  // passed through is dropped at once, so that its memory is used again while it is in the cache.
  void rewrite_top(UOp over) {
    uint32_t n_steps = stack.back().n_steps;
    const Node* n = over ? over.node() : stack.back().node;
    for (;;) {
      bool stop = false;
      UOp out = apply(n, &stop);
      if (!out || stop) {
        if (over && !options.walk) memo[n] = n;
        if (over) kept(std::move(over));
        return finish(n);
      }
      over = std::move(out);
      n = over.node();
      if (options.walk) return finish(kept(std::move(over)));
      if (++n_steps > limit) fail(fmt::format("does not end after {} rewrites", n_steps));
      if (memo.find(n) || !has_final_sources(n)) return link(kept(std::move(over)), n_steps);
    }
  }

  void step() {
    Frame& f = stack.back();
    const Node* n = f.node;
    switch (f.stage) {
      case Frame::Rules: {  // bottom-up
        bool stop = false;
        UOp out = apply(n, &stop);
        if (stop) return finish(n);
        if (!out) {
          f.stage = Frame::Sources;
          return;
        }
        const Node* next = kept(std::move(out));
        if (options.walk) return finish(next);
        if (f.n_steps >= limit) fail(fmt::format("does not end after {} rewrites", f.n_steps + 1));
        return link(next, f.n_steps + 1);
      }
      case Frame::Sources: {
        for (; f.n_done < n->n_src; ++f.n_done) {
          if (is_body(n, f.n_done)) continue;
          const Node* src = n->src_begin()[f.n_done];
          const Node** found = memo.find(src);
          if (!found) return push(src, f.n_steps);
          if (!*found) fail("goes in circles");
        }
        UOp over = rebuilt(n);
        if (!options.bottom_up) return rewrite_top(std::move(over));
        if (!over) return finish(n);
        const Node* next = kept(std::move(over));
        return options.walk ? finish(next) : link(next, f.n_steps);
      }
      case Frame::Link: return finish(*memo.find(f.next));
    }
  }

  UOp run(const UOp& root) {
    if (!stack.empty()) {  // a rule threw: what was in progress is forgotten
      stack.clear();
      memo = PtrMap<Node, const Node*>();
    }
    if (const Node** found = memo.find(root.node())) return UOp(*found);
    keep.push_back(root);
    push(root.node(), 0);
    while (!stack.empty()) step();
    return UOp(*memo.find(root.node()));
  }
};

Rewriter::Rewriter(const RuleSet& rules, const RewriteOptions& options) : impl_(std::make_unique<Impl>(rules, options)) {}
Rewriter::~Rewriter() = default;
UOp Rewriter::operator()(const UOp& root) { return impl_->run(root); }

UOp graph_rewrite(const UOp& root, const RuleSet& rules, const RewriteOptions& options) { return Rewriter(rules, options)(root); }

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
