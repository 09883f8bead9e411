#include "engine/stores.h"

#include <algorithm>
#include <utility>

#include "engine/buffers.h"
#include "ir/build.h"
#include "runtime/device.h"
#include "schedule/graph.h"
#include "schedule/multi.h"

namespace whit::engine {

namespace {
bool is_precompiled(const Node* n) { return n->op == Op::Call && n->arg.kind() == Arg::Kind::Str && n->arg.as_str().starts_with("precompile"); }
}  // namespace

StorePlan plan_stores(std::span<const UOp> roots) {
  StorePlan plan;
  sched::NodeIndex index;
  // Raw pointers only: every handle made here would count as a reference from outside.
  const NodeList order = sched::collect(roots, index, is_realized);
  const auto number = [&](const Node* n) { return static_cast<size_t>(index.find(n)); };

  // The base of views; a realised node shows the BUFFER that its value lies in.
  std::vector<const Node*> base(order.size());
  bool any_store = false, any_alone = false;
  uint16_t device = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Node* n = order[i];
    base[i] = n;
    if (is_realized(n)) {
      const Node* v = n->extra.load(std::memory_order_acquire)->realized;
      while (is_view(v)) v = v->src()[0];
      base[i] = v;
    } else if (is_view(n)) {
      base[i] = base[number(n->src()[0])];
    }
    any_store |= n->op == Op::Store;
    plan.is_moved |= n->op == Op::Copy || is_multi(n->device);
    if (std::exchange(device, n->device) != n->device && n->device && !plan.is_moved) plan.is_moved = is_storage_only(device_name(n->device));
    any_alone |= is_precompiled(n);
    plan.has_bind |= n->op == Op::Bind || (is_realized(n) && n->shape.is_symbolic());
  }
  if (any_alone) {
    std::vector<char> is_outside(order.size(), 0);  // of bodies
    for (const UOp& r : roots) is_outside[number(r.node())] = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const Node* n = order[i];
      if (!is_outside[i] || is_realized(n)) continue;
      for (size_t s = n->op == Op::Call; s < n->n_src; ++s) is_outside[number(n->src()[s])] = 1;
      if (n->op != Op::GetTuple || !is_precompiled(n->src()[0]) || std::ranges::find(roots, UOp(n)) != roots.end()) continue;
      if (!plan.alone.empty() && plan.alone[0].src(0).node() != n->src()[0]) plan.alone.clear();
      plan.alone.emplace_back(n);
    }
  }
  if (!any_store) return plan;

  // Which buffers are overwritten, and which AFTERs are states of them that end in this graph.
  std::unordered_map<const Node*, const Node*> overwritten;  // BUFFER -> its last state
  std::vector<char> superseded(order.size(), 0);
  std::vector<const Node*> memory(order.size(), nullptr);  // of AFTERs
  for (size_t i = 0; i < order.size(); ++i) {
    const Node* n = order[i];
    if (n->op != Op::After || is_realized(n)) continue;
    const Node* x = base[number(n->src()[0])];
    memory[i] = x;
    if (const int32_t k = index.find(x); x->op == Op::After && k >= 0) {
      superseded[static_cast<size_t>(k)] = 1;
      if (const Node* below = memory[static_cast<size_t>(k)]) memory[i] = below;
    }
    // What is stored into a computed value goes to memory of its own.
    if (memory[i]->op == Op::Buffer) overwritten[memory[i]] = n;
  }

  // References that are known: edges of the graph, recorded values, and chains of views under them.
  std::unordered_map<const Node*, uint32_t> known;
  for (const Node* n : order)
    if (!is_realized(n))
      for (const Node* s : n->src()) ++known[s];
  std::unordered_map<const Node*, char> counted;  // views below recorded values that are not nodes of the graph
  for (const Node* n : order) {
    if (!is_realized(n)) continue;
    const Node* v = n->extra.load(std::memory_order_acquire)->realized;
    ++known[v];
    while (is_view(v) && index.find(v) < 0 && counted.try_emplace(v, 1).second) {
      ++known[v->src()[0]];
      v = v->src()[0];
    }
  }
  std::unordered_map<const Node*, char> root_nodes;
  for (const UOp& r : roots) root_nodes[r.node()] = 1;
  const auto outside = [&](const Node* n) {
    const auto it = known.find(n);
    return n->refs.load(std::memory_order_relaxed) > (it == known.end() ? 0 : it->second);
  };

  // Case (b): the buffer, or a node that shows it.
  std::unordered_map<const Node*, char> keep;
  for (const auto& [b, state] : overwritten)
    if (outside(b)) keep[b] = 1;
  for (const auto& [v, one] : counted) {
    const Node* b = v;
    while (is_view(b)) b = b->src()[0];
    if (overwritten.contains(b) && outside(v)) keep[b] = 1;
  }
  std::vector<char> old(order.size(), 0);
  std::vector<const Node*> extra;
  // A view that somebody holds needs only what it shows: an EXPAND may be a thousand times as large.
  const auto add_extra = [&](const Node* n) {
    while (is_view(n) && !is_realized(n)) n = n->src()[0];
    if (is_realized(n) || root_nodes.contains(n) || std::ranges::find(extra, n) != extra.end()) return;
    extra.push_back(n);
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const Node* n = order[i];
    const bool shows_memory = base[i]->op == Op::Buffer && overwritten.contains(base[i]);
    if (n->op == Op::After && !is_realized(n)) {
      // A state that ends here and is held by somebody is a value to keep.
      old[i] = superseded[i];
      if (superseded[i] && outside(n) && !root_nodes.contains(n)) add_extra(n);
      continue;
    }
    if (shows_memory) {
      old[i] = 1;
      if (n->op != Op::Buffer && outside(n)) keep[base[i]] = 1;
      continue;
    }
    if (is_realized(n) || n->op == Op::Store) continue;
    for (const Node* s : n->src()) old[i] |= old[number(s)];
    if (old[i] && n->dtype != DType::Void && outside(n) && !root_nodes.contains(n)) add_extra(n);
  }
  // Handles from here on.
  for (const auto& [b, one] : keep) plan.kept.emplace_back(b);
  for (const Node* n : extra) plan.extra_roots.emplace_back(n);
  for (const auto& [b, state] : overwritten) plan.states.emplace_back(state);
  for (size_t i = 0; i < order.size(); ++i)
    if (superseded[i]) plan.ended.emplace_back(order[i]);
  return plan;
}

UOp keep_old_content(const UOp& b, std::vector<KeptCopy>& copies) {
  UOp fresh = same_memory(b);
  for (const UOp& part : buffer_parts(b)) {
    const BufferPtr from = buffer_of(part);
    copies.push_back({part, from, Buffer::make(from->device_name(), from->n_bytes())});
    set_payload(part, copies.back().to);
  }
  return fresh;
}

}  // namespace whit::engine
