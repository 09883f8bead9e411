// Rangeify: what is materialised, and how it lies in memory.
#include <algorithm>

#include "ir/build.h"
#include "ir/eval.h"
#include "rules/linear.h"
#include "schedule/rangeify_state.h"

namespace whit::sched {

Rangeify::Demand Rangeify::demand_of(int32_t i) const {
  Demand d;
  for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next) {
    const Instance& in = instances_[k];
    d.evaluations += static_cast<double>(evaluations(in));
    ++d.n_instances;
    if (d.first && d.first->nest != in.nest) d.one_nest = false;
    d.first = &in;
  }
  return d;
}

bool Rangeify::should_materialise(int32_t i) {
  const Node* n = node(i);
  if (n->dtype == DType::Void || n->shape.numel() <= 0 || is_weak(n->dtype)) return false;
  const Demand d = demand_of(i);
  if (d.n_instances == 0) return false;
  const double n_elems = static_cast<double>(n->shape.numel());
  const OpenNest& nest = nests_[d.first->nest];
  if (n->op == Op::Reduce) return should_materialise_reduce(i, d, n_elems);
  if (n->op == Op::Pad) {
    // Under a contraction a padded copy keeps gates out of the inner loop. What is computed below without a
    // contraction is stored with a halo instead.
    int32_t base = src(i, 0);
    while (is_view(node(base))) base = src(base, 0);
    const size_t b = static_cast<size_t>(base);
    if (is_elementwise(node(base)->op) && !in_memory_[b] && !over_contraction_[b]) return false;
    return scopes_[d.first->scope].contraction && d.evaluations >= 4 * n_elems;
  }
  // So does a copy with a halo of what is in memory. Rows of few vectors repay it sooner: their lanes run over several.
  if (n->op == Op::Reshape && !n->shape.empty() && node(src(i, 0))->op == Op::Buffer) {
    Layout l(n->shape);
    return scopes_[d.first->scope].contraction && d.evaluations >= (n->shape.back() < 32 ? 2 : 4) * n_elems && add_halo(i, l);
  }
  if (n->op == Op::Unwindow) {
    // A convolution's data gradient gets a kernel of its own where another reduce is in the nest already: a contraction
    // is fast only by itself.
    const bool outermost = !scopes_[d.first->scope].unwindow;
    if (outermost && nest.n_reduces + nest.n_contractions > 0 && is_unwindowed_contraction(i)) return true;
    return d.evaluations > 1.5 * n_elems && d.evaluations > 10000;
  }
  if ((is_movement(n->op) && n->op != Op::Stack) || is_product_[i]) return false;
  const Cost& c = costs_[static_cast<size_t>(i)];
  if (n->op == Op::Lanes || n->op == Op::Const || n->op == Op::Variable) return false;
  if (n->op == Op::Cast && is_float(node(src(i, 0))->dtype) && n_bytes(n->dtype) > n_bytes(node(src(i, 0))->dtype))
    return false;                                                     // what is narrower is
  if (n->op == Op::CmpLt && materialised_relu(i) >= 0) return false;  // one load and a comparison
  if (c.n_loads + (c.own_ns > 0.01) > 1 || c.n_nodes > limits_.max_nodes) {
    if (nest.n_instances > limits_.max_nodes) return true;
    if (nest.n_buffers >= limits_.max_buffers - 3 && c.n_loads > 1) return true;
  }
  if (d.evaluations <= n_elems) return false;
  if (nest.has_stages && c.n_loads <= 1 && c.ns < 1) return false;  // a mask of scores
  // However small: what is computed again and again makes the schedule long.
  if (d.n_instances > kManyInstances && c.n_nodes > 3) return true;
  // The load that reads it from memory instead is saved.
  const double cost = c.ns + std::max(0.0F, c.load_ns - 0.25F);
  return (d.evaluations - n_elems) * cost > limits_.launch_ns + n_elems * (d.one_nest ? kStoreLoadSameNestNs : kStoreLoadNs);
}

bool Rangeify::is_unwindowed_contraction(int32_t i) const {
  while (is_movement(node(i)->op) && node(i)->op != Op::Stack) i = src(i, 0);
  return node(i)->op == Op::Reduce && is_contraction(g_, i);
}

bool Rangeify::should_materialise_reduce(int32_t i, const Demand& d, double n_elems) {
  const int32_t body = src(i, 0);
  const bool contraction = is_contraction(g_, i);
  const OpenNest& nest = nests_[d.first->nest];
  const Scope& scope = scopes_[d.first->scope];
  const double n_reduced = static_cast<double>(node(body)->shape.numel()) / n_elems;
  if (nest.n_instances > limits_.max_nodes) return true;
  const double cost = n_reduced * (costs_[static_cast<size_t>(body)].ns + 0.1 + 0.15 * costs_[static_cast<size_t>(body)].n_loads);
  if (contraction) {
    if (d.n_instances > 1) return true;
    if (scope.unwindow && nest.n_contractions + nest.n_reduces == 0) return d.evaluations > 2 * n_elems;
    return d.first->scope != nest.scope || d.evaluations > n_elems || nest.n_contractions + nest.n_reduces > 0;
  }
  if (d.n_instances > 1 || d.evaluations > n_elems) {
    if (d.n_instances > 4 || nest.n_contractions > 0) return true;
    return (d.evaluations - n_elems) * cost > limits_.launch_ns;
  }
  // Beside a contraction there is no other reduce, now or later.
  const bool beside = nest.node != i && over_contraction_[nest.node];
  if ((nest.n_contractions > 0 || beside) && d.first->scope == nest.scope) return true;
  if (scopes_[d.first->scope].contraction) return true;
  // Few rows: each would be reduced by one thread.
  const bool epilogue = static_cast<double>(nest.n_iterations) <= n_elems;
  return !epilogue && n_elems < 16 && n_elems * cost > 4 * limits_.launch_ns;
}

}  // namespace whit::sched
