// Rangeify: the tensor graph becomes nests of loops over virtual buffers.
//
// How it works. (1) Forward over the graph: what must be in memory, and an estimate of what a value costs. (2) Backward,
// users before sources: every node knows all *instances* in which it is wanted - in which nest, at which index, under
// which gate. A node is either materialised (a nest of its own computes it over fresh ranges, users load it) or inlined:
// each instance asks its sources for instances at the index that the op maps it to. (3) Forward: the scalar expression
// of every instance, from those of its sources.
//
// What is materialised, beyond roots, CONTIGUOUS, COPY, SCATTER and states, follows from one number: how often a value
// would be computed if it were inlined (`evaluations`: the product of the loops down to the innermost that its index
// depends on, since codegen computes it there) against how many elements it has. A softmax's row sum is computed once a
// row and stays; a batch norm's mean would be computed once an image and is materialised; a matmul's operand with real
// arithmetic would be computed once for each column and is materialised.
//
// Requirements: (1) iterative, linear in nodes plus instances; (2) decisions depend on structure, shape, dtype and flags
// only; (3) the value of a kernel is exactly that of the graph: nothing but REDUCE of REDUCE is reassociated; (4) a load
// is in bounds or gated.
#pragma once
#include <concepts>
#include <unordered_map>

#include "base/lists.h"
#include "schedule/graph.h"

namespace whit::sched {

/// A vector of what is numbered by int32_t: nodes, nests, buffers.
template <class T> struct Numbered : std::vector<T> {
  using std::vector<T>::vector;
  decltype(auto) operator[](std::integral auto i) { return std::vector<T>::operator[](static_cast<size_t>(i)); }
  decltype(auto) operator[](std::integral auto i) const { return std::vector<T>::operator[](static_cast<size_t>(i)); }
};

/// Memory before it has a place. A state of a buffer is a virtual buffer of its own, in the memory of its predecessor.
struct VirtualBuffer {
  enum class Kind : uint8_t { Input, Output, Temp, State };
  Kind kind;
  int32_t node;      ///< in the graph
  int32_t previous;  ///< of a State: the state that it overwrites, else -1
  int32_t memory;    ///< the Input, Output or Temp whose memory it is (itself, unless a State)
  DType dtype;
  uint16_t device;
  int64_t n_elems;
  bool is_barrier = false;  ///< of a CONTIGUOUS: stays memory
};

/// STORE(INDEX(PARAM buffer, index [, gate]), value)
struct NestStore {
  int32_t buffer;
  UOp index{}, gate{}, value{};
  void replace(const std::unordered_map<const Node*, UOp>& map);
};

/// Loops with stores inside. PARAM slots are numbers of virtual buffers.
struct Nest {
  uint16_t device = 0;
  bool has_reduce = false, has_loop = false, has_contraction = false;
  int32_t copy_from = -1;  ///< of a transfer between devices: what goes to the buffer of its store; else -1
  int32_t n_nodes = 0;
  int64_t n_iterations = 1;  ///< of the longest loop nest in it
  int32_t store_node = -1;   ///< of a state: the node of the stored value
  std::vector<UOp> ranges{};
  std::vector<NestStore> stores{};
  std::vector<int32_t> reads{};  ///< ascending
  bool is_copy() const { return copy_from >= 0; }
};

struct NestGraph {
  Numbered<VirtualBuffer> buffers{};
  Numbered<Nest> nests{};              ///< producers first, but for write-after-read
  Numbered<int32_t> buffer_of{};       ///< of a node of the graph: its virtual buffer or -1
  std::vector<int32_t> root_buffer{};  ///< of each root
};

/// What earlier attempts on the same graph found out.
struct Forced {
  Numbered<char> materialised{};  ///< by node
  Numbered<char> copied{};        ///< by node: states that are read from a copy
  explicit Forced(size_t n_nodes) : materialised(n_nodes), copied(n_nodes) {}
};

struct RangeifyLimits {
  int max_buffers = 31;
  int max_nodes = 4000;
  int64_t stored_scores = 0;  ///< elements
  double launch_ns = 2500;    ///< what one kernel more costs
};

NestGraph rangeify(const Graph& graph, const Forced& forced, const RangeifyLimits& limits, uint16_t default_device);

/// Finds out what a nest reads and how large it is, from its stores.
void describe_nest(Nest& nest);
/// Indices, gates and values of its stores.
std::vector<UOp> roots_of(const Nest& nest);

/// The node below RESHAPEs: where a root's value lives.
int32_t strip_reshapes(const Graph& graph, int32_t node);

}  // namespace whit::sched
