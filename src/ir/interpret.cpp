// Evaluation of kernel graphs. A nest (an END, a REDUCE) is compiled to a Block: its loops, and for each loop
// the list of what must be computed anew when that loop advances. So loop-invariant nodes run once, and running needs
// neither hashing nor recursion over graph depth (only over the depth of loop nests).
#include "ir/interpret.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <unordered_set>

#include "ir/build.h"

namespace whit {
namespace {

// One step of a kernel, with the registers and the memory that it works on.
using Step = std::function<void()>;

// Memory of a PARAM, or of a SCRATCH.
struct Memory {
  DType dtype;
  int64_t n_elems;
  void* raw = nullptr;
  std::string name{};
  std::vector<std::byte> own{};

  int64_t checked(int64_t at, const char* what) const {
    WHIT_CHECK(at >= 0 && at < n_elems, "{} at index {} of {}, which has {} elements", what, at, name, n_elems);
    return at;
  }
};

struct Loop {
  int64_t size;
  Scalar* counter;                              // the register of the RANGE
  const Scalar *to = nullptr, *from = nullptr;  // how far it runs, and from where; null: the size, and 0
};
struct Block {
  std::vector<Loop> loops;                // outermost first
  std::vector<std::vector<Step>> levels;  // levels[i]: what depends on loop i - 1, but on none further inside

  void run(size_t level = 0) const {
    for (const Step& step : levels[level]) step();
    if (level == loops.size()) return;
    const Loop& l = loops[level];
    const int64_t end = l.to ? l.to->i : l.size;
    for (int64_t at = l.from ? l.from->i : 0; at < end; ++at) {
      *l.counter = Scalar::of(DType::WeakInt, at);
      run(level + 1);
    }
  }
};

class Kernel {
 public:
  Kernel(std::span<void* const> buffers, const VariableValues& variables) : buffers_(buffers), variables_(variables) {}

  void run_store(const UOp& end) {
    if ((end.op() == Op::End ? end.src(0) : end).src(0).src(0).op() == Op::Scratch) return;  // a part of the store that reads it
    memories_.clear();
    registers_.clear();
    compile_store(end.node(), true).run();
  }

 private:
  // Places stay where they are while entries are added.
  Scalar* register_of(const Node* n) { return &registers_[n]; }

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

  // Scratch memory and the ENDs that fill it.
  static bool is_filled(const Node* n) { return n->op == Op::After && n->src()[0]->op == Op::Scratch; }

  // Sources before users; of an inner block only what depends on its loops, since the rest was computed outside. What an
  // AFTER waits for has run: stores of other nests do not belong to this one.
  static NodeList block_order(std::span<const UOp> roots, std::span<const Node* const> loops, bool outermost) {
    const auto is_outside = [&](const Node* n) { return !outermost && level_of(n, loops) == 0; };
    NodeList order = post_order(roots, [&](const Node* n) {
      return std::pair(0u, is_outside(n) ? 0u : n->op == Op::After && !is_filled(n) ? 1u : n->n_src);
    });
    std::erase_if(order, is_outside);
    return order;
  }

  Block compile_block(const std::vector<UOp>& roots, const std::vector<const Node*>& loops, bool outermost) {
    Block block;
    for (const Node* r : loops) {
      WHIT_CHECK(r->op == Op::Range, "a loop over {}", r->op);
      Loop& l = block.loops.emplace_back(range_size(r), register_of(r));
      if (r->n_src > 0) l.to = register_of(r->src()[0]);
      if (r->n_src > 1) l.from = register_of(r->src()[1]);
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
    return block;
  }

  // A STORE or the END of one.
  Block compile_store(const Node* end, bool outermost) {
    const bool is_end = end->op == Op::End;
    const Node* store = is_end ? end->src()[0] : end;
    WHIT_CHECK(store->op == Op::Store, "a kernel's SINK has {}, expected END or STORE", store->op);
    std::vector<const Node*> ranges(end->src().begin() + 1, is_end ? end->src().end() : end->src().begin() + 1);
    std::ranges::sort(ranges, [](const Node* a, const Node* b) { return range_id(a) < range_id(b); });
    Block block = compile_block({UOp(store->src()[0]), UOp(store->src()[1])}, ranges, outermost);
    block.levels.back().push_back([to = access(store->src()[0]), value = register_of(store->src()[1])] {
      if (to.is_on()) write_element(to.memory->dtype, to.memory->raw, to.memory->checked(to.index->i, "STORE"), *value);
    });
    return block;
  }

  void compile_node(const Node* n, std::vector<Step>& out) {
    switch (n->op) {
      case Op::Range:
      case Op::Param:
      case Op::Index:  // part of its LOAD or STORE
      case Op::Scratch:
      case Op::Store:
      case Op::End: return;
      case Op::After:
        for (size_t i = 1; is_filled(n) && i < n->n_src; ++i) out.push_back([block = compile_store(n->src()[i], false)] { block.run(); });
        return;
      case Op::Const: *register_of(n) = n->arg.is_invalid() ? Scalar::of(n->dtype, int64_t{0}) : scalar_of(UOp(n)); return;
      case Op::Variable: {
        const auto it = variables_.find(std::string(n->arg.at(0).as_str()));
        WHIT_CHECK(it != variables_.end(), "variable {} has no value", n->arg.at(0).as_str());
        *register_of(n) = Scalar::of(n->dtype, it->second);
        return;
      }
      case Op::Load:
        out.push_back([to = register_of(n), from = access(n->src()[0]), dtype = n->dtype] {
          const Memory& m = *from.memory;
          *to = from.is_on() ? read_element(dtype, m.raw, m.checked(from.index->i, "LOAD")) : Scalar::of(dtype, int64_t{0});
        });
        return;
      case Op::Reduce: compile_reduce(n, out); return;
      default: break;
    }
    WHIT_CHECK(is_elementwise(n->op) && n->shape.empty(), "{} of shape {} in a kernel graph", n->op, n->shape);
    SmallVec<const Scalar*, 3> src;
    for (const Node* s : n->src()) src.push_back(register_of(s));
    out.push_back([to = register_of(n), op = n->op, dtype = n->dtype, src] {
      Scalar values[3];
      for (size_t i = 0; i < src.size(); ++i) values[i] = *src[i];
      *to = eval_scalar(op, dtype, std::span<const Scalar>(values, src.size()));
    });
  }

  void compile_reduce(const Node* n, std::vector<Step>& out) {
    WHIT_CHECK(n->arg.as_list().size() == 1, "a REDUCE over axes in a kernel graph");
    const std::string_view monoid = n->arg.at(0).as_str();
    const auto fold = std::make_shared<std::optional<Scalar>>();  // the value so far; floats are kept in double
    const DType wide = is_float(n->dtype) ? DType::Float64 : n->dtype;
    Scalar start = monoid_identity(monoid, n->dtype);  // as kernels start: a sum of -0 is 0
    start.dtype = wide;
    Block block = compile_block({UOp(n->src()[0])}, {n->src().begin() + 1, n->src().end()}, false);
    block.levels.back().push_back([fold, start, wide, op = monoid_op(monoid), from = register_of(n->src()[0])] {
      Scalar v = *from;
      v.dtype = wide;  // a float is a double in every float type
      *fold = eval_scalar(op, wide, std::array{*fold ? **fold : start, v});
    });
    out.push_back([fold, block = std::move(block), to = register_of(n), none = monoid_identity(monoid, n->dtype)] {
      fold->reset();
      block.run();
      *to = !*fold ? none : is_float(none.dtype) ? Scalar::of(none.dtype, (*fold)->f) : **fold;
    });
  }

  Memory* memory_of(const Node* n) {
    while (n->op == Op::After) n = n->src()[0];
    const auto [it, fresh] = memories_.try_emplace(n);
    Memory& m = it->second;
    if (!fresh) return &m;
    const int64_t n_elems = n->shape.numel();
    if (n->op == Op::Scratch) {
      m = {n->dtype, n_elems, nullptr, "scratch memory", std::vector<std::byte>(static_cast<size_t>(n_elems * n_bytes(n->dtype)))};
      m.raw = m.own.data();
    } else {
      WHIT_CHECK(n->op == Op::Param, "INDEX into {}, expected PARAM or SCRATCH", name(n->op));
      const int64_t slot = n->arg.int_at(0);
      WHIT_CHECK(slot >= 0 && static_cast<size_t>(slot) < buffers_.size(), "PARAM {} of a kernel with {} buffers", slot, buffers_.size());
      WHIT_CHECK(buffers_[static_cast<size_t>(slot)] || n_elems == 0, "buffer {} has no memory", slot);
      m = {n->dtype, n_elems, buffers_[static_cast<size_t>(slot)], fmt::format("buffer {}", slot)};
    }
    return &m;
  }

  struct Access {
    Memory* memory;
    const Scalar *index, *gate;  // no gate: null
    bool is_on() const { return !gate || gate->truthy(); }
  };
  Access access(const Node* at) {
    WHIT_CHECK(at->op == Op::Index, "LOAD or STORE at {}, expected INDEX", at->op);
    return {memory_of(at->src()[0]), register_of(at->src()[1]), at->n_src > 2 ? register_of(at->src()[2]) : nullptr};
  }

  std::span<void* const> buffers_;
  const VariableValues& variables_;
  std::vector<const Node*> open_;  // RANGEs of the blocks around what is being compiled
  std::unordered_map<const Node*, Memory> memories_;
  std::unordered_map<const Node*, Scalar> registers_;
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

void evaluate_kernel(const UOp& kernel_, std::span<void* const> buffers, const VariableValues& variables) {
  WHIT_CHECK(kernel_.op() == Op::Sink, "a kernel is a SINK, got {}", kernel_.op());
  const UOp sink = stages_in_scratch(kernel_);
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
