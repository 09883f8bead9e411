// Between an optimised kernel graph and its LINEAR: the loop tree, and the graph of what is computed in it.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/build.h"
#include "ir/target.h"

namespace whit::codegen {

/// A loop, or the whole kernel (no range).
struct Block {
  UOp range;
  Block* parent = nullptr;
  int depth = 0;
  int id = 0;  ///< place in LoopTree::blocks
};

/// What `expand` makes of a kernel. REDUCEs have become registers, STAGEs scratch memory, LANE ranges LANES, UPCAST and
/// UNROLL ranges copies:
///   LOAD(AFTER(REG, STORE(REG, identity)))       the accumulator inside its loop
///   LOAD(AFTER(REG, END(STORE(REG, x), r...)))   the result, and AFTER(SCRATCH, END(STORE, r...)) a filled tile
struct LoopTree {
  std::vector<std::unique_ptr<Block>> blocks;  ///< [0] is the kernel
  std::unordered_map<const Node*, int> block_of_range;
  std::unordered_map<const Node*, int> pinned;  ///< nodes that stand in a block whatever their sources say
  std::unordered_map<const Node*, int> step;    ///< of an unrolled sum's additions: which copy
  std::vector<UOp> stores;                      ///< of outputs, in order
  int64_t scratch_bytes = 0;
  std::vector<UOp> alive;  ///< whose addresses are keys here or in the Expander

  Block* root() const { return blocks[0].get(); }
  Block* open(Block* parent, const UOp& range);
  void pin(const UOp& u, const Block* block) {
    pinned[u.node()] = block->id;
    alive.push_back(u);
  }
  Block* deeper(Block* a, Block* b) const { return a->depth >= b->depth ? a : b; }
};

LoopTree expand(const UOp& kernel, const Target& target);
/// The list of instructions; `names` receives the VARIABLEs in order, `extent` the launch space.
UOp linearize(const LoopTree& tree, std::vector<std::string>& names, int64_t& extent);

}  // namespace whit::codegen
