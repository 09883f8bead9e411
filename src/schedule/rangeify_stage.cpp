// Rangeify: values that stay within a nest.
//
// The scores of an attention (a contraction with few terms, a softmax of it, what a gradient multiplies to that) are too
// many to be stored: the square of the length for each head. Each nest that wants them computes them again, for the
// rows of its outer loops, and what is used more than once there is a STAGE over the others. The sums and maxima of the
// rows are computed beside them, and stored by the nest that has them first, where others want them too.
#include <algorithm>

#include "ir/build.h"
#include "schedule/rangeify_state.h"

namespace whit::sched {
namespace {

constexpr int64_t kMostTerms = 256;       // of a contraction that is worth computing again
constexpr int64_t kMostStaged = 1 << 18;  // elements of a STAGE

}  // namespace

// The scores around a softmax: what is connected to its exponential by elementwise ops. Empty when they do not come from
// contractions that are cheap to repeat.
std::vector<int32_t> Rangeify::scores_around(int32_t exponential, const std::vector<std::vector<int32_t>>& users) const {
  const int64_t n_elems = node(exponential)->shape.numel();
  std::vector<int32_t> found{exponential};
  bool contracts = false, has_max = false;
  const auto add = [&](int32_t i) {
    const bool joins = is_elementwise(node(i)->op) || node(i)->op == Op::Reshape || is_contraction(g_, i);
    if (joins && node(i)->shape.numel() == n_elems && std::find(found.begin(), found.end(), i) == found.end()) found.push_back(i);
  };
  for (size_t at = 0; at < found.size(); ++at) {
    const int32_t i = found[at];
    const Node* n = node(i);
    for (size_t a = 0; a < n->shape.size(); ++a)
      if (n->shape.symbol(a)) return {};
    for (const int32_t u : users[static_cast<size_t>(i)]) {
      add(u);
      has_max |= node(u)->op == Op::Reduce && node(u)->arg.at(0).as_str() == "max";
    }
    if (n->op == Op::Reduce) {
      if (n->src()[0]->shape.numel() > kMostTerms * n_elems) return {};
      contracts = true;
      continue;
    }
    for (const int32_t s : g_.src_of(static_cast<size_t>(i))) add(s);
  }
  return contracts && has_max ? found : std::vector<int32_t>{};
}

void Rangeify::find_scores() {
  keep_.assign(g_.size(), Keep::Any);
  std::vector<std::vector<int32_t>> users;
  for (size_t k = 0; k < g_.size(); ++k) {
    const Node* n = node(static_cast<int32_t>(k));
    if (n->op != Op::Exp2 || n->shape.numel() <= limits_.stored_scores || keep_[k] != Keep::Any) continue;
    if (users.empty()) {
      users.resize(g_.size());
      for (size_t u = 0; u < g_.size(); ++u)
        for (const int32_t s : g_.src_of(u)) users[static_cast<size_t>(s)].push_back(static_cast<int32_t>(u));
    }
    for (const int32_t i : scores_around(static_cast<int32_t>(k), users))
      keep_[i] = OpSet{Op::Exp2, Op::Reduce}.has(node(i)->op) ? Keep::Stage : Keep::Inline;
  }
  // Sums and maxima over scores, and what is computed from nothing else.
  for (size_t k = 0; k < g_.size() && !users.empty(); ++k) {
    const Node* n = node(static_cast<int32_t>(k));
    if (keep_[k] != Keep::Any) continue;
    bool of_rows = false, of_others = false;
    for (const int32_t s : g_.src_of(k)) {
      const Keep p = keep_[s];
      if (n->op == Op::Reduce && (p == Keep::Stage || p == Keep::Inline)) keep_[k] = Keep::Row;
      (p == Keep::Row || p == Keep::OfRow ? of_rows : of_others) |= !is_spread_constant(s);
    }
    if (of_rows && !of_others && (is_elementwise(n->op) || n->op == Op::Reshape)) keep_[k] = Keep::OfRow;
  }
}

bool Rangeify::is_spread_constant(int32_t i) const {
  while (is_view(node(i))) i = src(i, 0);
  return node(i)->op == Op::Const;
}

// Does every instance in the nest have the row that the nest's loops are at?
bool Rangeify::follows_loops(int32_t i, int32_t nest) const {
  for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next)
    for (const UOp& u : index_of(instances_[k]))
      if (instances_[k].nest == nest && !u.is_const() && (u.op() != Op::Range || axis_type(u.node()) != AxisType::Weak)) return false;
  return true;
}

// False: it is decided as for all other values.
bool Rangeify::keep_in_nest(int32_t i) {
  if (keep_[i] == Keep::Any || first_instance_[i] < 0) return false;
  if (keep_[i] == Keep::Stage) return stage(i);
  if (keep_[i] == Keep::Row) {
    int32_t first = -1;  // the nest that all others may depend on
    bool one_nest = true;
    for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next) {
      const int32_t nest = instances_[k].nest;
      one_nest &= first < 0 || nest == first;
      if (first < 0 || nests_[nest].node < nests_[first].node) first = nest;
    }
    if (!follows_loops(i, first)) return false;
    if (!one_nest) {
      materialise(i);
      count_loads(i);
      row_nest_[i] = first;
    }
  }
  for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next)
    if (computed_in(i, instances_[k].nest)) expand(k);
  return true;
}

bool Rangeify::stage(int32_t i) {
  const Shape& shape = node(i)->shape;
  struct Tile {
    int32_t nest;
    Index at;                     // by axis: the loop that it follows, or null
    SmallVec<int32_t, 4> from{};  // instances
  };
  std::vector<Tile> tiles;
  for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next) {
    const Instance& in = instances_[k];
    const auto at = index_of(in);
    auto t = std::find_if(tiles.begin(), tiles.end(), [&](const Tile& x) { return x.nest == in.nest; });
    if (t == tiles.end()) t = tiles.insert(t, {in.nest, Index(at.begin(), at.end())});
    t->from.push_back(k);
    for (size_t a = 0; a < shape.size(); ++a) {
      if (at[a].vmin() < 0 || at[a].vmax() >= shape[a]) return false;
      const bool follows = at[a].is_const() || (at[a].op() == Op::Range && axis_type(at[a].node()) == AxisType::Weak);
      if (!follows || t->at[a] != at[a]) t->at[a] = UOp();
    }
  }
  for (const Tile& t : tiles) {
    int64_t n_elems = 1, n_rows = 1;
    for (size_t a = 0; a < shape.size(); ++a) (t.at[a] ? n_rows : n_elems) *= shape[a];
    if (n_elems > kMostStaged || n_elems == 1 || n_rows == 1) return false;
  }
  for (Tile& t : tiles) {
    Index at = t.at;
    SmallVec<UOp, 4> ranges;
    int64_t innermost = -1;
    for (size_t a = 0; a < shape.size(); ++a)
      if (at[a]) {
        if (at[a].op() == Op::Range) innermost = std::max(innermost, range_id(at[a].node()));
      } else {
        at[a] = fresh_range(t.nest, shape[a]);
        ranges.push_back(at[a]);
      }
    const int32_t scope = add_scope(nests_[t.nest].scope, innermost, false, false);
    scopes_.back().ranges = ranges;
    // Not found by want(), as a materialised node's own: users read the STAGE.
    const int32_t own = add_instance(i, t.nest, scope, intern(at), {});
    nests_[t.nest].has_stages = true;
    for (const int32_t k : t.from) staged_[k] = own;
    expand(own);
  }
  return true;
}

// An element of the STAGE that `own` fills.
UOp Rangeify::read_stage(const Instance& in, const Instance& own) const {
  std::vector<UOp> src{own.value};
  Index at;
  Dims sizes;
  const auto here = index_of(in), there = index_of(own);
  for (size_t a = 0; a < there.size(); ++a)
    if (there[a].op() == Op::Range && axis_type(there[a].node()) == AxisType::Reduce) {
      src.push_back(there[a]);
      at.push_back(here[a]);
      sizes.push_back(node(in.node)->shape[a]);
    }
  return load(index(UOp::make(Op::Stage, own.value.dtype(), src), flatten(at, sizes)));
}

// The stores of what a nest computes for its rows beside its result.
void Rangeify::store_rows() {
  for (const auto& [i, nest] : row_nest_) {
    int32_t k = first_instance_[i];
    while (instances_[k].nest != nest) k = instances_[k].next;
    const auto at = index_of(instances_[k]);
    UOp gate;
    for (const UOp& r : nests_[nest].ranges)
      if (std::find(at.begin(), at.end(), r) == at.end()) gate = and_gate(gate, in_range(r, 0, 1));
    made_nest(nest).stores.push_back({out_.buffer_of[i], flatten(at, node(i)->shape), gate, instances_[k].value});
  }
}

}  // namespace whit::sched
