// How it works. (1) A comparison of x with the row splits the scores of a block in two. Assuming that it has one value,
// it is followed through WHERE, products and exponentials what becomes 0 or -inf; on one side all sums and maxima must
// find what they start from. (2) In the scheduled nest every loop along x gets a bound. Readers first: what a reader
// reaches (its steps may be longer than one) is what the loops that fill its memory must reach at least, so nothing is
// read that was not written. What lies between the band and such a bound is computed, and is 0 by the mask itself.
//
// Requirements: a loop runs at least once, so that a row without any score gives what it gives elsewhere.
#include "codegen/skip.h"

#include <algorithm>
#include <cmath>

#include "ir/eval.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

const Node* memory_of(const Node* at) {
  const Node* m = at->src()[0];
  while (m->op == Op::After) m = m->src()[0];
  return m;
}

// Sized integers of a mask as index arithmetic; null when there is something else in it.
UOp as_index(const UOp& u) {
  Remade made;
  for (const Node* n : toposort(u)) {
    if (n->op == Op::Cast && n->dtype != DType::Bool)
      made.set(n, made.of(n->src()[0]));
    else if (n->op == Op::Const && is_int(n->dtype))
      made.set(n, idx(const_int(UOp(n))));
    else if (OpSet{Op::Add, Op::Sub, Op::Mul, Op::Neg, Op::Min}.has(n->op) && is_int(n->dtype))
      made.set(n, alu(n->op, made.src(n)));
    else if (n->op != Op::Range)
      return {};
  }
  return made.of(u.node());
}

// ---- (1)

enum class Known : uint8_t { Nothing, Zero, Positive, MinusInf, True, False };

class Masks {
 public:
  Masks(std::span<const MaskedPart> parts, const RowBlock& block) : parts_(parts), block_(block) {}

  std::optional<Band> find() {
    for (const MaskedPart& p : parts_) {
      const UOp x = along(p);
      for (const Node* n : toposort(p.ends)) {
        const auto line = x ? line_of(n, x) : std::nullopt;
        if (!line) continue;
        for (const bool upper : {true, false})
          if (has_scores({upper, line->offset}, range_size(x.node())) && holds({upper, line->offset}))
            return Band{upper, line->offset};
        return {};
      }
    }
    return {};
  }

 private:
  // Is n true (or false) exactly where x <= row + offset?
  struct Line {
    bool true_below;
    int64_t offset;
  };
  std::optional<Line> line_of(const Node* n, const UOp& x) const {
    if (n->op != Op::CmpLt || !is_int(n->src()[0]->dtype)) return {};
    const UOp a = as_index(UOp(n->src()[0])), b = as_index(UOp(n->src()[1]));
    if (!a || !b) return {};
    Affine diff = affine_of(a);
    diff.add(affine_of(b), -1);
    const int64_t factor = diff.factor_of(x);
    if (std::abs(factor) != 1) return {};
    diff.add(x, -factor);
    diff.add(block_.in_block, factor);
    diff.add(affine_of(block_.first), factor);
    if (!diff.terms.empty()) return {};
    return factor > 0 ? Line{true, -diff.constant - 1} : Line{false, diff.constant};
  }

  // A row of a softmax without any score is NaN, which spreads in gradients. Is there none? Rows of a softmax are those
  // of the block where it has a maximum over x, else it may be either.
  bool has_scores(const Band& band, int64_t n_x) const {
    const int64_t more = n_x - block_.n_all;
    const bool rows = band.upper ? band.offset >= 0 : band.offset < more;
    const bool columns = band.upper ? band.offset >= more : band.offset < 0;
    for (const MaskedPart& p : parts_)
      for (const Node* n : toposort(p.ends))
        if (n->op == Op::Reduce && n->arg.at(0).as_str() == "max") return rows;
    return rows && columns;
  }

  bool is_tile(const Node* memory) const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [&](const MaskedPart& p) { return p.is_tile && p.memory.node() == memory; });
  }

  // The range that walks through the tiles which a part reads or fills; null when it is not one.
  UOp along(const MaskedPart& p) const {
    UOp x;
    for (const Node* n : toposort(p.ends)) {
      if (n->op != Op::Index || !is_tile(memory_of(n))) continue;
      for (const Affine::Term& t : affine_of(UOp(n->src()[1])).terms)
        if (t.factor == block_.n_rows && t.node.op() == Op::Range) {
          if (x && x != t.node) return {};
          x = t.node;
        } else if (t.node != block_.in_block) {
          return {};
        }
    }
    return x;
  }

  // Is everything outside of the band without effect?
  bool holds(const Band& band) {
    std::unordered_map<const Node*, Known> of_memory;
    for (const MaskedPart& p : parts_) {
      const UOp x = along(p);
      std::unordered_map<const Node*, Known> known;
      for (const Node* n : toposort(p.ends)) {
        if (n->op == Op::Index && is_tile(memory_of(n)) && !x) return false;
        if (n->op == Op::End) {
          const auto closed = closed_ranges(n);
          if (x && !p.is_tile && std::find(closed.begin(), closed.end(), x) != closed.end()) return false;
          if (p.is_tile) of_memory[p.memory.node()] = known[n->src()[0]->src()[1]];
          continue;
        }
        Known k = Known::Nothing;
        if (const auto line = x ? line_of(n, x) : std::nullopt; line && line->offset == band.offset) {
          k = line->true_below != band.upper ? Known::True : Known::False;
        } else if (n->op == Op::Load && n->src()[0]->op == Op::Index) {
          const auto it = of_memory.find(memory_of(n->src()[0]));
          if (it != of_memory.end()) k = it->second;
        } else if (n->op == Op::Reduce) {
          const auto closed = closed_ranges(n);
          if (x && std::find(closed.begin(), closed.end(), x) != closed.end()) {
            const std::string_view monoid = n->arg.at(0).as_str();
            const Known body = known[n->src()[0]];
            if (!(monoid == "add" && body == Known::Zero) && !(monoid == "max" && body == Known::MinusInf))
              return false;
          }
        } else {
          k = follow(n, known);
        }
        known[n] = k;
      }
    }
    return true;
  }

  static Known follow(const Node* n, std::unordered_map<const Node*, Known>& known) {
    const auto of = [&](size_t i) { return known[n->src()[i]]; };
    const auto either = [&](Known k) { return of(0) == k || of(1) == k; };
    switch (n->op) {
      case Op::Const: {
        if (n->arg.is_invalid()) return Known::Nothing;
        if (n->dtype == DType::Bool) return const_int(UOp(n)) ? Known::True : Known::False;
        const double v = scalar_of(UOp(n)).as_double();
        return v == 0 ? Known::Zero : v > 0 ? Known::Positive : v == -INFINITY ? Known::MinusInf : Known::Nothing;
      }
      case Op::Xor:
        if (n->dtype != DType::Bool || of(1) != Known::True) return Known::Nothing;
        return of(0) == Known::True ? Known::False : of(0) == Known::False ? Known::True : Known::Nothing;
      case Op::And: return either(Known::False) ? Known::False : Known::Nothing;
      case Op::Or: return either(Known::True) ? Known::True : Known::Nothing;
      case Op::Where: return of(0) == Known::True ? of(1) : of(0) == Known::False ? of(2) : Known::Nothing;
      case Op::Cast: return is_float(n->dtype) && is_float(n->src()[0]->dtype) ? of(0) : Known::Nothing;
      case Op::Mul:
        if (either(Known::Zero)) return Known::Zero;
        return either(Known::MinusInf) && either(Known::Positive) ? Known::MinusInf : Known::Nothing;
      case Op::Add: return either(Known::MinusInf) ? Known::MinusInf : Known::Nothing;
      case Op::Sub: return of(0) == Known::MinusInf ? Known::MinusInf : Known::Nothing;
      case Op::Exp2: return of(0) == Known::MinusInf ? Known::Zero : Known::Nothing;
      default: return Known::Nothing;
    }
  }

  std::span<const MaskedPart> parts_;
  const RowBlock& block_;
};

// ---- (2)

class Skipper {
 public:
  Skipper(Nest& nest, const Band& band, const RowBlock& block) : nest_(nest), band_(band), block_(block) {}

  void run(std::span<const UOp> tiles) {
    for (const UOp& t : tiles) unit_[t.node()] = block_.n_rows;
    const NodeList order = toposort(nest_.ends);
    std::unordered_map<const Node*, bool> is_stored;
    for (const Node* n : order) {
      if (n->op == Op::Stage) find_unit(n);  // those inside of it came before
      if (n->op == Op::Store) is_stored[n->src()[0]] = true;
    }
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const Node* n = *it;
      if (n->op == Op::Index && !is_stored.contains(n)) reach(n);
      if (OpSet{Op::End, Op::Reduce, Op::Stage}.has(n->op)) bound_loops(n);
    }
    replace();
  }

 private:
  // x of an index, as ranges times steps.
  struct Along {
    std::vector<std::pair<const Node*, int64_t>> terms{};
    int64_t constant = 0;
    bool ok = false;
    int64_t most_without(const Node* r) const {
      int64_t most = constant;
      for (const auto& [q, step] : terms)
        if (q != r) most += step * (range_size(q) - 1);
      return most;
    }
    int64_t step_of(const Node* r) const {
      for (const auto& [q, step] : terms)
        if (q == r) return step;
      return 0;
    }
  };
  Along along(const Node* at) const {
    Along a;
    const auto unit = unit_.find(memory_of(at));
    if (unit == unit_.end()) return a;
    const Affine flat = affine_of(UOp(at->src()[1]));
    a.constant = floor_quotient(flat.constant, unit->second);
    a.ok = true;
    for (const Affine::Term& t : flat.terms) {
      const Node* r = t.node.node();
      int64_t step = t.factor;
      if (step < unit->second) continue;                       // within a row of the tile
      if (r->op == Op::Min && r->src()[1]->op == Op::Const) {  // the last block of rows begins early
        const Affine first = affine_of(UOp(r->src()[0]));
        if (first.terms.size() != 1 || first.constant != 0) return {};
        r = first.terms[0].node.node();
        step *= first.terms[0].factor;
      }
      if (r->op != Op::Range || step % unit->second != 0) return {};
      a.terms.emplace_back(r, step / unit->second);
    }
    return a;
  }

  // A STAGE that copies from tiles, x outermost: how far apart elements of one x and the next lie.
  void find_unit(const Node* stage) {
    int64_t unit = 0;
    for (const Node* n : toposort(UOp(stage->src()[0]))) {
      if (n->op != Op::Index) continue;
      const Along a = along(n);
      int64_t stride = 1;
      for (size_t i = stage->n_src; a.ok && i-- > 1; stride *= range_size(stage->src()[i])) {
        const int64_t step = a.step_of(stage->src()[i]);
        if (step == 0) {
          if (unit != 0 && range_size(stage->src()[i]) > 1) return;  // something lies outside of x
          continue;
        }
        if (unit == 0) unit = stride / step;
        if (unit == 0 || unit * step != stride) return;
      }
      if (unit != 0) break;
    }
    if (unit != 0) unit_[stage] = unit;
  }

  void reach(const Node* at) {
    const Along a = along(at);
    if (!unit_.contains(memory_of(at))) return;
    int64_t least = kAll;
    for (const auto& [r, step] : a.terms)
      if (const auto s = slack_.find(r); a.ok && s != slack_.end())
        least = std::min(least, band_.upper ? s->second + a.most_without(r) : s->second - a.constant);
    int64_t& need = need_[memory_of(at)];
    need = std::max(need, least);
  }

  void bound_loops(const Node* n) {
    const Node* memory = n->op == Op::End ? memory_of(n->src()[0]->src()[0]) : n;
    const int64_t beyond = n->op == Op::Reduce ? 0 : unit_.contains(memory) ? need_[memory] : kAll;
    if (beyond == kAll) return;
    const NodeList inside = toposort(UOp(n->src()[0]));
    for (size_t i = 1; i < n->n_src; ++i) {
      const Node* r = n->src()[i];
      if (r->n_src > 0 || slack_.contains(r)) continue;
      const AxisType type = axis_type(r);
      if (type != AxisType::Loop && type != AxisType::Reduce && type != AxisType::Weak) continue;
      int64_t step = 0, least = kAll, most = -kAll;
      for (const Node* at : inside) {
        if (at->op != Op::Index || !UOp(at).depends_on(UOp(r))) continue;
        const Along a = along(at);
        const int64_t s = a.ok ? a.step_of(r) : 0;
        if (s == 0) continue;
        if (step != 0 && s != step) step = -1;
        if (step == 0) step = s;
        least = std::min(least, a.constant);
        most = std::max(most, a.most_without(r));
      }
      if (step <= 0) continue;
      step_[r] = step;
      slack_[r] = band_.upper ? beyond - least : beyond + most;
    }
  }

  void replace() {
    Remade made;
    RangeMap loops, from_of;
    for (const auto& [r, slack] : slack_) {
      const int64_t size = range_size(r), step = step_[r];
      const auto clamp = [&](const UOp& u, int64_t lo, int64_t hi) {
        return alu(Op::Min, {alu(Op::Max, {u, idx(lo)}), idx(hi)});
      };
      const UOp bound = block_.first + (band_.offset + (band_.upper ? block_.n_rows - 1 + slack : step - slack));
      const UOp at = floor_div(bound, step);
      const UOp from = band_.upper ? idx(0) : clamp(at, 0, size - 1);
      const UOp to = band_.upper ? clamp(at + 1, 1, size) : idx(size) - from;
      const UOp loop = UOp::make(Op::Range, DType::WeakInt, {to}, with_type(UOp(r), axis_type(r)).arg());
      loops.emplace(r, loop);
      from_of.emplace(r, from);
      made.set(r, loop + from);
    }
    for (const Node* n : toposort(nest_.ends)) {
      if (loops.contains(n)) continue;
      std::vector<UOp>& src = made.src(n);
      if (OpSet{Op::End, Op::Reduce, Op::Stage}.has(n->op))
        for (size_t i = 1; i < n->n_src; ++i)
          if (const auto l = loops.find(n->src()[i]); l != loops.end()) src[i] = l->second;
      if (n->op == Op::Index && n->src()[0]->op == Op::Stage) {  // a STAGE begins where its loops begin
        const Node* stage = n->src()[0];
        int64_t stride = 1;
        for (size_t i = stage->n_src; i-- > 1; stride *= range_size(stage->src()[i]))
          if (const auto f = from_of.find(stage->src()[i]); f != from_of.end()) src[1] = src[1] - f->second * stride;
      }
      const UOp now = UOp(n).with_src(src);
      if (now.node() != n) made.set(n, now);
    }
    for (UOp& e : nest_.ends) e = made.of(e.node());
    for (UOp& r : nest_.order)
      if (const auto l = loops.find(r.node()); l != loops.end()) r = l->second;
    if (!loops.empty()) nest_.opts += "skip ";
  }

  static constexpr int64_t kAll = int64_t{1} << 40;

  Nest& nest_;
  const Band& band_;
  const RowBlock& block_;
  std::unordered_map<const Node*, int64_t> unit_;          // of memory: how far apart one x and the next lie
  std::unordered_map<const Node*, int64_t> need_;          // of memory: how far beyond the band it is read
  std::unordered_map<const Node*, int64_t> step_, slack_;  // of loops: x = step * r + .., and how far beyond they go
};

}  // namespace

std::optional<Band> find_band(std::span<const MaskedPart> parts, const RowBlock& block) {
  if (block.n_rows < 8) return {};
  return Masks(parts, block).find();
}

void skip_outside(Nest& nest, const Band& band, const RowBlock& block, std::span<const UOp> tiles) {
  Skipper(nest, band, block).run(tiles);
}

}  // namespace whit::codegen
