// Loop tree and expression graph -> LINEAR.
//
// How it works. Every node gets a block: where it is pinned, else the deepest block of its sources. A block then holds
// items: its own nodes, and the loops directly inside it. An edge between two nodes is an edge between the two items
// that hold them in the block where their paths meet; each block is sorted by these edges, and the list is written by
// a walk over the tree. Stores of outputs, and loops that hold some, come as late as they can: a kernel that
// updates a buffer in place has read an element before it writes it.
//
// Requirements: the order is a function of the graph alone (first by edges, then by the order in which a walk from the
// stores meets the nodes); time linear in nodes times depth of loops.
#include <algorithm>
#include <limits>
#include <set>

#include "base/lists.h"
#include "base/ptr_map.h"
#include "codegen/loops.h"

namespace whit::codegen {
namespace {

bool is_leaf(const Node* n) {
  return n->op == Op::Const || n->op == Op::Param || n->op == Op::Variable || n->op == Op::Reg || n->op == Op::Scratch || n->op == Op::Lanes;
}

class Linearizer {
 public:
  Linearizer(const LoopTree& tree, std::vector<std::string>& names, int64_t& extent) : tree_(tree), names_(names), extent_(extent) {}

  UOp run() {
    order_ = toposort(tree_.stores);
    n_nodes_ = static_cast<int>(order_.size());
    const int n_blocks = static_cast<int>(tree_.blocks.size());
    for (int i = 0; i < n_nodes_; ++i) number_[order_[i]] = i;
    block_.assign(order_.size(), nullptr);
    for (int i = 0; i < n_nodes_; ++i) block_[i] = find_block(order_[i]);

    // Items are numbered: nodes first, then blocks.
    deps_.resize(order_.size() + n_blocks);
    items_.resize(n_blocks);
    first_seen_.assign(n_blocks, std::numeric_limits<int>::max());
    late_.assign(order_.size() + n_blocks, false);
    for (int i = 0; i < n_nodes_; ++i) place(i);
    for (const UOp& s : tree_.stores) {
      late_[number(s.node())] = true;
      for (const Block* b = block_[number(s.node())]; b->parent; b = b->parent) late_[n_nodes_ + b->id] = true;
    }
    for (int b = 0; b < n_blocks; ++b)
      std::stable_sort(items_[b].begin(), items_[b].end(), [&](int x, int y) {
        const int s = step(x), t = step(y);
        return s != t ? s < t : seen(x) < seen(y);
      });

    leaves();
    state_.assign(order_.size() + n_blocks, kNew);
    write(tree_.root());
    return UOp::make(Op::Linear, DType::Void, list_);
  }

 private:
  int number(const Node* n) { return *number_.find(n); }
  const UOp& out(const Node* n) { return *out_.find(n); }

  Block* find_block(const Node* n) {
    if (n->op == Op::Range) {
      const auto it = tree_.block_of_range.find(n);
      WHIT_CHECK(it != tree_.block_of_range.end(), "[lower] range {} is used outside of its loop", range_id(n));
      return tree_.blocks[it->second].get();
    }
    if (const auto it = tree_.pinned.find(n); it != tree_.pinned.end()) return tree_.blocks[it->second].get();
    Block* block = tree_.root();
    for (const Node* s : n->src()) block = tree_.deeper(block, block_[number(s)]);
    return block;
  }

  int seen(int item) const { return item < n_nodes_ ? item : first_seen_[item - n_nodes_]; }

  // Unrolled sums advance together: the first addition of each, then the second. One after the other they would want
  // the operands of all copies at once.
  int step(int item) const {
    if (item >= n_nodes_ || tree_.step.empty()) return std::numeric_limits<int>::max();
    const auto it = tree_.step.find(order_[item]);
    return it == tree_.step.end() ? std::numeric_limits<int>::max() : it->second;
  }

  void place(int i) {
    const Node* n = order_[i];
    if (is_leaf(n)) return;
    if (n->op != Op::Range) items_[block_[i]->id].push_back(i);
    for (const Block* b = block_[i]; b->parent; b = b->parent) {
      if (first_seen_[b->id] != std::numeric_limits<int>::max()) break;
      first_seen_[b->id] = i;
      items_[b->parent->id].push_back(n_nodes_ + b->id);
    }
    for (const Node* s : n->src()) {
      if (is_leaf(s) || s->op == Op::Range) continue;
      const int j = number(s);
      int from = j, to = i;
      const Block *a = block_[j], *b = block_[i];
      while (a != b) {
        if (a->depth >= b->depth) {
          from = n_nodes_ + a->id;
          a = a->parent;
        } else {
          to = n_nodes_ + b->id;
          b = b->parent;
        }
      }
      if (from != to) deps_[to].push_back(from);
    }
  }

  // ---- writing
  void leaves() {
    std::set<std::string> variables;
    for (const Op op : {Op::Param, Op::Variable, Op::Const, Op::Lanes, Op::Reg, Op::Scratch})
      for (const Node* n : order_)
        if (n->op == op) {
          if (op == Op::Variable) variables.emplace(n->arg.at(0).as_str());
          emit(n, UOp::make(op, number_type(n->dtype), {}, n->arg));
        }
    names_.insert(names_.end(), variables.begin(), variables.end());
  }

  // Items of a block in order: what is early first, dependencies before their users.
  std::vector<int> sorted(const Block* block) {
    std::vector<int> out;
    std::vector<std::pair<int, size_t>> stack;
    for (const bool late : {false, true})
      for (const int root : items_[block->id]) {
        if (late_[root] != late) continue;
        stack.emplace_back(root, 0);
        while (!stack.empty()) {
          auto& [item, next] = stack.back();
          if (next == 0 && state_[item] != kNew) {
            stack.pop_back();
            continue;
          }
          state_[item] = kOpen;
          if (next < deps_[item].size()) {
            const int d = deps_[item][next++];
            WHIT_CHECK(state_[d] != kOpen, "[lower] loops of a kernel depend on each other");
            if (state_[d] == kNew) stack.emplace_back(d, 0);
          } else {
            out.push_back(item);
            state_[item] = kDone;
            stack.pop_back();
          }
        }
      }
    return out;
  }

  void write(const Block* block) {
    UOp open;
    if (block->range) {
      const Node* r = block->range.node();
      const int64_t arg[] = {next_range_++, static_cast<int64_t>(axis_type(r)), range_size(r)};
      const auto runs_to = mapped(r->src(), [&](const Node* n) { return out(n); });
      open = UOp::make(Op::Range, DType::Int64, runs_to, std::span<const int64_t>(arg));
      if (axis_type(r) == AxisType::Global) extent_ += range_size(r);
      out_[r] = open;
      list_.push_back(open);
    }
    for (const int item : sorted(block)) {
      if (item >= n_nodes_) write(tree_.blocks[item - n_nodes_].get());
      else instruction(order_[item]);
    }
    if (open) list_.push_back(UOp::make(Op::EndRange, DType::Void, {open}));
  }

  static DType number_type(DType dt) { return dt == DType::WeakInt ? DType::Int64 : dt; }

  void emit(const Node* n, const UOp& u) {
    list_.push_back(u);
    out_[n] = u;
  }
  void instruction(const Node* n) {
    if (n->op == Op::End) return;
    std::vector<UOp> src;
    for (const Node* s : n->src()) {
      if (n->op == Op::After && s != n->src()[0]) break;
      src.push_back(out(s));
    }
    if (n->op == Op::After) {
      out_[n] = src[0];
      return;
    }
    emit(n, UOp::make(n->op, number_type(n->dtype), src, n->arg));
  }

  const LoopTree& tree_;
  std::vector<std::string>& names_;
  int64_t& extent_;
  NodeList order_;
  int n_nodes_ = 0;
  PtrMap<Node, int> number_;
  std::vector<Block*> block_;
  std::vector<std::vector<int>> deps_, items_;
  std::vector<int> first_seen_;
  std::vector<bool> late_;
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> state_;
  PtrMap<Node, UOp> out_;
  std::vector<UOp> list_;
  int64_t next_range_ = 0;
};

}  // namespace

UOp linearize(const LoopTree& tree, std::vector<std::string>& names, int64_t& extent) { return Linearizer(tree, names, extent).run(); }

}  // namespace whit::codegen
