// The tensor graph as arrays: nodes in order, numbered, with the numbers of their sources. The scheduler's passes are
// loops over these arrays, so nothing recurses and every pass is linear.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ir/uop.h"

namespace whit::sched {

/// Node -> its place in a list.
class NodeIndex {
 public:
  NodeIndex() = default;
  explicit NodeIndex(const NodeList& nodes);
  /// The number of `n`, or -1.
  int32_t find(const Node* n) const {
    const int32_t* number = numbers_.find(n);
    return number ? *number : -1;
  }

 private:
  PtrMap<Node, int32_t> numbers_{};
};

/// All nodes below some roots, sources before users.
struct Graph {
  std::vector<UOp> roots{};
  NodeList nodes{};
  NodeIndex index{};
  std::vector<uint32_t> first_src{};  ///< of node i: sources are src[first_src[i] .. first_src[i + 1])
  std::vector<int32_t> src{};

  std::vector<char> hinted{};  ///< by node: better computed again than kept (checkpoint)

  explicit Graph(std::vector<UOp> roots, std::span<const UOp> to_recompute = {});
  std::span<const int32_t> src_of(size_t i) const { return {src.data() + first_src[i], first_src[i + 1] - first_src[i]}; }
  size_t size() const { return nodes.size(); }
};

/// The nodes below `roots`, sources before users, and their numbers. `stop` (optional) says of which nodes the sources are
/// not visited.
NodeList collect(std::span<const UOp> roots, NodeIndex& index, bool (*stop)(const Node*) = nullptr);

/// What a schedule works on: CALLs inlined, realised nodes replaced by their buffers, reduces over nothing and empty
/// tensors turned into constants, big reduces split (unless told not to), identities (DETACH ..) removed. One new root for
/// each old one. `to_recompute` (optional) gets the values inside of CALLs with the arg "checkpoint".
std::vector<UOp> prepare(std::span<const UOp> roots, bool split_reduces = true, std::vector<UOp>* to_recompute = nullptr);

}  // namespace whit::sched
