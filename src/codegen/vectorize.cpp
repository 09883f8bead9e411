// How it works. A REDUCE whose terms lie along memory has its innermost range split into lanes. Beside that, the
// candidates are: an output axis as lanes, or none. A small cost model counts what is executed, an access with lanes
// costing what its stride makes it cost. The best candidate is applied: tails become nests or reduces of their own with
// fewer lanes, so no access is gated; those of an innermost axis stay within its outer loops.
//
// Requirements: (1) what decides the order of a sum is the shape, strides and dtype of its own terms, nothing of the
// machine or of what else the kernel does; (2) a kernel of many nodes is not copied often.
#include "codegen/vectorize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/flags.h"
#include "ir/eval.h"
#include "ir/remake.h"

namespace whit::codegen {
namespace {

// Lanes of a split sum, in bytes: four vectors of the widest machines, so that adds overlap.
constexpr int64_t kReduceBytes = 256;
constexpr double kNsPerUnit = 0.3;
constexpr double kThreadNs = 12'000;  // least time of a part that is worth a thread

int64_t floor_pow2(int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); }

constexpr OpSet kSlowest{Op::Exp2, Op::Log2, Op::Sin, Op::Pow}, kFloatDivision{Op::Fdiv, Op::Recip, Op::Sqrt},
    kIntDivision{Op::Cdiv, Op::Cmod, Op::FloorDiv, Op::FloorMod};

double op_cost(const Node* n) {
  if (kSlowest.has(n->op)) return 14;
  if (n->op == Op::Threefry) return 40;
  if (kFloatDivision.has(n->op)) return 4;
  if (kIntDivision.has(n->op)) return 6;
  if (n->op == Op::Load || n->op == Op::Store) return 1;
  return is_elementwise(n->op) || n->op == Op::Reduce ? 0.5 : 0;
}

bool is_value(const Node* n) {
  return n->op == Op::Load || n->op == Op::Store || n->op == Op::Reduce ||
         (is_elementwise(n->op) && n->dtype != DType::WeakInt && n->dtype != DType::Bool);
}
bool depends(const Node* n, const UOp& r) { return UOp(n).depends_on(r); }

// What a node costs for each element when `r` is lanes.
double lane_cost(const Node* n, const UOp& r, double lanes) {
  if (n->op != Op::Load && n->op != Op::Store) return op_cost(n) / lanes;
  const Node* at = n->src()[0];
  if (at->op != Op::Index) return 1 / lanes;
  const Stride s = stride_of(affine_of(UOp(at->src()[1])), r);
  const double gate = at->n_src > 2 && depends(at->src()[2], r) ? 2 / lanes : 0;
  if (s.linear && (s.value == 1 || s.value == 0)) return 1 / lanes + gate;
  if (s.linear && (s.value == 2 || s.value == -1) && n->op == Op::Load) return 3 / lanes + gate;
  if (n->op == Op::Store) return (s.linear ? 1.1 : 2.5) + gate;
  return (s.linear ? 1.3 : 2) + gate;
}

int64_t widest_bytes(const std::vector<const Node*>& nodes, const UOp& r) {
  int64_t bytes = 1;
  for (const Node* n : nodes)
    if (is_value(n) && n->op != Op::Store && depends(n, r) && !is_weak(n->dtype)) bytes = std::max<int64_t>(bytes, n_bytes(n->dtype));
  return bytes;
}

double lanes_on_average(int64_t n, int64_t lanes) {
  double steps = 0;
  for (const Segment& s : segments_of(n, lanes, 1, false)) steps += static_cast<double>(s.count);
  return static_cast<double>(n) / steps;
}

struct Plan {
  UOp lane;  // an output axis, or null
  double cost = 0;
};

int64_t reduce_lanes(const Node* reduce) {
  const Node* k = reduce->src()[reduce->n_src - 1];
  return std::min(kReduceBytes / n_bytes(reduce->dtype), floor_pow2(range_size(k)));
}

// Is the innermost range of a REDUCE split into lanes? The order of its terms hangs on it, so what decides is their number,
// their dtype and where they lie: along memory, and not side by side with those of other outputs, which are lanes then.
bool is_split(const Node* n, std::span<const Node* const> inner) {
  if (n->op != Op::Reduce || n->dtype == DType::Bool || n->n_src < 2) return false;
  const UOp k(n->src()[n->n_src - 1]);
  if (axis_type(k.node()) != AxisType::Reduce || range_size(k.node()) < 16 || !depends(n->src()[0], k)) return false;
  std::vector<Affine> loads;
  const UOp terms(n->src()[0]);
  for (const Node* m : toposort(terms))  // lanes of one sum within lanes of another are not there
    if (depends(m, k) && std::ranges::find(inner, m) != inner.end()) return false;
  for (const Node* m : toposort(terms, [](const Node* u) { return u->op != Op::Reduce; }))
    if (m->op == Op::Load && m->src()[0]->op == Op::Index) loads.push_back(affine_of(UOp(m->src()[0]->src()[1])));
  const auto lie_along = [&](const UOp& r, int64_t most) {
    return std::ranges::all_of(loads, [&](const Affine& a) {
      const Stride s = stride_of(a, r);
      return s.linear && std::abs(s.value) <= most;
    });
  };
  if (!lie_along(k, 2)) return false;
  for (const Node* r : UOp(n).ranges())
    if (range_size(r) >= 16 && lie_along(UOp(r), 1)) return false;
  return true;
}

// The cost of a nest when `lane` is lanes beside the REDUCEs that are split; infinite when they are in its way.
Plan plan_with(const std::vector<const Node*>& nodes, const UOp& lane, const Target& target, std::span<const Node* const> split) {
  Plan p{lane, 0};
  double on_average = 1;
  if (lane) {
    const int64_t lanes = std::max<int64_t>(1, target.vector_bytes / widest_bytes(nodes, lane));
    on_average = lanes_on_average(range_size(lane.node()), std::min(lanes, floor_pow2(range_size(lane.node()))));
  }
  std::unordered_map<const Node*, double> cost;
  for (const Node* n : nodes)
    if (is_value(n)) cost[n] = executions(n) * (lane && depends(n, lane) ? lane_cost(n, lane, on_average) : op_cost(n));
  for (const Node* n : split) {
    const UOp k(n->src()[n->n_src - 1]);
    const double n_lanes =
        std::min<double>(lanes_on_average(range_size(k.node()), reduce_lanes(n)), static_cast<double>(kReduceBytes) / 4 / n_bytes(n->dtype));
    for (const Node* m : nodes) {
      if (!depends(m, k)) continue;
      if (lane && depends(m, lane)) return {lane, std::numeric_limits<double>::infinity()};
      if (is_value(m)) cost[m] = executions(m) * lane_cost(m, k, n_lanes);
    }
    p.cost += executions(n) * 12;
  }
  for (const auto& [n, c] : cost) p.cost += c;
  return p;
}

UOp combine(std::string_view monoid, const UOp& a, const UOp& b) { return UOp::make(monoid_op(monoid), a.dtype(), {a, b}); }

// sum over (.., k)  ->  sum over lanes of the sum over (.., k / lanes), and the same for what is left, shorter.
UOp split_reduce(const Node* n, Nest& nest) {
  const UOp k(n->src()[n->n_src - 1]);
  const std::string_view monoid = n->arg.at(0).as_str();
  UOp all;
  for (const Segment& s : segments_of(range_size(k.node()), reduce_lanes(n), 1, false)) {
    const UOp outer = fresh_range(s.count, AxisType::Reduce);
    UOp at = outer * s.lanes + s.begin;
    std::vector<UOp> ranges;
    for (size_t i = 1; i + 1 < n->n_src; ++i) ranges.emplace_back(n->src()[i]);
    ranges.push_back(outer);
    nest.order.push_back(outer);
    if (s.lanes > 1) {
      const UOp l = fresh_range(s.lanes, AxisType::Lane);
      at = outer * s.lanes + l + s.begin;
      ranges.push_back(l);
      nest.order.push_back(l);
    }
    const UOp part = reduce(substitute(UOp(n->src()[0]), {{k.node(), at}}), monoid, ranges);
    all = all ? combine(monoid, all, part) : part;
  }
  return all;
}

void forget_unused(Nest& nest) {
  std::unordered_map<const Node*, bool> used;
  for (const Node* n : toposort(nest.ends))
    if (n->op == Op::Range) used[n] = true;
  std::erase_if(nest.order, [&](const UOp& r) { return !used.contains(r.node()); });
}

// REDUCEs of a few terms need no loop.
void unroll_small_reduces(Nest& nest, const std::vector<const Node*>& split) {
  const size_t n_nodes = toposort(nest.ends).size();
  RangeMap map;
  for (const Node* n : toposort(nest.ends)) {
    if (n->op != Op::Reduce || std::find(split.begin(), split.end(), n) != split.end()) continue;
    const double terms = product(closed_ranges(n));
    const double body = static_cast<double>(toposort(UOp(n->src()[0])).size());
    bool other = false;  // a range of a REDUCE that is split
    for (const Node* s : split)
      for (const UOp& r : closed_ranges(s)) other = other || contains(closed_ranges(n), r);
    if (other || terms > 16 || terms * body > 400 || n_nodes > 2000) continue;
    for (const UOp& r : closed_ranges(n))
      if (axis_type(r.node()) == AxisType::Reduce && !map.contains(r.node())) map.emplace(r.node(), with_type(r, AxisType::Unroll));
  }
  replace_ranges(nest, map);
}

std::vector<UOp> common_loops(const Nest& nest) {
  std::vector<UOp> common;
  for (const UOp& r : nest.order) {
    if (axis_type(r.node()) == AxisType::Loop) break;  // a serial loop stays outside of what follows
    if (axis_type(r.node()) != AxisType::Weak) continue;
    bool all = true;
    for (const UOp& e : nest.ends) all = all && contains(closed_ranges(e.node()), r);
    if (!all) break;
    common.push_back(r);
  }
  return common;
}

// Sums down columns. Where each term lies on another page and neighbouring outputs lie side by side, the terms' loop goes
// outside: memory is read in its order, and the accumulators of many outputs rest in scratch memory. The order of each
// sum stays.
void cut_far_sums(Nest& nest, double ns, const Target& target) {
  constexpr int64_t kNear = 1024, kFar = 2048, kMostBytes = 128 << 10;
  std::vector<const Node*> sums;
  for (const Node* n : toposort(nest.ends)) {
    if (n->op == Op::Stage) return;
    if (n->op != Op::Reduce) continue;
    for (const Node* m : toposort(UOp(n->src()[0])))
      if (m->op == Op::Reduce) return;
    sums.push_back(n);
  }
  if (sums.empty() || sums.size() > 4) return;
  const UOp far(sums[0]->src()[1]);
  if (far.n_src() > 0) return;
  UOp near;
  for (const UOp& r : nest.order) {
    if (axis_type(r.node()) == AxisType::Loop) return;
    if (axis_type(r.node()) != AxisType::Weak || range_size(r.node()) < 4) continue;
    const int64_t step = reach(sums[0], r);
    if (step > 0 && step <= kNear && (!near || step < reach(sums[0], near))) near = r;
  }
  if (!near || axis_type(far.node()) != AxisType::Reduce || range_size(far.node()) < 16) return;
  double n_read = 0;
  int64_t n_acc_bytes = 0;
  for (const Node* n : sums) {
    if (UOp(n->src()[1]) != far || !depends(n, near) || reach(n, far) < kFar || reach(n, near) < 0) return;
    int64_t tile = n_bytes(n->dtype);
    for (const UOp& r : nest.order) {
      const AxisType t = axis_type(r.node());
      if ((t == AxisType::Upcast || t == AxisType::Lane) && (depends(n, r) || contains(closed_ranges(n), r))) tile *= range_size(r.node());
    }
    n_acc_bytes += tile * range_size(near.node());
    n_read += executions(n->src()[0]) * 4;
  }
  for (const UOp& e : nest.ends)
    if (!contains(closed_ranges(e.node()), near)) return;
  int64_t parts = 1;
  if (ns >= 2 * kThreadNs)
    while (parts < range_size(near.node()) && (parts < target.n_cores || n_acc_bytes / parts > kMostBytes)) {
      do ++parts;
      while (range_size(near.node()) % parts != 0);
    }
  const int64_t count = range_size(near.node()) / parts;
  if (n_read < (256 << 10) || n_acc_bytes / parts > kMostBytes || count < 2) return;

  const UOp part = fresh_range(parts, AxisType::Weak), within = fresh_range(count, AxisType::Loop);
  std::vector<UOp> order, rest, tiles;
  for (const UOp& r : nest.order) {
    if (r == near || r == far) continue;
    (axis_type(r.node()) == AxisType::Weak ? order : rest).push_back(r);
  }
  RangeMap done;
  for (const Node* n : sums) {
    const UOp own = fresh_range(count, AxisType::Loop);
    RangeMap inside{{near.node(), part * count + own}};
    std::vector<UOp> dims{own}, closed, lanes;
    UOp flat = within;
    auto add = [&](const UOp& r) {
      const UOp dim = with_type(r, axis_type(r.node()));
      inside.emplace(r.node(), dim);
      dims.push_back(dim);
      flat = flat * range_size(r.node()) + r;
    };
    for (const UOp& r : rest) {
      const AxisType t = axis_type(r.node());
      if ((t == AxisType::Upcast || t == AxisType::Lane) && depends(n, r)) add(r);
    }
    for (const UOp& r : closed_ranges(n))
      if (axis_type(r.node()) == AxisType::Lane) {
        add(r);
        lanes.push_back(r);
      } else {
        closed.push_back(r);
      }
    const std::string_view monoid = n->arg.at(0).as_str();
    std::vector<UOp> src{reduce(substitute(UOp(n->src()[0]), inside), monoid, closed)};
    src.insert(src.end(), dims.begin(), dims.end());
    tiles.insert(tiles.end(), dims.begin(), dims.end());
    done.emplace(n, reduce(load(index(UOp::make(Op::Stage, n->dtype, src), flat)), monoid, lanes));
  }
  RangeMap outside(done);
  outside.emplace(near.node(), part * count + within);
  for (UOp& e : nest.ends) {
    std::vector<UOp> ranges;
    for (const UOp& r : closed_ranges(e.node())) {
      if (r == near) {
        ranges.push_back(part);
        ranges.push_back(within);
      } else {
        ranges.push_back(r);
      }
    }
    e = remake_end(e, outside, ranges);
  }
  order.push_back(part);
  order.push_back(far);
  order.insert(order.end(), tiles.begin(), tiles.end());
  order.insert(order.end(), rest.begin(), rest.end());
  order.push_back(within);
  nest.order = std::move(order);
  nest.opts += fmt::format("cut {} ", parts);
}

constexpr int64_t kFar = 8, kLeastSize = 32;  // elements
constexpr size_t kMostNodes = 200;            // of what there is a copy a row of the tile

// Splits the two output loops of which one walks along memory in a load and the other in the store, so that squares of both
// are transposed in registers. Leaves other nests, and those with sums, as they are.
void tile_transposed(Nest& nest) {
  const std::vector<const Node*> nodes = toposort(nest.ends);
  if (nest.ends.size() != 1 || nodes.size() > kMostNodes || reads_output(nest)) return;
  std::vector<Affine> loads;
  for (const Node* n : nodes) {
    if (n->op == Op::Reduce || n->op == Op::Stage) return;
    if (n->op == Op::Load && n->src()[0]->n_src == 2) loads.push_back(affine_of(UOp(n->src()[0]->src()[1])));
  }
  const UOp to = nest.ends[0].src(0).src(0);
  const Affine stored = affine_of(to.src(1));
  const int64_t tile = n_bytes(to.dtype()) <= 2 ? 16 : 8;  // elements a side
  const auto is_far = [](const Affine& a, const UOp& r) { return stride_of(a, r).linear && std::abs(stride_of(a, r).value) >= kFar; };
  const auto is_next = [](const Affine& a, const UOp& r) { return stride_of(a, r).linear && stride_of(a, r).value == 1; };
  std::vector<UOp> axes;
  for (const UOp& r : nest.order)
    if (axis_type(r.node()) == AxisType::Weak && range_size(r.node()) >= kLeastSize && r.n_src() == 0) axes.push_back(r);
  for (const UOp& lane : axes)
    for (const UOp& copy : axes) {
      const auto crosses = [&](const Affine& a) { return is_next(a, copy) && is_far(a, lane); };
      if (!is_next(stored, lane) || !is_far(stored, copy) || std::ranges::none_of(loads, crosses) || nest.pick("tile", 2) == 1) continue;
      RangeMap map;
      std::vector<UOp> loops, inner;
      for (const UOp& r : nest.order) {
        loops.push_back(r);
        if (r != lane && r != copy) continue;
        // A last tile that is not whole begins early: what it computes again is the same.
        const int64_t n = range_size(r.node());
        loops.back() = fresh_range((n + tile - 1) / tile, AxisType::Weak);
        inner.push_back(fresh_range(tile, r == lane ? AxisType::Weak : AxisType::Upcast));
        UOp first = loops.back() * tile;
        if (n % tile != 0) first = alu(Op::Min, {first, idx(n - tile)});
        map.emplace(r.node(), first + inner.back());
      }
      loops.insert(loops.end(), inner.begin(), inner.end());
      nest.ends[0] = remake_end(nest.ends[0], map, loops);
      nest.order = loops;
      nest.opts += fmt::format("tile {0}x{0} ", tile);
      return;
    }
}

}  // namespace

// Every output is a matrix of rows that follow each other, every sum is short, and what a vector of the output reads lies in few vectors.
bool join_rows(const Nest& nest, const Target& target, std::vector<Nest>& out) {
  constexpr double kMostTerms = 7, kMostLoads = 128;  // a sum of more terms may have its terms as lanes
  const std::vector<const Node*> nodes = toposort(nest.ends);
  if (nodes.size() > kMostNodes || reads_output(nest)) return false;
  const auto axis_of = [&](int64_t stride) {
    for (const UOp& r : nest.order)
      if (axis_type(r.node()) == AxisType::Weak && r.n_src() == 0 && std::ranges::all_of(nest.ends, [&](const UOp& e) {
            const Stride s = stride_of(affine_of(e.src(0).src(0).src(1)), r);
            return s.linear && s.value == stride && contains(closed_ranges(e.node()), r);
          }))
        return r;
    return UOp();
  };
  const UOp column = axis_of(1), row = column ? axis_of(range_size(column.node())) : UOp();
  if (!row || row == column) return false;
  const int64_t n = range_size(column.node()), n_all = n * range_size(row.node()),
                lanes = std::min(target.vector_bytes / std::max(widest_bytes(nodes, row), widest_bytes(nodes, column)), floor_pow2(n_all));
  if (n >= lanes || lanes < 4) return false;
  const int64_t n_begins = n / std::gcd(n, lanes);  // columns at which a vector begins
  const bool is_loop = n_all >= 2 * n_begins * lanes;
  double cycles = 1, by_rows = 1.2, n_loads = 0;  // of a vector, of a row
  for (const Node* m : toposort(nest.ends, [](const Node* u) { return u->op != Op::Index; })) {
    const bool by_row = depends(m, row), by_column = depends(m, column), is_sum = m->op == Op::Reduce;
    const auto moves = [&](const Node* s) {
      return m->op == Op::Index ? depends(s, row) || depends(s, column) : s == row.node() || s == column.node();
    };
    // What one of the two says would be computed again and again.
    if (m->op == Op::Stage || m->op == Op::After || ((is_sum || op_cost(m) > 1) && by_row != by_column) ||
        (is_sum && (!by_row || product(closed_ranges(m)) > kMostTerms)) ||
        (m->op != Op::End && std::ranges::any_of(m->src().subspan(m->op == Op::Index ? 2 : 0), moves)))
      return false;
    if (m->op != Op::Load) continue;
    const Affine at = affine_of(UOp(m->src()[0]->src()[1]));
    const Stride r = stride_of(at, row), c = stride_of(at, column);
    const int64_t parts = ceil_div((lanes + n - 2) / n * std::abs(r.value) + (n - 1) * std::abs(c.value) + 1, lanes);
    const bool is_along = r.value == n * c.value && std::abs(c.value) < 2;
    if (!r.linear || !c.linear || (!is_along && parts > 4)) return false;
    double times = 1;
    for (const Node* q : UOp(m).ranges())
      if (axis_type(q) == AxisType::Reduce) times *= static_cast<double>(range_size(q));
    cycles += times * (is_along || (is_loop && !by_row) ? 0.5 : static_cast<double>(parts));
    by_rows += times * 0.4;
    n_loads += times;
  }
  const int64_t n_vectors = ceil_div(n_all, lanes), count = is_loop ? n_all / (n_begins * lanes) : 0, begin = count * n_begins * lanes;
  const bool is_faster = n < 4 || static_cast<double>(n_vectors) * cycles < static_cast<double>(n_all / n) * by_rows;
  if (!is_faster || n_loads * static_cast<double>(is_loop ? n_begins : n_vectors) > kMostLoads || nest.pick("join", 2) == 1) return false;
  for (const Segment& s : {Segment{0, count, n_begins, lanes}, {begin, begin < n_all, ceil_div(n_all - begin, lanes), lanes}}) {
    if (s.count == 0) continue;
    const std::vector<UOp> loops{fresh_range(s.count, AxisType::Weak), fresh_range(s.unroll, AxisType::Upcast), fresh_range(lanes, AxisType::Lane)};
    // The last vector ends where the last row does: what it computes again is the same.
    const UOp at = alu(Op::Min, {loops[1] * lanes + s.begin, idx(n_all - lanes)}) + loops[2];
    const RangeMap map{{row.node(), loops[0] * (s.unroll * lanes / n) + floor_div(at, n)}, {column.node(), floor_mod(at, n)}};
    const auto is_joined = [&](const UOp& r) { return r == row || r == column; };
    Nest part = nest;
    std::erase_if(part.order, is_joined);
    part.order.insert(std::ranges::find_if(part.order, [](const UOp& r) { return axis_type(r.node()) != AxisType::Weak; }), loops[0]);
    part.order.insert(part.order.end(), loops.begin() + 1, loops.end());
    for (UOp& e : part.ends) {
      std::vector<UOp> ranges = closed_ranges(e.node());
      std::erase_if(ranges, is_joined);
      ranges.insert(ranges.end(), loops.begin(), loops.end());
      e = remake_end(e, map, ranges);
    }
    part = clone(part);
    unroll_small_reduces(part, {});
    part.opts += fmt::format("joined rows {}x{} ", s.unroll, lanes);
    parallelize(part, common_loops(part), static_cast<double>(s.count * s.unroll) * cycles * kNsPerUnit, target);
    out.push_back(std::move(part));
  }
  return true;
}

int64_t reach(const Node* sum, const UOp& r) {
  int64_t most = 0;
  for (const Node* n : toposort(UOp(sum->src()[0]))) {
    if (n->op != Op::Index) continue;
    const Stride s = stride_of(affine_of(UOp(n->src()[1])), r);
    if (!s.linear) return -1;
    most = std::max(most, std::abs(s.value) * n_bytes(n->dtype));
  }
  return most;
}

std::vector<Segment> segments_of(int64_t n, int64_t lanes, int64_t unroll, bool short_tail) {
  std::vector<Segment> out;
  int64_t begin = 0;
  auto add = [&](int64_t u, int64_t l) {
    const int64_t count = (n - begin) / (u * l);
    if (count == 0) return;
    out.push_back({begin, count, u, l});
    begin += count * u * l;
  };
  if (unroll > 1) add(unroll, lanes);
  add(1, lanes);
  if (!short_tail)
    for (int64_t l = lanes / 2; l >= 4; l /= 2)
      if (n - begin >= l && out.size() < 3) add(1, l);
  add(1, 1);
  return out;
}

Nest clone(const Nest& nest) {
  RangeMap map;
  Nest copy = nest;
  for (const UOp& r : nest.order) map.emplace(r.node(), with_type(r, axis_type(r.node())));
  replace_ranges(copy, map);
  return copy;
}

UOp remake_end(const UOp& e, const RangeMap& map, std::span<const UOp> ranges) { return end(substitute(e.src(0), map), ranges); }

void parallelize(Nest& nest, std::span<const UOp> loops, double ns, const Target& target, double again_ns) {
  constexpr double kLeast[] = {1, 4, 0.25, 1e9};
  constexpr int64_t kPartsACore[] = {32, 8, 128};
  if (ns >= kThreadNs / 2 && target.n_cores > 1) ns /= kLeast[nest.pick("thread", std::size(kLeast))];
  const bool worth = flag::THREADS() && target.n_cores > 1 && ns >= 2 * kThreadNs;
  const int64_t n_parts = worth ? kPartsACore[nest.pick("parts", std::size(kPartsACore))] * target.n_cores : 1;
  int64_t extent = 1;
  std::vector<UOp> fused;
  if (worth)
    for (const UOp& r : loops) {
      if (extent >= n_parts || (!fused.empty() && ns / static_cast<double>(extent) < kThreadNs)) break;
      fused.push_back(r);
      extent *= range_size(r.node());
    }
  RangeMap map;
  UOp global;
  if (!fused.empty()) {
    global = fresh_range(extent, AxisType::Global);
    UOp rest = global;
    for (size_t i = fused.size(); i-- > 0;) {
      const int64_t size = range_size(fused[i].node());
      map.emplace(fused[i].node(), i == 0 ? rest : floor_mod(rest, size));
      rest = floor_div(rest, size);
    }
    // A part for each core if it takes four times what all do again; several when it is little beside them.
    const double least_ns = std::max(kThreadNs, std::min(std::max(ns / target.n_cores, 4 * again_ns), 16 * again_ns));
    nest.min_part = std::max<int64_t>(1, static_cast<int64_t>(least_ns / (ns / static_cast<double>(extent))));
  } else {
    // An output may read what another one overwrites: in one part of the launch they are written one after the other.
    if (nest.ends.size() > 1) global = fresh_range(1, AxisType::Global);
    nest.min_part = 1;
  }
  std::vector<UOp> order;
  if (global) order.push_back(global);
  for (const UOp& r : nest.order) {
    if (contains(fused, r)) continue;
    if (axis_type(r.node()) == AxisType::Weak) {
      const UOp loop = with_type(r, AxisType::Loop);
      map.emplace(r.node(), loop);
      order.push_back(loop);
    } else if (r.n_src() > 0) {  // it runs as far as an outer range says
      order.push_back(substitute(r, map));
      map.emplace(r.node(), order.back());
    } else {
      order.push_back(r);
    }
  }
  for (UOp& e : nest.ends) {
    std::vector<UOp> ranges;
    if (global) ranges.push_back(global);
    for (const UOp& r : closed_ranges(e.node())) {
      if (contains(fused, r)) continue;
      const auto it = map.find(r.node());
      ranges.push_back(it == map.end() ? r : it->second);
    }
    e = remake_end(e, map, ranges);
  }
  nest.order = std::move(order);
}

std::vector<Nest> vectorize(Nest nest, const Target& target) {
  tile_transposed(nest);
  const std::vector<UOp> before = nest.ends;  // keeps the nodes alive
  const std::vector<const Node*> nodes = toposort(before);
  const bool big = nodes.size() > 400;
  std::vector<const Node*> split;  // inner ones first
  for (const Node* n : nodes)
    if (is_split(n, split)) split.push_back(n);
  std::vector<Plan> plans{plan_with(nodes, UOp(), target, split)};
  if (nodes.size() < 20000)
    for (const UOp& r : nest.order)
      if (axis_type(r.node()) == AxisType::Weak && range_size(r.node()) >= 4 && r.n_src() == 0) plans.push_back(plan_with(nodes, r, target, split));
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) { return a.cost < b.cost; });
  std::erase_if(plans, [](const Plan& p) { return std::isinf(p.cost); });
  const Plan best = plans[static_cast<size_t>(nest.pick("lane", static_cast<int>(plans.size())))];
  const double ns = best.cost * kNsPerUnit;

  // REDUCEs that are not split, and are short, lose their loops; the others are split. Inner ones come first in the
  // order of nodes, and outer ones may contain them.
  unroll_small_reduces(nest, split);
  if (!split.empty()) {
    std::vector<UOp> cut;
    for (const Node* n : split) cut.emplace_back(n->src()[n->n_src - 1]);
    split.clear();  // unrolling made new nodes
    Remade made;
    for (const Node* n : toposort(nest.ends)) {
      made.update(n);
      if (n->op != Op::Reduce) continue;
      if (is_split(n, split)) {
        split.push_back(n);
        made.set(n, split_reduce(made.of(n).node(), nest));
        continue;
      }
      // One that stays whole beside it gets a range of its own.
      RangeMap own;
      for (const UOp& r : closed_ranges(n))
        if (contains(cut, r)) nest.order.push_back(own[r.node()] = with_type(r, axis_type(r.node())));
      made.set(n, substitute(made.of(n), own));
    }
    for (UOp& e : nest.ends) e = made.of(e.node());
    forget_unused(nest);
    nest.opts += "split-reduce ";
  }
  if (!best.lane) {
    cut_far_sums(nest, ns, target);
    parallelize(nest, common_loops(nest), ns, target);
    return {nest};
  }

  const UOp r = best.lane;
  const int64_t n = range_size(r.node());
  const int64_t lanes = std::min(std::max<int64_t>(1, target.vector_bytes / widest_bytes(nodes, r)), floor_pow2(n));
  size_t n_sums = 0;
  double n_inside = 0;
  bool shared = false;
  for (const Node* m : toposort(nest.ends)) {
    if (m->op == Op::Reduce || m->op == Op::Stage) {
      if (depends(m, r)) ++n_sums;
      else shared = true;
    }
    if (is_value(m) && depends(m, r)) n_inside += std::max(1.0, op_cost(m));
  }
  for (const UOp& e : nest.ends) shared = shared || !contains(closed_ranges(e.node()), r);
  const int64_t model = n_inside <= 16 && n_sums <= 4 ? 4 : n_inside <= 60 && n_sums <= 4 ? 2 : 1;
  const int64_t unrolls[] = {model, 1, 2, 4, 8};
  const int64_t unroll = unrolls[nest.pick("unroll", std::size(unrolls))];
  nest.opts += fmt::format("lanes {}x{} ", unroll, lanes);

  const auto parts = segments_of(n, lanes, unroll, big || n_sums > 2);
  // Parts of a short row lie in the same lines of the cache: one pass over memory makes them all.
  shared =
      shared || (parts.size() > 1 && nest.order.front() != r && std::all_of(std::ranges::find(nest.order, r) + 1, nest.order.end(), [](const UOp& q) {
                   return axis_type(q.node()) == AxisType::Unroll;
                 }));
  // The loops of a part of the axis instead of r, outermost first.
  const auto loops_of = [](const Segment& s, AxisType outer) {
    std::vector<UOp> loops{fresh_range(s.count, outer), fresh_range(s.unroll, AxisType::Upcast)};
    if (s.lanes > 1) loops.push_back(fresh_range(s.lanes, AxisType::Lane));
    return loops;
  };
  const auto end_over = [&](const UOp& e, const Segment& s, const std::vector<UOp>& loops) {
    const UOp at = (loops[0] * s.unroll + loops[1]) * s.lanes + (s.lanes > 1 ? loops[2] : idx(0)) + s.begin;
    std::vector<UOp> ranges = closed_ranges(e.node());
    std::erase(ranges, r);
    ranges.insert(ranges.end(), loops.begin(), loops.end());
    return remake_end(e, {{r.node(), at}}, ranges);
  };
  const auto own = std::find(nest.order.begin(), nest.order.end(), r) - nest.order.begin();
  const bool serial_inside =
      std::any_of(nest.order.begin() + own, nest.order.end(), [](const UOp& q) { return axis_type(q.node()) == AxisType::Loop; });
  const auto n_parts_of = [&](const Segment& s) {
    int64_t k = serial_inside ? std::min<int64_t>(target.n_cores, s.count) : 1;
    while (s.count % k != 0) ++k;
    return k;
  };
  std::erase(nest.order, r);
  if (shared) {
    std::vector<UOp> ends;
    const auto first_inner = std::find_if(nest.order.begin(), nest.order.end(), [](const UOp& q) {
      return axis_type(q.node()) != AxisType::Weak && axis_type(q.node()) != AxisType::Loop;
    });
    std::vector<UOp> outer(nest.order.begin(), first_inner), after(first_inner, nest.order.end());
    for (const UOp& e : nest.ends) {
      if (!contains(closed_ranges(e.node()), r)) {
        ends.push_back(e);
        continue;
      }
      for (const Segment& s : parts) {
        const std::vector<UOp> loops = loops_of(s, AxisType::Loop);
        ends.push_back(end_over(e, s, loops));
        outer.push_back(loops[0]);
        after.insert(after.end(), loops.begin() + 1, loops.end());
      }
    }
    nest.ends = std::move(ends);
    nest.order = outer;
    nest.order.insert(nest.order.end(), after.begin(), after.end());
    parallelize(nest, common_loops(nest), ns, target);
    return {nest};
  }
  // Without anything to share, each part of the axis is a nest of its own.
  std::vector<Nest> out;
  for (const Segment& s : parts) {
    Nest part = nest;
    const std::vector<UOp> loops = loops_of(s, AxisType::Weak);
    for (UOp& e : part.ends) e = end_over(e, s, loops);
    // The lanes' loop is the innermost of the outputs.
    const auto last_output = std::find_if(part.order.rbegin(), part.order.rend(), [](const UOp& q) {
      return axis_type(q.node()) == AxisType::Weak || axis_type(q.node()) == AxisType::Loop;
    });
    part.order.insert(last_output.base(), loops[0]);
    part.order.insert(part.order.end(), loops.begin() + 1, loops.end());
    if (n_parts_of(s) > 1) {  // a serial loop over it stays inside of a part for each core
      const int64_t count = s.count / n_parts_of(s);
      const UOp core = fresh_range(n_parts_of(s), AxisType::Weak), i = fresh_range(count, AxisType::Weak);
      for (UOp& e : part.ends) {
        std::vector<UOp> ranges = closed_ranges(e.node());
        std::replace(ranges.begin(), ranges.end(), loops[0], i);
        ranges.push_back(core);
        e = remake_end(e, {{loops[0].node(), core * count + i}}, ranges);
      }
      std::replace(part.order.begin(), part.order.end(), loops[0], i);
      part.order.insert(part.order.begin() + own, core);
    }
    if (!out.empty()) part = clone(part);
    const double share = static_cast<double>(s.count * s.unroll * s.lanes) / static_cast<double>(n);
    cut_far_sums(part, ns * share, target);
    parallelize(part, common_loops(part), ns * share, target);
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace whit::codegen
