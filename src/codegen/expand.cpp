// Structural lowering: an optimised kernel graph becomes a loop tree and a graph of registers, vectors and copies.
//
// How it works. A nest (ENDs that share ranges) is expanded from its stores downwards. `expand` rewrites an expression
// under a Scope, which says what each range stands for: a loop, a number (a copy of an unrolled loop) or LANES. At a
// REDUCE or STAGE it opens the loops, expands the body once a copy in scopes of their own, and puts the register or
// scratch tile in place of the node. Nodes are not given a place here, but for those whose sources do not show it
// (pinned); linearize puts every other node into the loop of its deepest source, which is what hoisting is.
//
// Requirements.
//  1. A REDUCE that does not depend on a copied range is one register for all copies: results are remembered by what
//     the REDUCE's open ranges stand for.
//  2. Reduces that could share a loop do: same sizes, same enclosing loop, same height above other reduces (so that
//     neither can depend on the other), as many as have accumulators in registers.
//  3. The order of a fold is that of its ranges; unrolled copies extend the one chain.
//  4. Recursion follows the nesting of REDUCEs, never the depth of an expression.
#include <algorithm>
#include <bit>
#include <map>

#include "base/ptr_map.h"
#include "codegen/affine.h"
#include "codegen/loops.h"
#include "codegen/nest.h"
#include "ir/eval.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

template <class F> UOp vec_of(int64_t n_lanes, F&& lane) {
  std::vector<UOp> lanes;
  for (int64_t l = 0; l < n_lanes; ++l) lanes.push_back(lane(l));
  return UOp::make(Op::Vec, lanes[0].dtype(), lanes);
}

UOp spread(const UOp& scalar, int64_t n_lanes) {
  if (n_lanes == 1 || !scalar.shape().empty()) return scalar;
  return vec_of(n_lanes, [&](int64_t) { return scalar; });
}

// An INDEX may read its memory as another dtype.
UOp index_like(const UOp& at, const UOp& flat, const UOp& gate = {}) {
  const UOp to = index(at.src(0), flat, gate);
  return UOp::make(Op::Index, at.dtype(), to.srcs());
}

UOp lane_of(const UOp& vector, int64_t l) { return UOp::make(Op::Lane, vector.dtype(), {vector}, l); }

// A range that stays a loop: neither copies nor lanes.
bool is_loop(const Node* r) {
  const AxisType t = axis_type(r);
  return t != AxisType::Upcast && t != AxisType::Unroll && t != AxisType::Lane;
}

int64_t n_lanes(const UOp& u) { return u.shape().empty() ? 1 : u.shape()[0]; }

// What some ranges stand for; a handful, so a list.
class RangeValues {
 public:
  const UOp* find(const Node* range) const {
    for (const auto& [r, v] : list_)
      if (r == range) return &v;
    return nullptr;
  }
  UOp& operator[](const Node* range) {
    for (auto& [r, v] : list_)
      if (r == range) return v;
    return list_.emplace_back(range, UOp()).second;
  }

 private:
  std::vector<std::pair<const Node*, UOp>> list_;
};

struct Scope {
  RangeValues values;
  PtrMap<Node, UOp> done;
};

// What is stored: its place (null when nothing is), its value.
struct Element {
  UOp at{}, value{};
  int64_t lanes = 1;
};

// A REDUCE whose outer loops enclose output loops: its accumulator lives in the output between two of their iterations.
struct Placed {
  const Node* node = nullptr;
  std::vector<UOp> early{};  // the outer loops
  UOp is_first{}, is_last{};
  UOp place{};  // INDEX of the output, under the scope of the current copy
  UOp result{};
  Block* home = nullptr;
};

class Expander {
 public:
  Expander(const UOp& kernel, const Target& target, LoopTree& tree) : target_(target), tree_(tree) {
    for (const Node* n : toposort(kernel)) {
      int level = 0;
      for (const Node* s : n->src()) level = std::max(level, level_[s]);
      level_[n] = level + (n->op == Op::Reduce || n->op == Op::End);
      if (n->op == Op::Scratch) next_scratch_ = std::max(next_scratch_, n->arg.int_at(0) + 1);
      if (n->op == Op::Range) next_range_ = std::max(next_range_, range_id(n) + 1);
    }
  }

  void nest(std::span<const UOp> ends) {
    outer_ = Scope();
    folded_.clear();
    groups_.clear();
    floor_ = nullptr;
    UOp global;
    for (const UOp& e : ends)
      for (size_t i = 1; i < e.n_src(); ++i)
        if (axis_type(e.src(i).node()) == AxisType::Global) global = e.src(i);
    if (!global) global = range(1, next_range_++, AxisType::Global);
    Block* top = tree_.open(tree_.root(), global);
    floor_ = range_size(global.node()) == 1 ? top : tree_.root();
    for (const UOp& e : ends) end(e, global, top);
  }

 private:
  // ---- stores
  void end(const UOp& e, const UOp& global, Block* top) {
    std::vector<UOp> loops;
    std::vector<UOp> copied;
    UOp lane;
    for (size_t i = 1; i < e.n_src(); ++i) {
      const UOp r = e.src(i);
      if (r == global) continue;
      const bool is_lane = axis_type(r.node()) == AxisType::Lane;
      WHIT_CHECK(!is_lane || !lane, "[lower] two lane axes in a nest");
      if (is_lane) lane = r;
      else (is_loop(r.node()) ? loops : copied).push_back(r);
    }
    placed_ = find_placed(e);
    loops.insert(loops.end(), placed_.early.begin(), placed_.early.end());
    std::sort(loops.begin(), loops.end(), [](const UOp& a, const UOp& b) { return range_id(a.node()) < range_id(b.node()); });
    Block* block = top;
    Scope base;
    for (const UOp& r : loops) {
      if (range_size(r.node()) == 1) {
        base.values[r.node()] = idx(0);
        continue;
      }
      block = tree_.open(block, r);
    }
    if (lane) base.values[lane.node()] = UOp::make(Op::Lanes, DType::WeakInt, {}, range_size(lane.node()));
    placed_.home = block;
    const UOp st = e.src(0);
    const NodeList above = toposort(st.src(1), [](const Node* n) { return is_elementwise(n->op); });
    const bool has_folds = !lane && !placed_.node && std::ranges::any_of(above, [](const Node* n) {
      return n->op == Op::Reduce && std::ranges::any_of(closed_ranges(n), [](const UOp& r) { return axis_type(r.node()) == AxisType::Lane; });
    });
    std::vector<Element> elements;
    for_each_copy(copied, base, [&](Scope& scope) {
      const Element x = element(st, scope);
      if (x.at && has_folds) elements.push_back(x);
      else if (x.at) store(st, x, block);
    });
    fold_together(elements);
    for (const Element& x : elements) store(st, x, block);
  }

  // Calls f with the scope of each copy: the values of `outer`, and the copied ranges as numbers.
  template <class F> static void for_each_copy(std::span<const UOp> ranges, const Scope& outer, F&& f) {
    int64_t n = 1;
    for (const UOp& r : ranges) n *= range_size(r.node());
    for (int64_t i = 0; i < n; ++i) {
      Scope copy;
      copy.values = outer.values;
      int64_t stride = n;
      for (const UOp& r : ranges) {
        stride /= range_size(r.node());
        copy.values[r.node()] = idx(i / stride % range_size(r.node()));
      }
      f(copy);
    }
  }

  // Folds of several vectors take as long as a few: an instruction adds halves of two vectors, then quarters of four ..
  static void fold_together(std::vector<Element>& elements) {
    std::vector<UOp> folds;
    const auto is_alike = [&](const UOp& f) {
      return f.arg() == folds[0].arg() && f.dtype() == folds[0].dtype() && n_lanes(f.src(0)) == n_lanes(folds[0].src(0));
    };
    for (const Element& x : elements)
      for (const Node* n : toposort(x.value, [](const Node* m) { return is_elementwise(m->op); }))
        if (n->op == Op::Fold && !contains(folds, UOp(n)) && (folds.empty() || is_alike(UOp(n)))) folds.emplace_back(n);
    std::unordered_map<const Node*, UOp> together;
    for (size_t first = 0; first + 1 < folds.size();) {
      int64_t width = n_lanes(folds[first].src(0)), n_sums = 1;  // of a vector: lanes a sum, sums
      const size_t n = std::bit_floor(std::min(folds.size() - first, static_cast<size_t>(width)));
      std::vector<UOp> vectors;
      for (size_t i = first; i < first + n; ++i) vectors.push_back(folds[i].src(0));
      for (; width > 1; width /= 2) {
        const size_t step = std::min<size_t>(vectors.size(), 2);
        const auto half = [&](size_t at, int64_t begin) {
          return vec_of(static_cast<int64_t>(step) * n_sums * width / 2, [&](int64_t l) {
            const int64_t sum = l / (width / 2);
            return lane_of(vectors[at + static_cast<size_t>(sum / n_sums)], sum % n_sums * width + begin + l % (width / 2));
          });
        };
        std::vector<UOp> sums;
        for (size_t i = 0; i < vectors.size(); i += step)
          sums.push_back(alu(monoid_op(folds[first].arg().as_str()), {half(i, 0), half(i, width / 2)}));
        n_sums *= static_cast<int64_t>(step);
        vectors = std::move(sums);
      }
      for (size_t i = 0; i < n && n > 1; ++i) together.emplace(folds[first + i].node(), lane_of(vectors[0], static_cast<int64_t>(i)));
      first += n;
    }
    for (Element& x : elements) x.value = substitute(x.value, together, [](const Node* m) { return is_elementwise(m->op); });
  }

  Element element(const UOp& st, Scope& scope) {
    UOp at = expand(st.src(0), scope);
    if (at.n_src() == 3 && is_const_int(at.src(2), 0)) return {};
    placed_.place = at;
    placed_.result = UOp();
    UOp value = expand(st.src(1), scope);
    if (placed_.node) {
      WHIT_CHECK(placed_.result, "[lower] a placed accumulator was not reached");
      if (value != placed_.result) value = where(expand(placed_.is_last, scope), value, placed_.result);
    }
    int64_t lanes = 1;
    at = contiguous(at, lanes);
    lanes = std::max(lanes, at.src(1).shape().empty() ? lanes : n_lanes(at.src(1)));
    if (at.n_src() == 3) lanes = std::max(lanes, n_lanes(at.src(2)));
    return {at, spread(value, lanes), lanes};
  }

  void store(const UOp& st, const Element& x, Block* block) {
    const auto& [at, value, lanes] = x;
    // A sum in memory (SCATTER) reads in every iteration what the one before wrote, though its place may not change.
    const auto places = st.src(0).ranges();
    for (const Block* b = placed_.node ? nullptr : block; b && b->range; b = b->parent)
      if (axis_type(b->range.node()) == AxisType::Loop && std::find(places.begin(), places.end(), b->range.node()) == places.end()) {
        const bool is_vector = lanes > 1 && at.src(1).shape().empty();
        tree_.pin(UOp::make(Op::Load, value.dtype(), {at}, is_vector ? Arg(lanes) : Arg()), block);
        break;
      }
    if (store_lanes(at, value, block)) return;
    const UOp s = whit::store(at, value);
    tree_.pin(s, block);
    tree_.stores.push_back(s);
  }

  // Lanes that lie a constant stride apart are stored one by one: a scatter instruction takes several times as long.
  bool store_lanes(const UOp& at, const UOp& value, const Block* block) {
    const Places p = places(at.src(1));
    if (p.offset.empty()) return false;
    std::vector<UOp> stores;
    for (int64_t l = 0; l < p.n(); ++l) {
      UOp gate = at.n_src() == 3 ? at.src(2) : UOp();
      if (gate && !gate.shape().empty()) gate = lane_of(gate, l);
      stores.push_back(whit::store(p.from(at, p.offset[static_cast<size_t>(l)], gate), lane_of(value, l)));
    }
    for (const UOp& st : stores) {
      tree_.pin(st, block);
      tree_.stores.push_back(st);
    }
    return true;
  }

  // rest + offset[lane], of numbers; no offsets when a vector of indices is something else.
  struct Places {
    Affine rest{};
    std::vector<int64_t> offset{};

    int64_t n() const { return std::ssize(offset); }
    /// The distance of two neighbouring lanes, 0 when it is not always the same.
    int64_t stride() const {
      for (int64_t l = 1; l < n(); ++l)
        if (offset[static_cast<size_t>(l)] != offset[0] + l * (offset[1] - offset[0])) return 0;
      return n() < 2 ? n() : offset[1] - offset[0];
    }
    /// The place `first` after the rest, in the memory of `at`.
    UOp from(const UOp& at, int64_t first, const UOp& gate = {}) const {
      Affine flat = rest;
      flat.constant += first;
      return index_like(at, build_affine(flat, at.src(1).dtype()), gate);
    }
  };
  static Places places(const UOp& flat) {
    Places p;
    if (flat.shape().empty()) return p;
    const Affine all = affine_of(flat);
    const UOp lanes = UOp::make(Op::Lanes, DType::WeakInt, {}, flat.shape()[0]);
    std::vector<int64_t> offset(static_cast<size_t>(flat.shape()[0]));
    p.rest.constant = all.constant;
    for (const Affine::Term& t : all.terms) {
      if (t.node.shape().empty()) p.rest.add(t.node, t.factor);
      for (size_t l = 0; l < offset.size() && !t.node.shape().empty(); ++l) {
        const UOp lane = idx(static_cast<int64_t>(l)), place = t.node == lanes ? lane : substitute(t.node, {{lanes.node(), lane}});
        if (place.vmin() != place.vmax()) return {};
        offset[l] += t.factor * place.vmin();
      }
    }
    p.offset = std::move(offset);
    return p;
  }

  // ---- accumulators placed in the output
  Placed find_placed(const UOp& end) {
    Placed p;
    int64_t innermost = -1;
    for (const UOp& r : closed_ranges(end.node()))
      if (is_loop(r.node()) && axis_type(r.node()) != AxisType::Global) innermost = std::max(innermost, range_id(r.node()));
    for (const Node* n : toposort(end.src(0).src(1), [](const Node* m) { return m->op != Op::Reduce && m->op != Op::After; })) {
      if (n->op != Op::Reduce) continue;
      std::vector<UOp> early = closed_ranges(n);
      std::erase_if(early, [&](const UOp& r) { return !is_loop(r.node()) || range_id(r.node()) > innermost; });
      if (early.empty()) continue;
      WHIT_CHECK(!p.node, "[lower] two placed accumulators in a store");
      p.node = n;
      p.is_first = p.is_last = const_bool(true);
      for (const UOp& r : early) {
        p.is_first = p.is_first & alu(Op::CmpEq, {r, idx(0)});
        p.is_last = p.is_last & alu(Op::CmpEq, {r, idx(range_size(r.node()) - 1)});
      }
      p.early = std::move(early);
    }
    return p;
  }

  // ---- expressions
  static bool is_open(const Node* n, const Scope& scope) {
    if (!n->range_set) return false;
    for (const Node* r : n->range_set->nodes)
      if (scope.values.find(r)) return true;
    return false;
  }

  UOp expand(const UOp& root, Scope& scope) {
    if (&scope != &outer_ && !is_open(root.node(), scope)) return expand(root, outer_);
    if (const UOp* known = scope.done.find(root.node())) return *known;
    std::vector<std::pair<const Node*, uint32_t>> stack{{root.node(), 0}};
    std::vector<UOp> src;
    while (!stack.empty()) {
      const auto [n, next] = stack.back();
      if (next == 0 && scope.done.find(n)) {
        stack.pop_back();
        continue;
      }
      const bool closes = n->op == Op::Reduce || n->op == Op::After;
      if (!closes && next < n->n_src) {
        ++stack.back().second;
        const Node* s = n->src()[next];
        if (scope.done.find(s)) continue;
        if (&scope != &outer_ && !is_open(s, scope)) {
          UOp outside = expand(UOp(s), outer_);
          scope.done[s] = std::move(outside);
        } else stack.emplace_back(s, 0);
        continue;
      }
      UOp result;
      if (n->op == Op::Reduce) {
        result = fold(n, scope);
      } else if (n->op == Op::After) {
        result = filled(n, scope);
      } else {
        src.clear();
        for (const Node* s : n->src()) src.push_back(*scope.done.find(s));
        result = rebuild(n, src, scope);
      }
      scope.done[n] = std::move(result);
      stack.pop_back();
    }
    return *scope.done.find(root.node());
  }

  UOp rebuild(const Node* n, std::span<const UOp> src, const Scope& scope) {
    switch (n->op) {
      case Op::Range: {
        const UOp* v = scope.values.find(n);
        return v ? *v : UOp(n);
      }
      case Op::Index: {
        const UOp flat = build_affine(affine_of(src[1]), src[1].dtype());
        if (src.size() == 2 || is_const_int(src[2], 1)) return UOp::make(Op::Index, n->dtype, {src[0], flat});
        return UOp::make(Op::Index, n->dtype, {src[0], flat, src[2]});
      }
      case Op::Load: {
        UOp at = src[0];
        if (at.op() != Op::Index) break;
        if (at.n_src() == 3 && is_const_int(at.src(2), 0)) return constant(n->dtype, 0);
        if (const UOp transposed = load_transposed(n->src()[0], at, scope)) return transposed;
        if (const UOp shuffled = load_shuffled(at)) return shuffled;
        int64_t lanes = 1;
        at = contiguous(at, lanes);
        return UOp::make(Op::Load, n->dtype, {at}, lanes > 1 ? Arg(lanes) : Arg());
      }
      default: break;
    }
    return make_folded(n->op, n->dtype, src, n->arg);
  }

  // Lanes that lie in few vectors along memory (every second element, all backwards, each k times, or rows of a narrow matrix):
  // these and a shuffle instead of a gather.
  static UOp load_shuffled(const UOp& at) {
    constexpr int64_t kMostParts = 4;
    const Places p = places(at.src(1));
    const int64_t n = p.n(), stride = p.stride();
    if (n < 2 || stride == 1) return {};
    const auto [lo, hi] = std::ranges::minmax(p.offset);
    if (hi - lo >= kMostParts * n) return {};
    const UOp gate = at.n_src() == 3 ? at.src(2) : UOp(), lanes = UOp::make(Op::Lanes, DType::WeakInt, {}, n);
    const bool by_lane = gate && !gate.shape().empty();
    if (by_lane && stride == 0) return {};
    if (by_lane)
      for (const Node* u : toposort(gate))
        if (u->op == Op::Load || (u->op == Op::Lanes && u != lanes.node())) return {};
    std::vector<UOp> parts;
    std::vector<int64_t> first;
    for (int64_t begin = lo; begin <= hi; begin += n) {
      // The last part ends at the last element, or is masked where there is no other.
      first.push_back(hi - lo < n ? lo : std::min(begin, hi - n + 1));
      const auto is_read = [&](int64_t l) { return by_lane ? (first.back() + l - lo) % std::abs(stride) == 0 : first.back() + l <= hi; };
      UOp mask = by_lane || hi - lo + 1 < n ? vec_of(n, [&](int64_t l) { return const_bool(is_read(l)); }) : UOp();
      if (by_lane) {  // that of the lane which each element is for
        const UOp place = lanes + (first.back() - p.offset[0]);
        mask = substitute(gate, {{lanes.node(), stride < 0 ? floor_div(place * -1, -stride) : floor_div(place, stride)}}) & mask;
      } else if (gate) {
        mask = mask ? mask & spread(gate, n) : gate;
      }
      parts.push_back(UOp::make(Op::Load, at.dtype(), {p.from(at, first.back(), mask)}, n));
    }
    return vec_of(n, [&](int64_t l) {
      const int64_t place = p.offset[static_cast<size_t>(l)];
      size_t i = parts.size() - 1;
      while (i > 0 && place < first[i]) --i;
      return lane_of(parts[i], place - first[i]);
    });
  }

  // Where copies lie side by side in memory and lanes far apart, squares of both are read along memory, as many as a vector
  // holds side by side, and transposed in registers: rows are interleaved in parts of 16 bytes, as machines do it, then the
  // parts put together. A last group of copies that is not whole begins early.
  UOp load_transposed(const Node* index_, const UOp& at, const Scope& scope) {
    const Places p = places(at.src(1));
    const int64_t n = p.n(), wide = target_.vector_bytes / n_bytes(at.dtype());
    if (std::abs(p.stride()) < 2 || (n & (n - 1)) != 0) return {};
    for (const Node* r : index_->range_set->nodes) {
      const int64_t n_copies = range_size(r), width = n_copies < wide ? n : std::max(n, wide);
      const UOp* value = axis_type(r) == AxisType::Upcast && n_copies >= n ? scope.values.find(r) : nullptr;
      if (!value || stride_of(affine_of(UOp(index_->src()[1])), UOp(r)).value != 1) continue;
      if (at.n_src() == 3 && UOp(index_->src()[2]).depends_on(UOp(r))) continue;
      const int64_t group = const_int(*value) / width * width, copy = const_int(*value) - std::min(group, n_copies - width);
      const DType dt = at.dtype() == DType::Bool ? DType::UInt8 : at.dtype();  // bits are not shuffled
      std::vector<UOp> rows;
      for (int64_t l = 0; l < n; ++l) {
        const UOp gate = at.n_src() < 3 ? UOp() : at.src(2).shape().empty() ? at.src(2) : lane_of(at.src(2), l);
        rows.push_back(cast(UOp::make(Op::Load, at.dtype(), {p.from(at, p.offset[static_cast<size_t>(l)] - copy, gate)}, width), dt));
      }
      const int64_t part = std::min<int64_t>(width, 16 / n_bytes(dt)), n_mixed = std::min(n, part);
      // Of `some` rows, which follow each other in lanes, and their part / some columns from `first` on.
      const auto place = [&](int64_t some, int64_t row, int64_t column, const std::vector<UOp>& from) {
        const int64_t c = column % part, n_columns = part / some;
        return lane_of(from[static_cast<size_t>(row / some * some + c / n_columns)], column - c + c % n_columns * some + row % some);
      };
      std::vector<UOp>& mixed = turned_[{rows[0].node(), rows[1].node()}];
      if (mixed.empty()) {
        mixed = rows;
        for (int64_t some = 2; some <= n_mixed; some *= 2) {
          std::vector<UOp> next;
          for (int64_t i = 0; i < n; ++i)
            next.push_back(vec_of(width, [&](int64_t l) {
              const int64_t w = l % part;
              return place(some / 2, i / some * some + w % some, l - w + i % some * (part / some) + w / some, mixed);
            }));
          mixed = std::move(next);
        }
      }
      return cast(vec_of(n, [&](int64_t l) { return place(n_mixed, l, copy, mixed); }), at.dtype());
    }
    return {};
  }

  // Consecutive lanes are addressed by their first; `lanes` is then their number. Other vectors of addresses stay.
  static UOp contiguous(const UOp& at, int64_t& lanes) {
    const UOp flat = at.src(1);
    if (flat.shape().empty()) {
      if (at.n_src() == 2 || at.src(2).shape().empty()) return at;
      return UOp::make(Op::Index, at.dtype(), {at.src(0), spread(flat, n_lanes(at.src(2))), at.src(2)});
    }
    const Places p = places(flat);
    if (p.stride() != 1) return at;
    lanes = p.n();
    return p.from(at, p.offset[0], at.n_src() == 3 ? at.src(2) : UOp());
  }

  // ---- what closes loops
  // The loop that holds the node: the deepest one of what its open ranges stand for.
  Block* home(const Node* n, const Scope& scope) {
    Block* block = floor_;
    if (!n->range_set) return block;
    auto visit = [&](const Node* r) {
      const auto it = tree_.block_of_range.find(r);
      if (it != tree_.block_of_range.end()) block = tree_.deeper(block, tree_.blocks[it->second].get());
    };
    for (const Node* r : n->range_set->nodes) {
      if (const UOp* v = scope.values.find(r)) {
        for (const Node* q : v->ranges()) visit(q);
      } else {
        visit(r);
      }
    }
    return block;
  }

  std::vector<const Node*> key_of(const Node* n, const Scope& scope) {
    std::vector<const Node*> key{n};
    if (n->range_set)
      for (const Node* r : n->range_set->nodes) {
        const UOp* v = scope.values.find(r);
        if (v) tree_.alive.push_back(*v);
        key.push_back(v ? v->node() : r);
      }
    return key;
  }

  // Splits the ranges that a node closes by what becomes of them, and opens the loops.
  struct Closed {
    std::vector<UOp> loops, copied;
    UOp lane;
    Scope scope;
    Block *home, *inner;
  };
  Closed close(const Node* n, const Scope& scope, bool may_share) {
    Closed c;
    c.home = c.inner = placed_.node == n ? placed_.home : home(n, scope);
    c.scope.values = scope.values;
    std::vector<const Node*> loops;
    std::vector<UOp> all = closed_ranges(n);
    if (n->op == Op::End) all.insert(all.end(), placed_.early.begin(), placed_.early.end());
    for (const UOp& range : all) {
      const Node* r = range.node();
      if (placed_.node == n && std::ranges::find(placed_.early, range) != placed_.early.end()) continue;  // a loop of the nest
      if (axis_type(r) == AxisType::Lane) {
        WHIT_CHECK(!c.lane, "[lower] two lane axes in a {}", n->op);
        c.lane = range;
        c.scope.values[r] = UOp::make(Op::Lanes, DType::WeakInt, {}, range_size(r));
      } else if (!is_loop(r)) {
        c.copied.push_back(range);
      } else if (range_size(r) == 1) {
        c.scope.values[r] = idx(0);
      } else {
        loops.push_back(r);
      }
    }
    std::sort(loops.begin(), loops.end(), [](const Node* a, const Node* b) { return range_id(a) < range_id(b); });
    std::vector<int64_t> key{c.home->id, level_.at(n), may_share ? 0 : next_range_};
    for (const Node* r : loops) key.push_back(r->n_src ? reinterpret_cast<intptr_t>(r) : range_size(r));
    std::vector<UOp>& shared = (may_share ? group_with_room(key, n) : groups_[key].emplace_back()).loops;
    for (size_t i = 0; i < loops.size(); ++i) {
      if (i == shared.size()) shared.push_back(open_range(loops[i], c.scope));
      c.inner = tree_.open(c.inner, shared[i]);
      c.scope.values[loops[i]] = shared[i];
    }
    c.loops = shared;
    return c;
  }

  // Loops that some REDUCEs share.
  struct Group {
    std::vector<UOp> loops{};
    std::vector<const Node*> members{};
    int64_t n_accumulators = 0;
  };
  // The group of a REDUCE among those with the same key: what does not fit into the registers together with the others,
  // as a second register tile, gets a loop of its own.
  Group& group_with_room(const std::vector<int64_t>& key, const Node* n) {
    std::vector<Group>& groups = groups_[key];
    for (Group& g : groups)
      if (std::find(g.members.begin(), g.members.end(), n) != g.members.end()) return g;
    int64_t n_accumulators = 1;
    if (n->range_set)
      for (const Node* r : n->range_set->nodes)
        if (axis_type(r) == AxisType::Upcast) n_accumulators *= range_size(r);
    if (groups.empty() || groups.back().n_accumulators + n_accumulators > target_.n_vector_registers) groups.emplace_back();
    groups.back().members.push_back(n);
    groups.back().n_accumulators += n_accumulators;
    return groups.back();
  }

  // A loop of its own for a range; a source says how far it really runs.
  UOp open_range(const Node* r, Scope& scope) {
    const int64_t arg[] = {next_range_++, r->arg.int_at(1), range_size(r)};
    std::vector<UOp> src;
    for (const Node* n : r->src()) src.push_back(expand(UOp(n), scope));
    return UOp::make(Op::Range, r->dtype, src, std::span<const int64_t>(arg));
  }

  UOp fold(const Node* n, Scope& scope) {
    auto key = key_of(n, scope);
    if (const auto it = folded_.find(key); it != folded_.end()) {
      if (placed_.node == n) placed_.result = it->second;
      return it->second;
    }
    const std::string_view monoid = n->arg.at(0).as_str();
    Closed c = close(n, scope, true);
    std::vector<UOp> bodies;
    int64_t lanes = c.lane ? range_size(c.lane.node()) : 1;
    for_each_copy(c.copied, c.scope, [&](Scope& copy) {
      bodies.push_back(expand(UOp(n->src()[0]), copy));
      lanes = std::max(lanes, n_lanes(bodies.back()));
    });
    UOp start = spread(constant_of(monoid_identity(monoid, n->dtype)), lanes);
    if (placed_.node == n) {
      // Between two iterations of the outer loops the sum so far is at its place. A false gate reads 0, which is where a
      // sum starts; other monoids choose.
      const UOp at = placed_.place;
      const UOp first = expand(placed_.is_first, scope);
      UOp gate = monoid == "add" ? make_folded(Op::Xor, DType::Bool, std::vector<UOp>{first, const_bool(true)}, {}) : UOp();
      if (at.n_src() == 3) gate = gate ? gate & at.src(2) : at.src(2);
      int64_t n_contiguous = 1;
      const UOp from = contiguous(index_like(at, at.src(1), gate), n_contiguous);
      const UOp so_far = UOp::make(Op::Load, n->dtype, {from}, n_contiguous > 1 ? Arg(n_contiguous) : Arg());
      start = monoid == "add" ? so_far : where(first, start, so_far);
    }
    UOp result;
    if (c.loops.empty()) {
      result = start;
      for (const UOp& x : bodies) result = combine(monoid, result, x);
      result = spread(result, lanes);
    } else {
      const int64_t arg[] = {next_reg_++, lanes};
      const UOp reg = UOp::make(Op::Reg, n->dtype, {}, std::span<const int64_t>(arg));
      const UOp init = whit::store(reg, start);
      tree_.pin(init, c.home);
      UOp acc = UOp::make(Op::Load, n->dtype, {UOp::make(Op::After, n->dtype, {reg, init})});
      tree_.pin(acc, c.inner);
      for (size_t i = 0; i < bodies.size(); ++i) {
        acc = combine(monoid, acc, bodies[i]);
        tree_.step[acc.node()] = static_cast<int>(i);
      }
      const UOp update = whit::store(reg, acc);
      tree_.pin(update, c.inner);
      const UOp done = whit::end(update, c.loops);
      tree_.pin(done, c.home);
      result = UOp::make(Op::Load, n->dtype, {UOp::make(Op::After, n->dtype, {reg, done})});
    }
    if (c.lane) result = UOp::make(Op::Fold, n->dtype, {result}, Arg(monoid));
    if (placed_.node == n) placed_.result = result;
    folded_.emplace(std::move(key), result);
    return result;
  }

  UOp combine(std::string_view monoid, const UOp& acc, const UOp& x) const {
    const bool wide = x.dtype() == DType::Float32 || x.dtype() == DType::Float64;
    const bool is_packed = x.op() == Op::MulAcc && x.src(0).dtype() != x.dtype();  // it adds to 0
    if (monoid == "add" && is_packed) return UOp::make(Op::MulAcc, x.dtype(), {x.src(0), x.src(1), acc});
    if (monoid == "add" && wide && target_.has_fma && x.op() == Op::Mul) return UOp::make(Op::MulAcc, x.dtype(), {x.src(0), x.src(1), acc});
    return UOp::make(monoid_op(monoid), x.dtype(), {acc, x});
  }

  // AFTER(SCRATCH, END...): each END fills a part of the memory. An AFTER of something else stays.
  UOp filled(const Node* n, Scope& scope) {
    if (n->src()[0]->op != Op::Scratch) return UOp(n);
    auto key = key_of(n, scope);
    if (const auto it = folded_.find(key); it != folded_.end()) return it->second;
    const Placed outer_placed = placed_;
    const int64_t n_elems = n->shape.numel(), arg[] = {next_scratch_++, n_elems};
    std::vector<UOp> deps{UOp::make(Op::Scratch, n->dtype, {}, std::span<const int64_t>(arg))};
    tree_.scratch_bytes += (n_elems * n_bytes(n->dtype) + 63) / 64 * 64;
    for (size_t i = 1; i < n->n_src; ++i) {
      const UOp e(n->src()[i]);
      placed_ = find_placed(e);
      Closed c = close(e.node(), scope, false);
      placed_.home = c.inner;
      for_each_copy(c.copied, c.scope, [&](Scope& copy) {
        copy.done[n->src()[0]] = deps[0];
        int64_t lanes = 1;
        placed_.place = expand(e.src(0).src(0), copy);
        const UOp to = contiguous(placed_.place, lanes);
        lanes = std::max(lanes, n_lanes(to.src(1)));
        const UOp x = spread(expand(e.src(0).src(1), copy), lanes);
        WHIT_CHECK(n_lanes(x) == lanes, "[lower] scratch memory depends on lanes of its nest");
        const UOp s = whit::store(to, x);
        tree_.pin(s, c.inner);
        deps.push_back(whit::end(s, c.loops));
        tree_.pin(deps.back(), c.home);
      });
    }
    placed_ = outer_placed;
    const UOp result = UOp::make(Op::After, n->dtype, deps);
    folded_.emplace(std::move(key), result);
    return result;
  }

  const Target& target_;
  LoopTree& tree_;
  std::unordered_map<const Node*, int> level_;
  Scope outer_;  // no range stands for anything else
  std::map<std::vector<const Node*>, UOp> folded_;
  std::map<std::pair<const Node*, const Node*>, std::vector<UOp>> turned_;  // by the first two rows of what is transposed
  std::map<std::vector<int64_t>, std::vector<Group>> groups_;
  Block* floor_ = nullptr;  // holds what depends on no range
  Placed placed_;
  int64_t next_range_ = 0, next_reg_ = 0, next_scratch_ = 0;
};

}  // namespace

Block* LoopTree::open(Block* parent, const UOp& range) {
  const auto it = block_of_range.find(range.node());
  if (it != block_of_range.end()) {
    Block* known = blocks[it->second].get();
    WHIT_CHECK(known->parent == parent, "[lower] range {} is opened in two loops", range_id(range.node()));
    return known;
  }
  auto block = std::make_unique<Block>();
  block->range = range;
  block->parent = parent;
  block->depth = parent ? parent->depth + 1 : 0;
  block->id = static_cast<int>(blocks.size());
  if (range) block_of_range[range.node()] = block->id;
  blocks.push_back(std::move(block));
  return blocks.back().get();
}

LoopTree expand(const UOp& optimised, const Target& target) {
  LoopTree tree;
  const UOp kernel = stages_in_scratch(optimised);
  tree.blocks.push_back(std::make_unique<Block>());
  Expander expander(kernel, target, tree);
  for (const Nest& nest : nests_of(kernel)) expander.nest(nest.ends);
  return tree;
}

}  // namespace whit::codegen
