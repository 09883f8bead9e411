// Evaluation of kernel graphs. A nest (an END, a REDUCE, a STAGE) is compiled to a Block: its loops, and for each loop
// the list of what must be computed anew when that loop advances. So loop-invariant nodes run once, and running needs
// neither hashing nor recursion over graph depth (only over the depth of loop nests).
#include "ir/interpret.h"

#include <algorithm>
#include <unordered_set>

#include "ir/build.h"

namespace whit {
namespace {

struct Instruction {
  enum class Kind : uint8_t { Alu, Load, Store, Block, Accumulate, Stage };
  Kind kind;
  Op op = Op::Const;
  DType dtype = DType::Void;
  uint8_t n_src = 0;
  uint32_t dst = 0;             // register; of an Accumulate: number of the block's fold
  uint32_t src[3] = {0, 0, 0};  // registers; of Load: index, gate; of Store: index, gate, value
  uint32_t memory = 0;          // of Load, Store, Stage: number of the Memory
  uint32_t block = 0;           // of Block: which one
};
constexpr uint32_t kNoGate = UINT32_MAX;

// Raw memory of a PARAM, or the values of a STAGE.
struct Memory {
  DType dtype;
  int64_t n_elems;
  void* raw = nullptr;
  std::vector<Scalar> staged{};
  size_t next = 0;  // element of `staged` that is made next
  std::string name{};
};

struct Block {
  std::vector<int64_t> sizes;                    // of the loops, outermost first
  std::vector<uint32_t> registers;               // of the RANGEs
  std::vector<std::vector<Instruction>> levels;  // levels[i]: what depends on loop i - 1, but on none further inside
};

// The value that a REDUCE has so far.
struct Fold {
  Op op;
  DType dtype;  // floats are kept in double
  bool empty = true;
  Scalar value{};
};

class Kernel {
 public:
  Kernel(std::span<void* const> buffers, const VariableValues& variables) : buffers_(buffers), variables_(variables) {}

  void run_store(const UOp& end) {
    const bool is_end = end.op() == Op::End;
    const UOp store = is_end ? end.src(0) : end;
    WHIT_CHECK(store.op() == Op::Store, "a kernel's SINK has {}, expected END or STORE", store.op());
    std::vector<const Node*> ranges(end->src().begin() + is_end, is_end ? end->src().end() : end->src().begin());
    std::ranges::sort(ranges, [](const Node* a, const Node* b) { return range_id(a) < range_id(b); });
    blocks_.clear(), folds_.clear(), memories_.clear();
    memory_of_.clear();
    register_of_.clear();
    registers_.clear();

    const UOp at = store.src(0);
    const uint32_t outer = compile_block({at, store.src(1)}, ranges, true);
    Instruction write = access(Instruction::Kind::Store, at.node());
    write.src[2] = register_of(store->src()[1]);
    blocks_[outer].levels.back().push_back(write);
    run(outer);
  }

 private:
  uint32_t register_of(const Node* n) {
    const auto [it, fresh] = register_of_.try_emplace(n, static_cast<uint32_t>(registers_.size()));
    if (fresh) registers_.emplace_back();
    return it->second;
  }

  // Where the sorted range set of a node meets the loops of a block: the innermost one plus 1, 0 when none.
  static size_t level_of(const Node* n, std::span<const Node* const> loops) {
    if (!n->range_set) return 0;
    for (size_t level = loops.size(); level > 0; --level)
      if (std::ranges::find(n->range_set->nodes, loops[level - 1]) != n->range_set->nodes.end()) return level;
    return 0;
  }

  bool all_open(const Node* n) const {
    if (!n->range_set) return true;
    return std::ranges::all_of(n->range_set->nodes, [&](const Node* r) { return std::ranges::find(open_, r) != open_.end(); });
  }

  // Sources before users; of an inner block only what depends on its loops, since the rest was computed outside. What an
  // AFTER waits for has run: stores of other nests do not belong to this one.
  static NodeList block_order(std::span<const UOp> roots, std::span<const Node* const> loops, bool outermost) {
    const auto is_outside = [&](const Node* n) { return !outermost && level_of(n, loops) == 0; };
    NodeList order = post_order(roots, [&](const Node* n) { return std::pair(0u, is_outside(n) ? 0u : n->op == Op::After ? 1u : n->n_src); });
    std::erase_if(order, is_outside);
    return order;
  }

  uint32_t compile_block(const std::vector<UOp>& roots, const std::vector<const Node*>& loops, bool outermost) {
    const uint32_t id = static_cast<uint32_t>(blocks_.size());
    blocks_.emplace_back();
    Block block;
    for (const Node* r : loops) {
      WHIT_CHECK(r->op == Op::Range, "a loop over {}", r->op);
      block.sizes.push_back(range_size(r));
      block.registers.push_back(register_of(r));
      open_.push_back(r);
    }
    block.levels.resize(loops.size() + 1);
    // A sum in memory (SCATTER) reads in every iteration what the one before wrote, though its place may not change.
    std::unordered_set<const Node*> of_store;
    for (const Node* n : block_order(roots, loops, outermost)) {
      const bool reads = outermost && n->op == Op::Load && n->src()[0] == roots[0].node();
      if (reads || std::ranges::any_of(n->src(), [&](const Node* s) { return of_store.contains(s); })) of_store.insert(n);
      if (all_open(n)) compile_node(n, block.levels[of_store.contains(n) ? loops.size() : level_of(n, loops)]);
    }
    open_.resize(open_.size() - loops.size());
    blocks_[id] = std::move(block);
    return id;
  }

  void compile_node(const Node* n, std::vector<Instruction>& out) {
    switch (n->op) {
      case Op::Range:
      case Op::Param:
      case Op::Index:  // part of its LOAD or STORE
      case Op::After: return;
      case Op::Const: registers_[register_of(n)] = n->arg.is_invalid() ? Scalar::of(n->dtype, int64_t{0}) : scalar_of(UOp(n)); return;
      case Op::Variable: {
        const auto it = variables_.find(std::string(n->arg.at(0).as_str()));
        WHIT_CHECK(it != variables_.end(), "variable {} has no value", n->arg.at(0).as_str());
        registers_[register_of(n)] = Scalar::of(n->dtype, it->second);
        return;
      }
      case Op::Load: {
        Instruction load = access(Instruction::Kind::Load, n->src()[0]);
        load.dst = register_of(n);
        out.push_back(load);
        return;
      }
      case Op::Reduce: compile_reduce(n, out); return;
      case Op::Stage: compile_stage(n, out); return;
      default: break;
    }
    WHIT_CHECK(is_elementwise(n->op) && n->shape.empty(), "{} of shape {} in a kernel graph", n->op, n->shape);
    Instruction alu{Instruction::Kind::Alu, n->op, n->dtype, static_cast<uint8_t>(n->n_src), register_of(n)};
    for (size_t i = 0; i < n->n_src; ++i) alu.src[i] = register_of(n->src()[i]);
    out.push_back(alu);
  }

  // The loops of a REDUCE or STAGE; `last` takes the value in the innermost one.
  void compile_loops(const Node* n, Instruction last, Instruction run, std::vector<Instruction>& out) {
    const std::vector<const Node*> loops(n->src().begin() + 1, n->src().end());
    run.block = compile_block({UOp(n->src()[0])}, loops, false);
    last.src[0] = register_of(n->src()[0]);
    blocks_[run.block].levels.back().push_back(last);
    out.push_back(run);
  }

  void compile_reduce(const Node* n, std::vector<Instruction>& out) {
    WHIT_CHECK(n->arg.as_list().size() == 1, "a REDUCE over axes in a kernel graph");
    const std::string_view monoid = n->arg.at(0).as_str();
    Instruction add{Instruction::Kind::Accumulate}, run{Instruction::Kind::Block, n->op, n->dtype, 1, register_of(n)};
    add.dst = run.src[0] = static_cast<uint32_t>(folds_.size());
    folds_.push_back({monoid_op(monoid), is_float(n->dtype) ? DType::Float64 : n->dtype});
    identities_.resize(folds_.size());
    identities_[add.dst] = monoid_identity(monoid, n->dtype);
    compile_loops(n, add, run, out);
  }

  void compile_stage(const Node* n, std::vector<Instruction>& out) {
    Instruction put{Instruction::Kind::Stage}, run{Instruction::Kind::Block, n->op, n->dtype, 0, 0};
    put.memory = run.memory = memory_of(n);
    compile_loops(n, put, run, out);
  }

  uint32_t memory_of(const Node* n) {
    while (n->op == Op::After) n = n->src()[0];
    const auto [it, fresh] = memory_of_.try_emplace(n, static_cast<uint32_t>(memories_.size()));
    if (!fresh) return it->second;
    if (n->op == Op::Stage) {
      int64_t n_elems = 1;
      for (size_t i = 1; i < n->n_src; ++i) n_elems *= range_size(n->src()[i]);
      memories_.push_back({n->dtype, n_elems, nullptr, std::vector<Scalar>(static_cast<size_t>(n_elems)), 0, "a STAGE"});
    } else {
      WHIT_CHECK(n->op == Op::Param, "INDEX into {}, expected PARAM or STAGE", name(n->op));
      const int64_t slot = n->arg.int_at(0);
      WHIT_CHECK(slot >= 0 && static_cast<size_t>(slot) < buffers_.size(), "PARAM {} of a kernel with {} buffers", slot, buffers_.size());
      WHIT_CHECK(buffers_[static_cast<size_t>(slot)] || n->shape.numel() == 0, "buffer {} has no memory", slot);
      memories_.push_back({n->dtype, n->shape.numel(), buffers_[static_cast<size_t>(slot)], {}, 0, fmt::format("buffer {}", slot)});
    }
    return it->second;
  }

  Instruction access(Instruction::Kind kind, const Node* at) {
    WHIT_CHECK(at->op == Op::Index, "LOAD or STORE at {}, expected INDEX", at->op);
    Instruction i{kind};
    i.memory = memory_of(at->src()[0]);
    i.dtype = memories_[i.memory].dtype;
    i.src[0] = register_of(at->src()[1]);
    i.src[1] = at->n_src > 2 ? register_of(at->src()[2]) : kNoGate;
    return i;
  }

  // ---- running

  void run(uint32_t id) {
    const Block& block = blocks_[id];
    const size_t n_loops = block.sizes.size();
    for (const Instruction& i : block.levels[0]) execute(i);
    if (std::find(block.sizes.begin(), block.sizes.end(), 0) != block.sizes.end()) return;
    std::vector<int64_t> at(n_loops, 0);
    size_t from = 0;  // the outermost loop that advanced
    for (;;) {
      for (size_t loop = from; loop < n_loops; ++loop) {
        Scalar& r = registers_[block.registers[loop]];
        r.dtype = DType::WeakInt;
        r.i = at[loop];
        for (const Instruction& i : block.levels[loop + 1]) execute(i);
      }
      from = n_loops;
      while (from > 0 && ++at[from - 1] == block.sizes[from - 1]) at[--from] = 0;
      if (from == 0) return;
      --from;
    }
  }

  void execute(const Instruction& i) {
    switch (i.kind) {
      case Instruction::Kind::Alu: {
        Scalar src[3];
        for (size_t s = 0; s < i.n_src; ++s) src[s] = registers_[i.src[s]];
        registers_[i.dst] = eval_scalar(i.op, i.dtype, std::span<const Scalar>(src, i.n_src));
        return;
      }
      case Instruction::Kind::Load: {
        const Memory& m = memories_[i.memory];
        if (i.src[1] != kNoGate && !registers_[i.src[1]].truthy()) {
          registers_[i.dst] = Scalar::of(i.dtype, int64_t{0});
          return;
        }
        const int64_t at = checked_index(m, registers_[i.src[0]].i, "LOAD");
        registers_[i.dst] = m.raw ? read_element(m.dtype, m.raw, at) : m.staged[static_cast<size_t>(at)];
        return;
      }
      case Instruction::Kind::Store: {
        const Memory& m = memories_[i.memory];
        if (i.src[1] != kNoGate && !registers_[i.src[1]].truthy()) return;
        const int64_t at = checked_index(m, registers_[i.src[0]].i, "STORE");
        write_element(m.dtype, m.raw, at, registers_[i.src[2]]);
        return;
      }
      case Instruction::Kind::Accumulate: {
        Fold& fold = folds_[i.dst];
        Scalar v = registers_[i.src[0]];
        v.dtype = fold.dtype;  // a float is a double in every float type
        if (!fold.empty) {
          const Scalar src[] = {fold.value, v};
          v = eval_scalar(fold.op, fold.dtype, src);
        }
        fold.value = v;
        fold.empty = false;
        return;
      }
      case Instruction::Kind::Stage: {
        Memory& m = memories_[i.memory];
        m.staged[m.next++] = registers_[i.src[0]];
        return;
      }
      case Instruction::Kind::Block:
        if (i.op == Op::Stage) {
          memories_[i.memory].next = 0;
          run(i.block);
          return;
        }
        folds_[i.src[0]].empty = true;
        run(i.block);
        const Fold& fold = folds_[i.src[0]];
        if (fold.empty) registers_[i.dst] = identities_[i.src[0]];
        else registers_[i.dst] = is_float(i.dtype) ? Scalar::of(i.dtype, fold.value.f) : fold.value;
        return;
    }
  }

  static int64_t checked_index(const Memory& m, int64_t at, const char* what) {
    WHIT_CHECK(at >= 0 && at < m.n_elems, "{} at index {} of {}, which has {} elements", what, at, m.name, m.n_elems);
    return at;
  }

  std::span<void* const> buffers_;
  const VariableValues& variables_;
  std::vector<Block> blocks_;
  std::vector<Fold> folds_;
  std::vector<Scalar> identities_;  // of the folds, in the dtype of the REDUCE
  std::vector<Memory> memories_;
  std::vector<Scalar> registers_;
  std::vector<const Node*> open_;  // RANGEs of the blocks around what is being compiled
  std::unordered_map<const Node*, uint32_t> memory_of_, register_of_;
};

}  // namespace

Sint with_values(const Sint& size, const VariableValues& variables) {
  std::unordered_map<const Node*, UOp> map;
  const UOp u = size.uop();  // made here, when it is a number
  for (const Node* n : toposort(u)) {
    if (n->op == Op::Bind) map.emplace(n, idx(n->arg.as_int()));
    if (n->op != Op::Variable) continue;
    const auto it = variables.find(std::string(n->arg.at(0).as_str()));
    if (it != variables.end()) map.emplace(n, idx(it->second));
  }
  return substitute(u, map);
}

void evaluate_kernel(const UOp& sink, std::span<void* const> buffers, const VariableValues& variables) {
  WHIT_CHECK(sink.op() == Op::Sink, "a kernel is a SINK, got {}", sink.op());
  Kernel kernel(buffers, variables);
  // Stores that others wait for (through AFTER) come first; otherwise this is the order of the SINK.
  std::unordered_set<const Node*> ended;
  const NodeList order = toposort(sink);
  for (const Node* n : order)
    if (n->op == Op::End) ended.insert(n->src()[0]);
  for (const Node* n : order)
    if (n->op == Op::End || (n->op == Op::Store && !ended.contains(n))) kernel.run_store(UOp(n));
}

}  // namespace whit
