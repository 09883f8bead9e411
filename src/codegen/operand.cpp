#include "codegen/operand.h"

#include <algorithm>
#include <numeric>

#include "ir/remake.h"

namespace whit::codegen {
UOp gated(const UOp& at, const UOp& gate) {
  return UOp::make(Op::Index, at.dtype(), {at.src(0), at.src(1), at.n_src() == 3 ? at.src(2) & gate : gate});
}

namespace {

// Rebuilds an expression with some LOADs replaced.
template <class F> UOp map_loads(const UOp& root, F&& f) {
  Remade made;
  for (const Node* n : toposort(root)) {
    made.update(n);
    if (n->op == Op::Load && n->src()[0]->op == Op::Index) made.set(n, f(made.of(n)));
  }
  return made.of(root.node());
}

UOp with_gate(const UOp& load_, const UOp& gate) { return UOp::make(Op::Load, load_.dtype(), {gated(load_.src(0), gate)}, load_.arg()); }

bool compares_indices(const Node* n) { return is_comparison(n->op) && n->src()[0]->dtype == DType::WeakInt; }

// The sums of ranges in an expression: what its indices and its conditions (gates too) are made of. What is no range is the same
// for a whole tile.
bool linear_forms(const UOp& value, const std::vector<UOp>& ranges, std::vector<Affine>& flats, std::vector<Affine>& gates) {
  for (const Node* n : toposort(value)) {
    if (n->op == Op::Reduce || n->op == Op::Stage) return false;
    if (n->op == Op::Index) {
      flats.push_back(affine_of(UOp(n->src()[1])));
    } else if (compares_indices(n)) {
      Affine a = affine_of(UOp(n->src()[0]));
      a.add(affine_of(UOp(n->src()[1])), -1);
      gates.push_back(a);
    }
  }
  for (auto* list : {&flats, &gates})
    for (Affine& a : *list) {
      Affine moving;
      for (const Affine::Term& t : a.terms)
        if (t.node.op() == Op::Range) moving.add(t.node, t.factor);
        else if (std::ranges::any_of(ranges, [&](const UOp& r) { return t.node.depends_on(r); })) return false;
      a = moving;
    }
  // A range that reaches the value otherwise (an arange, a remainder) is no index.
  for (const Node* n : toposort(value, [](const Node* m) { return m->op != Op::Index && !compares_indices(m); }))
    if (n->op == Op::Range) return false;
  return true;
}

TileDim dim_of(std::vector<std::pair<UOp, int64_t>> terms) {
  int64_t g = 0;
  for (const auto& [r, c] : terms) g = std::gcd(g, c);
  if (terms[0].second < 0) g = -g;
  TileDim d;
  int64_t hi = 0;
  for (auto& [r, c] : terms) {
    c /= g;
    (c < 0 ? d.lo : hi) += c * (range_size(r.node()) - 1);
  }
  d.size = hi - d.lo + 1;
  d.terms = std::move(terms);
  return d;
}

bool proportional(const Affine& a, const TileDim& d) {
  const auto& [r0, c0] = d.terms[0];
  for (const auto& [r, c] : d.terms)
    if (a.factor_of(r) * c0 != a.factor_of(r0) * c) return false;
  return true;
}

}  // namespace

Operand Operand::of(const UOp& value) {
  Operand x;
  x.value = value;
  const Node* n = value.node();
  while (n->op == Op::Cast) n = n->src()[0];
  x.is_plain = n->op == Op::Load && n->src()[0]->op == Op::Index;
  if (x.is_plain) x.load = UOp(n);
  return x;
}

Stride Operand::stride(const UOp& range) const {
  Stride s{true, 0};
  for (const Node* n : toposort(value, [](const Node* x) { return x->op != Op::Index; })) {
    if (n == range.node()) return {false, 0};  // not only where a LOAD is
    if (n->op != Op::Index || !UOp(n).depends_on(range)) continue;
    const Stride own = stride_of(affine_of(UOp(n->src()[1])), range);
    s = {own.linear && s.linear && (s.value == 0 || s.value == own.value), own.value};
  }
  return s;
}

int64_t Operand::square_terms(const UOp& k) const {
  const Stride s = stride(k);
  if (!is_plain || !s.linear || s.value != 1 || is_gated_by(std::vector{k})) return 0;
  const int64_t n = range_size(k.node());
  int64_t best = 0;
  const auto waste = [](int64_t d) { return static_cast<double>((d + 15) / 16 * 16) / static_cast<double>(d); };
  for (int64_t d = kSquare; d <= std::min<int64_t>(n, 64); ++d)
    if (n % d == 0 && (best == 0 || waste(d) < 0.95 * waste(best))) best = d;
  return best;
}

bool Operand::is_gated_by(std::span<const UOp> ranges) const {
  for (const Node* n : toposort(value))
    if (n->op == Op::Index && n->n_src == 3)
      for (const UOp& r : ranges)
        if (UOp(n->src()[2]).depends_on(r)) return true;
  return false;
}

UOp gate_loads(const UOp& value, const UOp& range, const UOp& gate) {
  return map_loads(value, [&](const UOp& l) { return l.src(0).src(1).depends_on(range) ? with_gate(l, gate) : l; });
}

UOp zero_unless(const UOp& condition, const UOp& value) {
  const Operand x = Operand::of(value);
  if (!x.is_plain) return where(condition, value, constant(value.dtype(), 0));
  std::vector<UOp> missing;
  const UOp at = x.load.src(0);
  const auto have = at.n_src() == 3 ? conjuncts(at.src(2)) : std::vector<UOp>{};
  for (const UOp& c : conjuncts(condition))
    if (!contains(have, c)) missing.push_back(c);
  if (missing.empty()) return value;
  const UOp gate = all_of(missing);
  return map_loads(value, [&](const UOp& l) { return l == x.load ? with_gate(l, gate) : l; });
}

UOp pack_terms(const UOp& value, const UOp& k, const UOp& group, int64_t n) {
  const Operand x = Operand::of(value);
  const auto rotated = [&](const UOp& u) {
    return n == 2 ? alu(Op::Shl, {u, constant(DType::UInt32, 16)}) | alu(Op::Shr, {u, constant(DType::UInt32, 16)}) : u;
  };
  if (x.is_plain && x.load == value && !x.is_gated_by(std::vector{k})) {  // they are 32 bits in memory
    const UOp at = substitute(x.load.src(0), {{k.node(), group * n}});
    Affine flat = affine_of(at.src(1));
    bool aligned = flat.factor_of(group) == n && flat.constant % n == 0;
    flat.constant /= n;
    for (Affine::Term& t : flat.terms) aligned = aligned && t.factor % n == 0, t.factor /= n;
    auto src = at.srcs();
    src[1] = build_affine(flat, at.src(1).dtype());
    if (aligned) return rotated(load(UOp::make(Op::Index, DType::UInt32, src)));
  }
  UOp all = constant(DType::UInt32, 0);
  for (int64_t i = 0; i < n; ++i) {
    const UOp term = substitute(value, {{k.node(), group * n + i}});
    const UOp bits = cast(UOp::make(Op::Bitcast, n == 2 ? DType::UInt16 : DType::UInt8, {term}), DType::UInt32);
    const UOp moved = alu(Op::Shl, {bits, constant(DType::UInt32, 32 / n * (n == 2 ? 1 - i : i))});
    all = i == 0 ? moved : all | moved;
  }
  return all;
}

UOp pack_panels(const Operand& x, const Panels& p, std::span<const UOp> summed, std::vector<UOp>& order) {
  const int64_t width = p.vectors * p.lanes;
  RangeMap map;
  std::vector<UOp> dims{fresh_range(p.n_panels, AxisType::Loop)}, loops = dims;
  const UOp panel = dims[0];
  auto add = [&](int64_t size, AxisType type) {
    dims.push_back(fresh_range(size, type));
    loops.push_back(dims.back());
    return dims.back();
  };
  // Contiguous in memory: whole vectors are copied. Where terms of the sum are contiguous, squares are transposed in registers.
  // Else one element a time (a gather would be slower), a few terms of the sum next to each other: they share a line.
  const Stride s = x.stride(p.axis);
  const bool contiguous = s.linear && s.value == 1;
  const int64_t square = contiguous || width % kSquare != 0 ? 0 : x.square_terms(summed.back());
  int64_t copies = 1;
  for (const UOp& k : summed) {
    const int64_t n = range_size(k.node());
    if (!contiguous && k == summed.back())
      for (int64_t d = 2; d <= 16; ++d) copies = square ? square : n % d == 0 ? d : copies;
    // As far as the sum runs, if that is known where the copy is made.
    const bool bounded = std::ranges::all_of(
        k.srcs(), [&](const UOp& u) { return std::ranges::all_of(u.ranges(), [&](const Node* r) { return x.depends_on(UOp(r)); }); });
    if (bounded && copies == 1) dims.push_back(with_type(k, AxisType::Loop)), loops.push_back(dims.back());
    const UOp outer = bounded && copies == 1 ? dims.back() : add(n / copies, AxisType::Loop);
    map.emplace(k.node(), copies == 1 ? outer : outer * copies + add(copies, AxisType::Upcast));
  }
  UOp within;
  if (contiguous) {
    const UOp u = add(p.vectors, AxisType::Upcast);
    within = u * p.lanes + add(p.lanes, AxisType::Lane);
  } else if (square) {
    const UOp w = add(width / kSquare, AxisType::Loop);
    within = w * kSquare + add(kSquare, AxisType::Lane);
  } else if (copies > 1) {
    within = add(width, AxisType::Loop);
    std::swap(loops.end()[-1], loops.end()[-2]);
  } else {
    const UOp w = add(width / std::min<int64_t>(width, 8), AxisType::Loop);
    within = w * std::min<int64_t>(width, 8) + add(std::min<int64_t>(width, 8), AxisType::Upcast);
  }
  UOp at = panel * width + within;
  if (p.chunk) at = p.chunk * (p.n_panels * width) + at;
  at = at + p.begin;
  UOp value = x.value;
  if (p.n_valid < (p.chunk ? range_size(p.chunk.node()) : 1) * p.n_panels * width) value = gate_loads(value, p.axis, lt(p.axis, p.begin + p.n_valid));
  map.emplace(p.axis.node(), at);
  std::vector<UOp> src{substitute(value, map)};
  src.insert(src.end(), dims.begin(), dims.end());
  order.insert(order.end(), loops.begin(), loops.end());
  return UOp::make(Op::Stage, x.value.dtype(), src);
}

Tile find_tile(const Operand& x, std::span<const UOp> summed, std::span<const UOp> tiled) {
  Tile t;
  std::vector<Affine> flats, gates;
  std::vector<UOp> ranges(summed.begin(), summed.end());
  ranges.insert(ranges.end(), tiled.begin(), tiled.end());
  if (!linear_forms(x.value, ranges, flats, gates)) return t;
  std::vector<TileDim> sums;
  auto add_sum = [&](std::vector<std::pair<UOp, int64_t>> terms) {
    std::sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return range_id(a.first.node()) < range_id(b.first.node()); });
    const TileDim d = dim_of(std::move(terms));
    for (const TileDim& have : sums) {
      if (have.terms == d.terms) return true;
      for (const auto& [r, c] : have.terms)
        for (const auto& [q, e] : d.terms)
          if (r == q) return false;
    }
    sums.push_back(d);
    return true;
  };
  for (const Affine& a : gates) {
    if (a.terms.size() < 2) continue;
    std::vector<std::pair<UOp, int64_t>> terms;
    for (const Affine::Term& term : a.terms) terms.emplace_back(term.node, term.factor);
    if (!add_sum(std::move(terms))) return t;
  }
  // Without a gate to tell: a summed range and an output range whose strides overlap are a window.
  for (const Affine& a : flats)
    for (const Affine::Term& k : a.terms) {
      if (!contains(summed, k.node)) continue;
      for (const Affine::Term& o : a.terms) {
        if (contains(summed, o.node) || o.factor % k.factor != 0) continue;
        bool known = false;
        for (const TileDim& d : sums)
          for (const auto& [r, c] : d.terms) known = known || r == k.node || r == o.node;
        if (!known && std::abs(o.factor) <= std::abs(k.factor) * (range_size(k.node.node()) - 1))
          if (!add_sum({{o.node, o.factor}, {k.node, k.factor}})) return t;
      }
    }
  for (const TileDim& d : sums) {
    bool has_unit = false;
    for (const auto& [r, c] : d.terms) has_unit = has_unit || std::abs(c) == 1;
    if (!has_unit) return t;
    for (const auto* list : {&flats, &gates})
      for (const Affine& a : *list)
        if (!proportional(a, d)) return t;
  }
  t = sums;
  const auto covers = [](const TileDim& d, const UOp& r) { return std::ranges::any_of(d.terms, [&](const auto& term) { return term.first == r; }); };
  for (const auto list : {summed, tiled})
    for (const UOp& r : list)
      if (x.depends_on(r) && std::ranges::none_of(t, [&](const TileDim& d) { return covers(d, r); })) t.push_back(dim_of({{r, 1}}));
  // As in memory, so that filling runs along it: the largest stride outside.
  auto stride = [&](const TileDim& d) {
    int64_t s = 0;
    for (const Affine& a : flats) s = std::max(s, std::abs(a.factor_of(d.terms[0].first) / d.terms[0].second));
    return s;
  };
  std::stable_sort(t.begin(), t.end(), [&](const TileDim& a, const TileDim& b) { return stride(a) > stride(b); });
  return t;
}

UOp read_tile(const Operand& x, const Tile& t, const RangeMap& map, int64_t lanes, std::vector<UOp>& order) {
  RangeMap inside(map);
  std::vector<UOp> ranges;
  UOp flat = idx(0), beyond;
  for (size_t i = 0; i < t.size(); ++i) {
    const TileDim& d = t[i];
    const bool last = i + 1 == t.size();
    UOp u;
    int64_t size = d.size;
    if (last && size >= 4) {
      // The innermost dimension is filled in vectors; its padding is zero.
      int64_t l = lanes;
      while (l > 4 && (size + l - 1) / l * l > size + (size <= lanes ? size * 2 / 3 : size / 4)) l /= 2;
      const UOp o = fresh_range((size + l - 1) / l, AxisType::Loop), v = fresh_range(l, AxisType::Lane);
      u = o * l + v;
      if (size % l != 0) beyond = lt(u, size);
      size = (size + l - 1) / l * l;
      ranges.push_back(o);
      ranges.push_back(v);
    } else {
      u = fresh_range(size, AxisType::Loop);
      ranges.push_back(u);
    }
    bool placed = false;
    UOp outside = idx(-d.lo);
    for (const auto& [r, c] : d.terms) {
      const auto it = map.find(r.node());
      outside = outside + (it == map.end() ? r : it->second) * c;
      if (!placed && std::abs(c) == 1) {
        inside[r.node()] = (u + d.lo) * c;
        placed = true;
      } else {
        inside[r.node()] = idx(0);
      }
    }
    flat = flat * size + outside;
  }
  UOp value = substitute(x.value, inside);
  if (beyond) value = gate_loads(value, ranges.back(), beyond);
  std::vector<UOp> src{value};
  src.insert(src.end(), ranges.begin(), ranges.end());
  order.insert(order.end(), ranges.begin(), ranges.end());
  return load(index(UOp::make(Op::Stage, x.value.dtype(), src), flat));
}

}  // namespace whit::codegen
