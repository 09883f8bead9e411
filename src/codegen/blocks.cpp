// How it works. A STAGE of the scheduler holds what one row of the output loops needs: scores of one query for all keys.
// The innermost of these loops is cut into blocks, and the nest into parts: the STAGEs, the sums and maxima of rows, and
// what is stored at last, each for the rows of a block. A part stores to memory of its own ([key][row] for a STAGE, so
// that rows are lanes and nothing needs a transpose) and is scheduled as if it were a nest: a contraction is one. Then
// the parts are put together under the loops over blocks, which are what runs in parallel:
//   END(STORE(out, f(AFTER(SCRATCH, END(STORE(SCRATCH, scores), ...)))), ...)
//
// Requirements: (1) each sum is a part's, so its order is that of a nest of its own; (2) the block's size follows from
// shape and caches, and changes no sum; (3) a last block that is not whole begins early and computes some rows again.
#include "codegen/blocks.h"

#include <algorithm>

#include "codegen/contract.h"
#include "codegen/skip.h"
#include "codegen/vectorize.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

constexpr int64_t kMostRows = 64;

bool contains(std::span<const UOp> list, const UOp& u) { return std::find(list.begin(), list.end(), u) != list.end(); }

class Blocks {
 public:
  Blocks(const Nest& nest, const Target& target) : nest_(nest), target_(target) { target_.n_cores = 1; }

  bool run(std::vector<Nest>& out, const Target& target) {
    if (!find_rows()) return false;
    split();
    Nest all = join();
    if (const auto band = find_band(raw_, block_)) skip_outside(all, *band, block_, tiles_);
    double ns = 0;
    for (const Node* n : toposort(nest_.ends))
      if (n->op == Op::Reduce || n->op == Op::Stage) ns += executions(n->src()[0]) * 0.015;
    parallelize(all, outer_, ns, target);
    all.opts += fmt::format("blocks of {} rows ", block_.n_rows);
    out.push_back(std::move(all));
    return true;
  }

 private:
  struct Part {
    UOp memory{};  // PARAM that stands for the scratch memory; null: the nest's own stores
    std::vector<UOp> ends{};
  };

  // The loops that every STAGE is inside of; the innermost is over rows.
  bool find_rows() {
    std::vector<const Node*> stages;
    for (const Node* n : toposort(nest_.ends))
      if (n->op == Op::Stage) stages.push_back(n);
    if (stages.empty()) return false;
    int64_t n_staged = 0;
    for (const Node* s : stages) {
      int64_t n = n_bytes(s->dtype);
      for (const UOp& r : closed_ranges(s)) n *= range_size(r.node());
      n_staged += n;
    }
    for (const UOp& r : nest_.order) {
      bool all = axis_type(r.node()) == AxisType::Weak;
      for (const Node* s : stages) all = all && UOp(s).depends_on(r);
      for (const UOp& e : nest_.ends) all = all && contains(closed_ranges(e.node()), r);
      if (all) common_.push_back(r);
    }
    if (common_.empty()) return false;
    row_ = common_.back();
    const int64_t n = block_.n_all = range_size(row_.node());
    block_.n_rows = std::min(kMostRows, n);
    while (block_.n_rows > 16 && block_.n_rows * n_staged > target_.l2_bytes * 3 / 4) block_.n_rows /= 2;
    while (reads_output() && n % block_.n_rows != 0) --block_.n_rows;  // rows may not be computed twice
    outer_ = {common_.begin(), common_.end() - 1};
    outer_.push_back(fresh_range((n + block_.n_rows - 1) / block_.n_rows, AxisType::Weak));
    block_.first = outer_.back() * block_.n_rows;
    if (n % block_.n_rows != 0) block_.first = alu(Op::Min, {block_.first, idx(n - block_.n_rows)});
    block_.in_block = fresh_range(block_.n_rows, AxisType::Weak);
    return true;
  }

  bool reads_output() const {
    for (const Node* n : toposort(nest_.ends))
      for (const UOp& e : nest_.ends)
        if (n->op == Op::Load && n->src()[0]->src()[0] == e.src(0).src(0).src(0).node()) return true;
    return false;
  }

  // A sum or maximum of a row: it is inside of no other loop than the common ones.
  bool is_of_row(const Node* n) const {
    if (n->op != Op::Reduce || !UOp(n).depends_on(row_)) return false;
    for (const Node* r : n->range_set->nodes)
      if (!contains(common_, UOp(r))) return false;
    return true;
  }

  // ---- parts

  void split() {
    Remade made;
    made.set(row_.node(), block_.first + block_.in_block);
    for (const Node* n : toposort(nest_.ends)) {
      if (n == row_.node() || n->op == Op::End) continue;
      made.update(n);
      const Node* below = n->op == Op::Index ? n->src()[0] : n;
      if (n->op == Op::Stage || is_of_row(n)) {
        std::vector<UOp> ranges;
        RangeMap own;
        UOp flat = idx(0), value = made.of(n);
        int64_t n_elems = block_.n_rows;
        if (n->op == Op::Stage) {
          for (const UOp& r : closed_ranges(n)) {
            ranges.push_back(with_type(r, AxisType::Weak));
            own.emplace(r.node(), ranges.back());
            flat = flat * range_size(r.node()) + ranges.back();
            n_elems *= range_size(r.node());
          }
          value = substitute(made.of(n->src()[0]), own);
        }
        const int64_t size[] = {n_elems};
        const UOp memory = param(-1 - static_cast<int64_t>(parts_.size()), n->dtype, size);
        ranges.push_back(block_.in_block);
        const UOp at = index(memory, flat * block_.n_rows + block_.in_block);
        add_part(memory, n->op == Op::Stage, {end(store(at, value), ranges)});
        made.set(n, n->op == Op::Stage ? memory : load(index(memory, block_.in_block)));
      } else if (below->op == Op::Stage) {
        made.set(n, index(made.of(below), made.of(n->src()[1]) * block_.n_rows + block_.in_block));
      }
    }
    std::vector<std::pair<std::vector<UOp>, std::vector<UOp>>> stores;  // loops, and what is stored in them
    for (const UOp& e : nest_.ends) {
      UOp st = made.of(e.src(0).node());
      std::vector<UOp> ranges{block_.in_block};
      for (const UOp& r : closed_ranges(e.node())) {
        if (contains(common_, r)) continue;
        if (st.src(0).n_src() == 3 && contains(conjuncts(st.src(0).src(2)), lt(r, 1)))
          st = store_first(st, r);  // of one value of r only
        else
          ranges.push_back(r);
      }
      auto same = std::find_if(stores.begin(), stores.end(), [&](const auto& s) { return s.first == ranges; });
      if (same == stores.end()) same = stores.insert(same, {ranges, {}});
      same->second.push_back(end(st, ranges));
    }
    for (const auto& [ranges, ends] : stores) add_part(UOp(), false, ends);
  }

  static UOp store_first(const UOp& st, const UOp& r) {
    std::vector<UOp> gates = conjuncts(st.src(0).src(2));
    std::erase(gates, lt(r, 1));
    const UOp at = index(st.src(0).src(0), st.src(0).src(1), conjunction(gates));
    return substitute(store(at, st.src(1)), {{r.node(), idx(0)}});
  }

  // Schedules a part as a nest.
  void add_part(const UOp& memory, bool is_tile, const std::vector<UOp>& ends) {
    raw_.push_back({memory, is_tile, ends});
    Nest part = std::move(nests_of(UOp::make(Op::Sink, DType::Void, ends))[0]);
    std::erase_if(part.order, [&](const UOp& r) { return contains(outer_, r); });
    part = clone(part);
    merge_ranges(part);
    std::erase_if(part.order, [&](const UOp& r) { return contains(outer_, r); });
    std::vector<Nest> done;
    if (!contract(part, target_, done)) done = vectorize(std::move(part), target_);
    Part& p = parts_.emplace_back();
    p.memory = memory;
    for (const Nest& n : done) {
      opts_ += n.opts;
      for (const UOp& e : n.ends) {
        std::vector<UOp> ranges = closed_ranges(e.node());
        std::erase_if(ranges, [](const UOp& r) { return axis_type(r.node()) == AxisType::Global; });
        p.ends.push_back(end(e.src(0), ranges));
      }
      for (const UOp& r : n.order)
        if (axis_type(r.node()) != AxisType::Global) order_.push_back(r);
    }
  }

  // ---- the nest again

  Nest join() {
    Nest all;
    RangeMap memory;
    for (const Part& p : parts_) {
      std::vector<UOp> src;
      for (const UOp& e : p.ends) src.push_back(substitute(e, memory));
      if (p.memory) {
        const int64_t arg[] = {static_cast<int64_t>(memory.size()), p.memory.shape()[0]};
        const UOp scratch = UOp::make(Op::Scratch, p.memory.dtype(), {}, std::span<const int64_t>(arg));
        for (UOp& e : src) e = substitute(e, {{p.memory.node(), scratch}});
        src.insert(src.begin(), scratch);
        if (raw_[memory.size()].is_tile) tiles_.push_back(scratch);
        memory.emplace(p.memory.node(), UOp::make(Op::After, scratch.dtype(), src));
      } else {
        for (const UOp& e : src) {
          std::vector<UOp> ranges = closed_ranges(e.node());
          ranges.insert(ranges.end(), outer_.begin(), outer_.end());
          all.ends.push_back(end(e.src(0), ranges));
        }
      }
    }
    all.order = outer_;
    all.order.insert(all.order.end(), order_.begin(), order_.end());
    all.opts = opts_;
    return all;
  }

  const Nest& nest_;
  Target target_;
  std::vector<UOp> common_, outer_, order_;
  UOp row_;
  RowBlock block_;
  std::vector<Part> parts_;
  std::vector<MaskedPart> raw_;  // the same before they are scheduled
  std::vector<UOp> tiles_;
  std::string opts_;
};

}  // namespace

bool block_rows(const Nest& nest, const Target& target, std::vector<Nest>& out) {
  return Blocks(nest, target).run(out, target);
}

}  // namespace whit::codegen
