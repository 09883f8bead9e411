// What the nodes of a graph became: the memo of passes that go over a graph once, sources first.
#pragma once
#include <utility>
#include <vector>

#include "ir/uop.h"

namespace whit {

class Remade {
 public:
  /// Itself when nothing else was said.
  UOp of(const Node* n) const {
    const UOp* u = made_.find(n);
    return u ? *u : UOp(n);
  }
  bool has(const Node* n) const { return made_.find(n); }
  void set(const Node* n, UOp u) { made_[n] = std::move(u); }
  /// What the sources of n became; valid until the next call.
  std::vector<UOp>& src(const Node* n) {
    src_.clear();
    for (const Node* s : n->src()) src_.push_back(of(s));
    return src_;
  }
  /// n over what its sources became.
  UOp over(const Node* n) { return UOp(n).with_src(src(n)); }
  /// n becomes that.
  void update(const Node* n) {
    if (UOp now = over(n); now.node() != n) set(n, std::move(now));
  }

 private:
  PtrMap<Node, UOp> made_{};
  std::vector<UOp> src_{};
};

/// substitute, of nodes above those that `enter` refuses (itself included).
UOp substitute(const UOp& root, const std::unordered_map<const Node*, UOp>& map, bool (*enter)(const Node*));

}  // namespace whit
