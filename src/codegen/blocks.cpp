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
#include "codegen/vectorize.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

constexpr int64_t kMostRows = 64;

class Blocks {
 public:
  Blocks(const Nest& nest, const Target& target, RowsLie rows) : nest_(nest), ends_(nest.ends), target_(target), rows_(rows) { target_.n_cores = 1; }

  bool run(std::vector<Nest>& out, const Target& target) {
    if (!find_rows(target.n_cores)) return false;
    double ns = 0;
    for (const Node* n : toposort(ends_))
      if (n->op == Op::Reduce || n->op == Op::Stage) ns += executions(n->src()[0]) * 0.015;
    all_.order = outer_;
    all_.opts = fmt::format("blocks of {} rows {}", block_.n_rows, skip_masked(ends_, row_, block_) ? "skip " : "");
    split();
    parallelize(all_, outer_, ns, target);
    out.push_back(std::move(all_));
    return true;
  }

 private:
  // The loops that every STAGE is inside of; the innermost is over rows.
  bool find_rows(int n_cores) {
    std::vector<const Node*> stages;
    double n_staged = 0;  // bytes
    for (const Node* n : toposort(nest_.ends))
      if (n->op == Op::Stage) {
        stages.push_back(n);
        n_staged += product(closed_ranges(n)) * static_cast<double>(n_bytes(n->dtype));
      }
    if (stages.empty()) return false;
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
    // What is read beside a STAGE with rows outside wants most of the cache.
    const double room = (rows_ == RowsLie::Outside ? 0.25 : 0.75) * static_cast<double>(target_.l2_bytes);
    const double most = rows_ == RowsLie::Outside ? std::min(room / n_staged, product(common_) / (4.0 * n_cores)) : room / n_staged;
    while (block_.n_rows > 16 && static_cast<double>(block_.n_rows) > most) block_.n_rows /= 2;
    while (reads_output(nest_) && n % block_.n_rows != 0) --block_.n_rows;  // rows may not be computed twice
    outer_ = {common_.begin(), common_.end() - 1};
    outer_.push_back(fresh_range((n + block_.n_rows - 1) / block_.n_rows, AxisType::Weak));
    block_.first = outer_.back() * block_.n_rows;
    if (n % block_.n_rows != 0) block_.first = alu(Op::Min, {block_.first, idx(n - block_.n_rows)});
    in_block_ = fresh_range(block_.n_rows, AxisType::Weak);
    return true;
  }

  // A sum or maximum of a row: it is inside of no other loop than the common ones.
  bool is_of_row(const Node* n) const {
    if (n->op != Op::Reduce || !UOp(n).depends_on(row_)) return false;
    for (const Node* r : n->range_set->nodes)
      if (!contains(common_, UOp(r))) return false;
    return true;
  }

  // Each STAGE, sum of a row, and store becomes a part.
  void split() {
    Remade made;
    made.set(row_.node(), block_.first + in_block_);
    for (const Node* n : toposort(ends_)) {
      if (n == row_.node() || n->op == Op::End) continue;
      made.update(n);
      const Node* below = n->op == Op::Index ? n->src()[0] : n;
      if (n->op == Op::Stage) {
        const std::vector<UOp> loops = closed_ranges(n);
        made.set(n, fill(transpose_loads(made.of(n).src(0), loops), loops).src(0));
      } else if (n->op == Op::Reduce) {
        UOp sum = made.of(n);
        if (reads_scratch(sum)) sum = substitute(sum, {{sum.src(0).node(), transpose_loads(sum.src(0), closed_ranges(n))}});
        made.set(n, is_of_row(n) ? load(fill(sum, {})) : sum);
      } else if (below->op == Op::Stage) {
        const UOp memory = made.of(below);
        made.set(n, index(memory, place(made.of(n->src()[1]), memory.shape()[0])));
      }
    }
    std::vector<std::pair<std::vector<UOp>, std::vector<UOp>>> stores;  // loops, and what is stored in them
    for (const UOp& e : ends_) {
      UOp st = made.of(e.src(0).node());
      std::vector<UOp> ranges{in_block_};
      for (const UOp& r : closed_ranges(e.node())) {
        if (contains(common_, r)) continue;
        if (st.src(0).n_src() == 3 && contains(conjuncts(st.src(0).src(2)), lt(r, 1))) st = store_first(st, r);  // of one value of r only
        else ranges.push_back(r);
      }
      auto same = std::find_if(stores.begin(), stores.end(), [&](const auto& s) { return s.first == ranges; });
      if (same == stores.end()) same = stores.insert(same, {ranges, {}});
      same->second.push_back(end(st, ranges));
    }
    for (const auto& [ranges, ends] : stores) add_part(UOp(), ends);
  }

  // A part that computes `value` for all of `loops` and the rows of a block, or the one that does; gives the current place.
  UOp fill(const UOp& value, const std::vector<UOp>& loops) {
    UOp flat = idx(0);
    RangeMap map;
    std::vector<UOp> own;
    int64_t n_elems = block_.n_rows;
    for (const UOp& r : loops) {
      flat = flat * range_size(r.node()) + r;
      n_elems *= range_size(r.node());
      const auto same = std::ranges::find_if(loops_, [&](const UOp& l) {
        return !contains(own, l) && range_size(l.node()) == range_size(r.node()) && std::ranges::equal(l.srcs(), r.srcs());
      });
      own.push_back(same == loops_.end() ? loops_.emplace_back(with_type(r, AxisType::Weak)) : *same);
      map.emplace(r.node(), own.back());
    }
    const UOp what = substitute(value, map);
    auto known = std::ranges::find(filled_, what, &std::pair<UOp, UOp>::first);
    if (known == filled_.end()) {
      const UOp memory = param(-1 - static_cast<int64_t>(memory_.size()), value.dtype(), std::array{n_elems});
      own.push_back(in_block_);
      add_part(memory, {end(store(index(memory, substitute(place(flat, n_elems), map)), what), own)});
      known = filled_.emplace(known, what, memory);
    }
    return index(known->second, place(flat, n_elems));
  }

  // What lies in memory along another loop than the rows (a mask [row][key]) is transposed first: as lanes its rows would be
  // gathered, each from a page of its own.
  UOp transpose_loads(const UOp& value, const std::vector<UOp>& loops) {
    RangeMap transposed;
    for (const Node* n : toposort(value, [](const Node* m) { return m->op != Op::Reduce; })) {
      if (rows_ == RowsLie::Outside || n->op != Op::Load || n->src()[0]->op != Op::Index) continue;
      const Affine at = affine_of(UOp(n->src()[0]->src()[1]));
      const auto along = [&](const UOp& r) { return stride_of(at, r).value == 1; };
      if (std::abs(stride_of(at, in_block_).value) < 2 || std::ranges::none_of(loops, along)) continue;
      std::vector<UOp> own(loops);
      std::erase_if(own, [&](const UOp& r) { return !UOp(n).depends_on(r); });
      transposed.emplace(n, load(fill(UOp(n), own)));
    }
    return substitute(value, transposed);
  }

  static bool reads_scratch(const UOp& u) {
    return std::ranges::any_of(toposort(u), [](const Node* n) { return n->op == Op::Param && n->arg.int_at(0) < 0; });
  }

  // Where the element `flat` of the current row lies in a memory of `n_elems`.
  UOp place(const UOp& flat, int64_t n_elems) const {
    return rows_ == RowsLie::Inside ? flat * block_.n_rows + in_block_ : in_block_ * (n_elems / block_.n_rows) + flat;
  }

  static UOp store_first(const UOp& st, const UOp& r) {
    std::vector<UOp> gates = conjuncts(st.src(0).src(2));
    std::erase(gates, lt(r, 1));
    const UOp at = index(st.src(0).src(0), st.src(0).src(1), gates.empty() ? UOp() : all_of(gates));
    return substitute(store(at, st.src(1)), {{r.node(), idx(0)}});
  }

  // Schedules a part as a nest, and puts it together with those before. `memory`, a PARAM, stands for the scratch memory
  // that it fills; null: it is the nest's own stores.
  void add_part(const UOp& memory, const std::vector<UOp>& ends) {
    Nest part = std::move(nests_of(UOp::make(Op::Sink, DType::Void, ends))[0]);
    const auto is_outer = [&](const UOp& r) { return contains(outer_, r); };
    std::erase_if(part.order, is_outer);
    part = clone(part);
    merge_ranges(part);
    std::erase_if(part.order, is_outer);
    std::vector<Nest> done;
    if (!contract(part, target_, done)) done = vectorize(std::move(part), target_);
    std::vector<UOp> filled;
    RangeMap stands_for = memory_;
    if (memory) {
      const int64_t arg[] = {static_cast<int64_t>(memory_.size()), memory.shape()[0]};
      filled.push_back(UOp::make(Op::Scratch, memory.dtype(), {}, std::span<const int64_t>(arg)));
      stands_for.emplace(memory.node(), filled[0]);
    }
    const auto is_global = [](const UOp& r) { return axis_type(r.node()) == AxisType::Global; };
    for (Nest& n : done) {
      all_.opts += n.opts;
      for (const UOp& e : n.ends) {
        std::vector<UOp> ranges = closed_ranges(e.node());
        std::erase_if(ranges, is_global);
        if (!memory) ranges.insert(ranges.end(), outer_.begin(), outer_.end());
        (memory ? filled : all_.ends).push_back(remake_end(e, stands_for, ranges));
      }
      std::erase_if(n.order, is_global);
      all_.order.insert(all_.order.end(), n.order.begin(), n.order.end());
    }
    if (memory) memory_.emplace(memory.node(), UOp::make(Op::After, memory.dtype(), filled));
  }

  const Nest& nest_;
  std::vector<UOp> ends_;
  Target target_;
  RowsLie rows_;
  std::vector<UOp> common_, outer_;
  UOp row_, in_block_;
  RowBlock block_;
  std::vector<UOp> loops_;                   // of what is filled, beside the rows
  std::vector<std::pair<UOp, UOp>> filled_;  // what, and the PARAM that holds it
  RangeMap memory_;                          // PARAMs that stand for scratch memory
  Nest all_;
};

}  // namespace

bool block_rows(const Nest& nest, const Target& target, std::vector<Nest>& out, RowsLie rows) { return Blocks(nest, target, rows).run(out, target); }

}  // namespace whit::codegen
