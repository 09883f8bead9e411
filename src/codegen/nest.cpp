#include "codegen/nest.h"

#include <atomic>
#include <unordered_set>

#include "base/lists.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

bool is_linear_op(const Node* n) {
  if (!is_index_type(n->dtype)) return false;
  if (n->op == Op::Add || n->op == Op::Sub || n->op == Op::Neg) return true;
  return n->op == Op::Mul && (n->src()[0]->op == Op::Const || n->src()[1]->op == Op::Const);
}

// Every integer expression that something else than a sum uses.
std::vector<Affine> index_roots(const Nest& nest) {
  std::vector<Affine> roots;
  std::unordered_set<const Node*> seen;
  for (const Node* n : toposort(nest.ends)) {
    if (is_linear_op(n)) continue;
    const size_t n_values = closes(n->op) ? 1 : n->n_src;
    for (size_t i = 0; i < n_values; ++i) {
      const Node* s = n->src()[i];
      if (s->range_set && is_index_type(s->dtype) && seen.insert(s).second) roots.push_back(affine_of(UOp(s)));
    }
  }
  return roots;
}

// The closers of each range, as lists of (closer, position).
struct Closers {
  std::unordered_map<const Node*, std::vector<std::pair<const Node*, size_t>>> of;
  explicit Closers(const Nest& nest) {
    for (const Node* n : toposort(nest.ends))
      if (closes(n->op))
        for (size_t i = 1; i < n->n_src; ++i) of[n->src()[i]].emplace_back(n, i);
  }
  // Closed by the same nodes, and by a REDUCE one right after the other.
  bool together(const UOp& a, const UOp& b) const {
    const auto x = of.find(a.node()), y = of.find(b.node());
    if (x == of.end() || y == of.end() || x->second.size() != y->second.size()) return false;
    for (size_t i = 0; i < x->second.size(); ++i) {
      const auto [n, at] = x->second[i];
      const auto [m, bt] = y->second[i];
      if (n != m || (n->op == Op::Reduce && at + 1 != bt) || n->op == Op::Stage) return false;
    }
    return true;
  }
};

void replace(Nest& nest, const RangeMap& map, const Node* dropped) {
  // A merged or constant range leaves the lists of its closers.
  Remade made;
  for (const auto& [from, to] : map) made.set(from, to);
  for (const Node* n : toposort(nest.ends)) {
    if (made.has(n)) continue;
    std::vector<UOp>& src = made.src(n);
    if (closes(n->op))
      for (size_t i = n->n_src; i-- > 1;)
        if (n->src()[i] == dropped) src.erase(src.begin() + static_cast<ptrdiff_t>(i));
    const auto is_source = [](const UOp& u, const Node* s) { return u.node() == s; };
    if (std::equal(src.begin(), src.end(), n->src().begin(), n->src().end(), is_source)) continue;
    made.set(n, n->op == Op::Reduce && src.size() == 1 ? src[0] : make_folded(n->op, n->dtype, src, n->arg));
  }
  for (UOp& e : nest.ends) e = made.of(e.node());
}

void collect_order(Nest& nest) {
  std::vector<UOp> outputs, others;
  std::unordered_set<const Node*> seen;
  auto by_id = [](const UOp& a, const UOp& b) { return range_id(a.node()) < range_id(b.node()); };
  for (const UOp& e : nest.ends)
    for (const UOp& r : closed_ranges(e.node()))
      if (seen.insert(r.node()).second) outputs.push_back(r);
  for (const Node* n : toposort(nest.ends))
    if (n->op == Op::Range && seen.insert(n).second) others.emplace_back(n);
  std::sort(outputs.begin(), outputs.end(), by_id);
  std::sort(others.begin(), others.end(), by_id);
  nest.order = outputs;
  nest.order.insert(nest.order.end(), others.begin(), others.end());
}

// Joins the first two ranges that can be; false when there are none.
bool merge_two(Nest& nest) {
  const std::vector<Affine> roots = index_roots(nest);
  const Closers closers(nest);
  for (const UOp& a : nest.order)
    for (const UOp& b : nest.order) {
      if (a == b || axis_type(a.node()) != axis_type(b.node()) || axis_type(a.node()) == AxisType::Loop || a.n_src() + b.n_src() > 0) continue;
      const int64_t size = range_size(b.node());
      const auto is_joined = [&](const Affine& x) { return x.factor_of(a) == x.factor_of(b) * size; };
      if (!closers.together(a, b) || !std::ranges::all_of(roots, is_joined)) continue;
      const UOp m = fresh_range(range_size(a.node()) * size, axis_type(a.node()));
      // a*size + b is m wherever they occur, so a may be 0 and b be m.
      std::vector<UOp> order = nest.order;
      std::ranges::replace(order, a, m);
      std::erase(order, b);
      replace(nest, {{a.node(), idx(0)}, {b.node(), m}}, a.node());
      nest.order = std::move(order);
      return true;
    }
  return false;
}

}  // namespace

bool closes(Op op) { return op == Op::End || op == Op::Reduce || op == Op::Stage; }

std::vector<UOp> closed_ranges(const Node* n) {
  std::vector<UOp> out;
  for (size_t i = 1; i < n->n_src; ++i) out.emplace_back(n->src()[i]);
  return out;
}

std::vector<Nest> nests_of(const UOp& kernel) {
  std::vector<Nest> nests;
  std::unordered_map<const Node*, size_t> nest_of;
  size_t scalar_nest = SIZE_MAX;
  for (const UOp& e : kernel.srcs()) {
    WHIT_CHECK(e.op() == Op::End && e.src(0).op() == Op::Store, "[codegen] a kernel of {}", e.op());
    size_t at = e.n_src() == 1 ? scalar_nest : SIZE_MAX;
    for (size_t i = 1; i < e.n_src(); ++i)
      if (const auto it = nest_of.find(e.src(i).node()); it != nest_of.end()) at = it->second;
    if (at == SIZE_MAX) {
      at = nests.size();
      nests.emplace_back();
    }
    if (e.n_src() == 1) scalar_nest = at;
    for (size_t i = 1; i < e.n_src(); ++i) nest_of.emplace(e.src(i).node(), at);
    nests[at].ends.push_back(e);
  }
  for (Nest& n : nests) collect_order(n);
  return nests;
}

UOp fresh_range(int64_t size, AxisType type) {
  static std::atomic<int64_t> next{int64_t{1} << 32};
  return range(size, next.fetch_add(1, std::memory_order_relaxed), type);
}
UOp with_type(const UOp& r, AxisType type) { return fresh_range(range_size(r.node()), type).with_src(r.srcs()); }

void replace_ranges(Nest& nest, const RangeMap& map) {
  if (map.empty()) return;
  for (UOp& e : nest.ends) e = substitute(e, map);
  for (UOp& r : nest.order)
    if (const auto it = map.find(r.node()); it != map.end()) r = it->second;
}

// A range of which quotients or remainders are taken by a divisor of its size is two ranges: then what they index is linear.
// Small divisors stay: a vector along the range then reads neighbours several times.
static void split_ranges(Nest& nest) {
  constexpr int64_t kLeast = 16;
  for (bool again = true; again;) {
    again = false;
    for (const Node* u : toposort(nest.ends)) {
      if ((u->op != Op::FloorDiv && u->op != Op::FloorMod) || u->src()[1]->op != Op::Const || u->src()[0]->op != Op::Range) continue;
      const UOp r(u->src()[0]), by(u->src()[1]);
      const int64_t c = by.arg().as_int();
      const AxisType type = axis_type(r.node());
      if (c < kLeast || range_size(r.node()) % c != 0 || r.n_src() > 0 || (type != AxisType::Weak && type != AxisType::Reduce)) continue;
      const UOp parts[] = {fresh_range(range_size(r.node()) / c, type), fresh_range(c, type)};
      Remade made;
      made.set(r.node(), parts[0] * c + parts[1]);
      made.set(floor_div(r, c).node(), parts[0]);
      made.set(floor_mod(r, c).node(), parts[1]);
      for (const Node* n : toposort(nest.ends)) {
        if (made.has(n)) continue;
        std::vector<UOp>& src = made.src(n);
        if (closes(n->op))
          if (const auto at = std::find(src.begin() + 1, src.end(), made.of(r.node())); at != src.end()) src.insert(src.erase(at), parts, parts + 2);
        if (!std::ranges::equal(src, n->src(), [](const UOp& a, const Node* b) { return a.node() == b; }))
          made.set(n, make_folded(n->op, n->dtype, src, n->arg));
      }
      for (UOp& e : nest.ends) e = made.of(e.node());
      const auto at = std::ranges::find(nest.order, r);
      nest.order.insert(nest.order.erase(at), parts, parts + 2);
      again = true;
      break;
    }
  }
}

void merge_ranges(Nest& nest) {
  for (const UOp& r : std::vector<UOp>(nest.order))
    if (range_size(r.node()) == 1) {
      replace(nest, {{r.node(), idx(0)}}, r.node());
      collect_order(nest);
    }
  while (merge_two(nest)) {
  }
  split_ranges(nest);
}

UOp to_sink(const std::vector<Nest>& nests, const UOp& original) {
  RangeMap renumbered;
  std::vector<UOp> ends;
  std::vector<Arg> arg{original.arg().kind() == Arg::Kind::List ? original.arg().at(0) : Arg("kernel")};
  int64_t id = 0;
  for (const Nest& nest : nests) {
    for (const UOp& r : nest.order) {
      const int64_t a[] = {id++, static_cast<int64_t>(axis_type(r.node())), range_size(r.node())};
      const auto runs_to = mapped(r.srcs(), [&](const UOp& n) { return substitute(n, renumbered); });
      renumbered.emplace(r.node(), UOp::make(Op::Range, DType::WeakInt, runs_to, std::span<const int64_t>(a)));
    }
    ends.insert(ends.end(), nest.ends.begin(), nest.ends.end());
    if (!nest.opts.empty()) arg.emplace_back(nest.opts);
  }
  const UOp sink = UOp::make(Op::Sink, DType::Void, ends, Arg(std::span<const Arg>(arg)));
  for (const Node* n : toposort(sink))
    WHIT_CHECK(n->op != Op::Range || renumbered.contains(n), "[codegen] a range of {} has no place in its nest", range_size(n));
  return substitute(sink, renumbered);
}

Stride stride_of(const Affine& flat, const UOp& r) {
  Stride s;
  for (const Affine::Term& t : flat.terms) {
    if (t.node == r) s.value = t.factor;
    else if (t.node.depends_on(r)) s.linear = false;
  }
  return s;
}

double product(std::span<const UOp> ranges) {
  double p = 1;
  for (const UOp& r : ranges) p *= static_cast<double>(range_size(r.node()));
  return p;
}

bool reads_output(const Nest& nest) {
  for (const UOp& e : nest.ends)
    for (const UOp& f : nest.ends)
      for (const Node* n : toposort(f.src(0).src(1)))
        if (n->op == Op::Param && n->arg == e.src(0).src(0).src(0).arg()) return true;
  return false;
}

double executions(const Node* n) {
  double x = 1;
  if (n->range_set)
    for (const Node* r : n->range_set->nodes) x *= static_cast<double>(range_size(r));
  return x;
}

}  // namespace whit::codegen
