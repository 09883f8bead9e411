// How it works. A comparison of a key with the row cuts the scores in two. Assuming that it has one value, what becomes
// a constant is followed through the nest, were all else finite: a score is then -inf, its exponential 0, a product 0.
// When all that sums and maxima along the keys find there is what they start from, the keys there need no loop.
//
// Requirements: each row has a score, so that every loop runs (a row without any is NaN, and that spreads in gradients).
#include <algorithm>
#include <cmath>
#include <optional>

#include "codegen/blocks.h"
#include "ir/eval.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;
constexpr int64_t kMostKeys = 64, kLeastKeys = 8;  // of a block

// A key counts for a row when it is more than row + beyond, and at most row + last.
struct Band {
  int64_t beyond = -kFar, last = kFar;
};

class Masks {
 public:
  Masks(const NodeList& order, const UOp& row, int64_t n_rows) : order_(order), row_(row), n_rows_(n_rows) {}

  std::vector<UOp> keys{};  // ranges, all of one size
  int64_t n_keys = 0;

  Band find() {
    Band band;
    if (!find_keys()) return band;
    for (const Node* n : order_)
      if (const auto line = line_of(n))
        for (const bool above : {true, false}) {
          Band next = band;
          (above ? next.last : next.beyond) = line->offset;
          if (has_scores(next) && is_neutral(line->offset, above)) band = next;
        }
    return band;
  }

  bool walks(const Node* n) const {  // does it close a range over keys?
    return std::ranges::any_of(closed_ranges(n), [&](const UOp& r) { return is_key(r); });
  }
  bool is_key(const UOp& r) const { return std::ranges::find(keys, r) != keys.end(); }

 private:
  // The innermost ranges of STAGEs, and those that read along them.
  bool find_keys() {
    for (const Node* n : order_) {
      UOp key;
      if (n->op == Op::Stage) {
        key = closed_ranges(n).back();
      } else if (n->op == Op::Index && n->src()[0]->op == Op::Stage) {
        const int64_t size = range_size(closed_ranges(n->src()[0]).back().node());
        for (const Affine::Term& t : affine_of(UOp(n->src()[1])).terms) {
          if (t.factor % size == 0) continue;
          if (key || t.factor != 1 || t.node.op() != Op::Range) return false;
          key = t.node;
        }
        if (!key) return false;
      }
      if (!key || is_key(key)) continue;
      keys.push_back(key);
      n_keys = range_size(keys[0].node());
      if (range_size(key.node()) != n_keys) return false;
    }
    return !keys.empty();
  }

  // A node that is true (or false) exactly where key <= row + offset.
  struct Line {
    bool true_below;
    int64_t offset;
  };
  std::optional<Line> line_of(const Node* n) const {
    if (n->op != Op::CmpLt || !is_int(n->src()[0]->dtype)) return {};
    Affine diff, casts = affine_of(UOp(n->src()[0]));
    casts.add(affine_of(UOp(n->src()[1])), -1);
    diff.add_constant(casts.constant);
    for (const Affine::Term& t : casts.terms) diff.add(affine_of(t.node.op() == Op::Cast ? t.node.src(0) : t.node), t.factor);
    const int64_t factor = -diff.factor_of(row_);
    if (std::abs(factor) != 1 || diff.terms.size() != 2) return {};
    for (const Affine::Term& t : diff.terms)
      if (t.node != row_ && (t.factor != factor || !is_key(t.node))) return {};
    return factor > 0 ? Line{true, -diff.constant - 1} : Line{false, diff.constant};
  }

  // Rows of a softmax are the block's where it has a maximum along the keys, else they may be either.
  bool has_scores(const Band& b) const {
    const int64_t more = n_keys - n_rows_;
    const bool rows = b.last >= 0 && b.beyond < more, columns = b.last >= more && b.beyond < 0;
    const auto is_maximum = [&](const Node* n) { return n->op == Op::Reduce && n->arg.at(0).as_str() == "max" && walks(n); };
    return b.beyond < b.last && rows && (columns || std::ranges::any_of(order_, is_maximum));
  }

  using Known = std::optional<Scalar>;
  using AllKnown = std::unordered_map<const Node*, Known>;

  // Is everything above (or not above) row + offset without effect?
  bool is_neutral(int64_t offset, bool above) const {
    AllKnown known;
    for (const Node* n : order_) {
      Known& k = known[n];
      if (const auto line = line_of(n); line && line->offset == offset) {
        k = Scalar::of(DType::Bool, int64_t{line->true_below != above});
      } else if (n->op == Op::Stage || n->op == Op::Index || n->op == Op::Load) {
        k = known.at(n->src()[0]);
      } else if (n->op == Op::Reduce && walks(n)) {
        const Known& body = known.at(n->src()[0]);
        if (!body || body->as_double() != monoid_identity(n->arg.at(0).as_str(), n->dtype).as_double()) return false;
      } else if (n->op == Op::End && walks(n)) {
        return false;
      } else {
        k = follow(n, known);
      }
    }
    return true;
  }

  static Known follow(const Node* n, const AllKnown& known) {
    if (n->op == Op::Const && !n->arg.is_invalid()) return scalar_of(UOp(n));
    if (!is_elementwise(n->op)) return {};
    const auto of = [&](size_t i) { return known.at(n->src()[i]); };
    std::vector<Scalar> all;
    for (size_t i = 0; i < n->n_src; ++i)
      if (const Known k = of(i)) all.push_back(*k);
    if (all.size() == n->n_src) return eval_scalar(n->op, n->dtype, all);
    if (n->op == Op::Where && of(0)) return of(of(0)->truthy() ? 1 : 2);
    if (n->op == Op::Where) return of(1) && of(2) && of(1)->as_double() == of(2)->as_double() ? of(1) : Known();
    for (const Scalar& k : all) {
      if ((n->op == Op::Mul || n->op == Op::And) && !k.truthy()) return k;
      if (n->op == Op::Or && k.truthy()) return k;
      if ((n->op == Op::Add || (n->op == Op::Sub && of(0))) && is_float(n->dtype) && k.as_double() == -INFINITY) return k;
    }
    return {};
  }

  const NodeList& order_;
  const UOp& row_;
  int64_t n_rows_;
};

}  // namespace

bool skip_masked(std::vector<UOp>& ends, const UOp& row, const RowBlock& block) {
  const NodeList order = toposort(ends);
  Masks masks(order, row, block.n_all);
  const Band band = masks.find();
  int64_t size = kMostKeys;
  while (masks.n_keys % size != 0) --size;
  const int64_t n = masks.n_keys / size;
  if ((band.last == kFar && band.beyond == -kFar) || size < kLeastKeys || n < 4) return false;
  UOp to = idx(n), from = idx(0);
  if (band.last != kFar) to = alu(Op::Min, {floor_div(block.first + (block.n_rows - 1 + band.last), size) + 1, to});
  if (band.beyond != -kFar) from = alu(Op::Max, {floor_div(block.first + (band.beyond + 1), size), from});
  Remade made;
  std::unordered_map<const Node*, std::pair<UOp, UOp>> cut;
  for (const UOp& key : masks.keys) {
    const UOp whole = fresh_range(n, axis_type(key.node()));
    const UOp outer = UOp::make(Op::Range, DType::WeakInt, {to, from}, whole.arg()), inner = fresh_range(size, axis_type(key.node()));
    cut.emplace(key.node(), std::pair(outer, inner));
    made.set(key.node(), outer * size + inner);
  }
  for (const Node* m : order) {
    if (cut.contains(m)) continue;
    std::vector<UOp> src = made.src(m);
    for (size_t i = closes(m->op) ? m->n_src : 0; i-- > 1;)
      if (const auto it = cut.find(m->src()[i]); it != cut.end()) {
        src[i] = it->second.first;
        src.insert(src.begin() + static_cast<ptrdiff_t>(i) + 1, it->second.second);
      }
    if (const UOp now = UOp(m).with_src(src); now.node() != m) made.set(m, now);
  }
  for (UOp& e : ends) e = made.of(e.node());
  return true;
}

}  // namespace whit::codegen
