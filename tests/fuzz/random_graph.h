// Random tensor graphs whose values are known: made node by node, each evaluated by the reference evaluator at once, so
// that every node comes with the largest error that another way of computing it may have. 0 means: bit for bit.
#pragma once
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "interpret_tensor.h"
#include "ir/build.h"

namespace whit::fuzz {

using Bytes = std::vector<std::byte>;

/// A node with its value. `tolerance` bounds the absolute difference of every element. `any_zero` is true where the
/// sign of a zero depends on the order of a reduction.
struct Known {
  UOp node;
  HostTensor value;
  double tolerance = 0;
  bool any_zero = false;
};

/// A graph: named inputs and the nodes of it, sources before users.
struct KnownGraph {
  std::unordered_map<const Node*, Bytes> inputs;  ///< contents of the BUFFERs
  std::vector<Known> nodes;

  HostInputs host_inputs();
  /// The value of any graph over the inputs.
  HostTensor evaluate(const UOp& root);
};

struct GraphOptions {
  uint64_t seed = 0;
  int n_nodes = 24;
  int64_t max_elems = 2048;
  std::string device = "CPU";
};

/// Counts how often each op, dtype, pair of both ("ADD int8"), rank and kind of shape was made, over all graphs of the process.
using OpCounts = std::map<std::string, int64_t>;

KnownGraph random_graph(const GraphOptions& options, OpCounts* counts = nullptr);

/// Ops that a tensor graph may hold and random_graph makes.
std::vector<Op> reachable_ops();

/// "" when `got` (bytes of the dtype and shape of the node) is what `want` allows, else where it first differs.
std::string difference(const Known& want, const Bytes& got);

/// What realising gives. The graph gets fresh BUFFERs, so nothing that ran before is reused.
/// errors: what realising raises
std::vector<Bytes> run_graph(const KnownGraph& graph, const std::vector<UOp>& roots, const std::string& device);

/// The smallest graph that still differs, as text with its inputs' values.
std::string smallest_failure(KnownGraph& graph, const std::string& device);

}  // namespace whit::fuzz
