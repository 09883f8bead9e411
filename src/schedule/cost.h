// What a value costs when it is computed where it is wanted: estimates for fusion decisions.
#pragma once
#include "schedule/graph.h"

namespace whit::sched {

struct Cost {
  float ns = 0;                      ///< of one element, down to what is in memory; without loads
  float own_ns = 0;                  ///< of the node alone
  float load_ns = 0;                 ///< of the loads; less where an EXPAND spreads what is loaded
  int32_t n_loads = 0, n_nodes = 0;  ///< as a tree, saturated
};

/// An element written and read again; the same when it would otherwise stay within one kernel.
inline constexpr double kStoreLoadNs = 0.8, kStoreLoadSameNestNs = 1.6;

/// A cost a node. `in_memory` tells what is surely materialised; what is used more than once and not cheap is taken
/// for materialised too, so costs stay local.
std::vector<Cost> estimate_costs(const Graph& graph, const std::vector<char>& in_memory, double launch_ns);

/// True for a sum over products of two broadcast operands: matmul, convolution.
bool is_contraction(const Graph& graph, int32_t node);

}  // namespace whit::sched
