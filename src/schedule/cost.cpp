#include "schedule/cost.h"

#include <algorithm>

namespace whit::sched {
namespace {

constexpr float kLoad = 0.25F, kSpreadLoad = 0.05F, kSpread = 0.05F;
constexpr int32_t kManyNodes = 1 << 20, kManyLoads = 1 << 10;

// Nanoseconds of one element in vector code, roughly.
constexpr struct {
  OpSet ops;
  float ns;
} kOpCost[] = {
    {{Op::Exp2, Op::Log2, Op::Sin}, 1.0F},
    {Op::Pow, 3.0F},
    {Op::Threefry, 12.0F},
    {{Op::Sqrt, Op::Recip, Op::Fdiv}, 0.5F},
    {{Op::Cdiv, Op::Cmod, Op::FloorDiv, Op::FloorMod}, 1.0F},
    {{Op::Bitcast, Op::Cast}, 0.0F},
    {{Op::Pad, Op::Gather}, 0.2F},
    {kElementwise, 0.08F},
};
float op_cost(const Node* n) {
  if (n->op == Op::Stack) return 0.1F * static_cast<float>(n->n_src);
  for (const auto& [ops, ns] : kOpCost)
    if (ops.has(n->op)) return ns;
  return 0.0F;
}

const Node* strip(const Node* n) {
  while (n->op == Op::Cast || (is_movement(n->op) && n->op != Op::Stack)) n = n->src()[0];
  return n;
}

}  // namespace

std::vector<Cost> estimate_costs(const Graph& g, const std::vector<char>& in_memory, double launch_ns) {
  std::vector<uint32_t> n_users(g.size(), 0);
  for (const int32_t s : g.src) ++n_users[static_cast<size_t>(s)];
  std::vector<Cost> cost(g.size());
  std::vector<char> leaf(g.size(), 0);  // counts as one load for its users
  for (size_t i = 0; i < g.size(); ++i) {
    const Node* n = g.nodes[i];
    Cost& c = cost[i];
    c.own_ns = op_cost(n);
    c.ns = c.own_ns;
    c.n_nodes = 1;
    const auto src = g.src_of(i);
    for (const int32_t s : src) {
      const Cost& d = cost[static_cast<size_t>(s)];
      if (leaf[static_cast<size_t>(s)]) {
        c.n_loads += 1;
        c.n_nodes += 1;
        c.load_ns += kLoad;
      } else {
        c.ns = std::min(c.ns + d.ns, 1e9F);
        c.load_ns = std::min(c.load_ns + d.load_ns, 1e6F);
        c.n_loads = std::min(c.n_loads + d.n_loads, kManyLoads);
        c.n_nodes = std::min(c.n_nodes + d.n_nodes, kManyNodes);
      }
    }
    const double n_elems = static_cast<double>(std::max<int64_t>(1, n->shape.numel()));
    // What is spread is computed once for many elements: rangeify materialises it where it would not be.
    if (n->op == Op::Expand && static_cast<double>(n->src()[0]->shape.numel()) * 8 <= n_elems) {
      c.load_ns = std::min(c.load_ns, kSpreadLoad * static_cast<float>(c.n_loads));
      c.ns *= kSpread;
    }
    // What rangeify will decide, as far as it can be seen from here. The cost of a REDUCE is not that of its body.
    const double again = (n_users[i] - 1.0) * (c.ns + std::max(0.0F, c.load_ns - kLoad));
    const bool costly =
        n_users[i] > 1 && !is_movement(n->op) && (again * n_elems > launch_ns + n_elems * kStoreLoadNs || c.n_loads > 8 || c.n_nodes > 64);
    leaf[i] = in_memory[i] || n->op == Op::Reduce || n->op == Op::Buffer || n->op == Op::After || costly;
  }
  return cost;
}

bool is_contraction(const Graph& g, int32_t node) {
  const Node* r = g.nodes[static_cast<size_t>(node)];
  if (r->op != Op::Reduce || r->arg.at(0).as_str() != "add") return false;
  const Node* m = r->src()[0];
  while (m->op == Op::Cast) m = m->src()[0];
  if (m->op != Op::Mul || m->shape.empty()) return false;
  const int64_t n = m->shape.numel();
  return strip(m->src()[0])->shape.numel() * 2 <= n && strip(m->src()[1])->shape.numel() * 2 <= n;
}

}  // namespace whit::sched
