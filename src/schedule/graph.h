// The tensor graph as arrays: nodes in order, numbered, with the numbers of their sources. The scheduler's passes are
// loops over these arrays, so nothing recurses and every pass is linear.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ir/uop.h"

namespace whit::sched {

/// Pointer -> number, open addressing.
class NodeIndex {
 public:
  explicit NodeIndex(size_t expected = 64);
  /// The number of `n`, or -1.
  int32_t find(const Node* n) const {
    for (size_t i = slot_of(n);; i = (i + 1) & mask_) {
      if (slots_[i].first == n) return slots_[i].second;
      if (!slots_[i].first) return -1;
    }
  }
  /// False when it is there already.
  bool insert(const Node* n, int32_t number);
  void clear();
  size_t size() const { return used_; }

 private:
  size_t slot_of(const Node* n) const { return (reinterpret_cast<uintptr_t>(n) * 0x9E3779B97F4A7C15ull >> 20) & mask_; }
  void grow();
  std::vector<std::pair<const Node*, int32_t>> slots_{};
  size_t mask_ = 0, used_ = 0;
};

/// All nodes below some roots, sources before users.
struct Graph {
  std::vector<UOp> roots{};
  NodeList nodes{};
  NodeIndex index{};
  std::vector<uint32_t> first_src{};  ///< of node i: sources are src[first_src[i] .. first_src[i + 1])
  std::vector<int32_t> src{};

  explicit Graph(std::vector<UOp> roots);
  std::span<const int32_t> src_of(size_t i) const {
    return {src.data() + first_src[i], first_src[i + 1] - first_src[i]};
  }
  size_t size() const { return nodes.size(); }
};

/// Nodes below `roots`, sources before users, in the order of sources. Faster than whit::toposort; `stop` (optional)
/// says of which nodes the sources are not visited.
NodeList collect(std::span<const UOp> roots, NodeIndex& index, bool (*stop)(const Node*) = nullptr);

/// What a schedule works on: CALLs inlined, realised nodes replaced by their buffers, reduces over nothing and empty
/// tensors turned into constants, big reduces split, identities (DETACH ..) removed. One new root for each old one.
std::vector<UOp> prepare(std::span<const UOp> roots);

}  // namespace whit::sched
