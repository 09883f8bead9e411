// Rangeify, forward: the expression of every instance, and the nests.
#include <algorithm>
#include <functional>

#include "ir/build.h"
#include "ir/eval.h"
#include "rules/linear.h"
#include "schedule/rangeify_state.h"

namespace whit::sched {

UOp Rangeify::source_value(const Instance& in, size_t s) const {
  const int32_t k = src_instances_[in.first_src + s];
  return k < 0 ? UOp(node(-1 - k)) : instances_[k].value;
}

UOp Rangeify::load_from(int32_t buffer, const UOp& flat, const UOp& gate) const {
  const VirtualBuffer& b = out_.buffers[buffer];
  const int64_t n[] = {b.n_elems};
  return load(index(param(buffer, b.dtype, n), flat, gate));
}

// What all of a state is that was just filled with one number; else null.
UOp Rangeify::stored_constant(int32_t i) const {
  if (node(i)->op != Op::After || node(i)->n_src != 2) return {};
  const int32_t stored = src(i, 1);
  int32_t value = src(stored, 1);
  if (node(src(stored, 0))->shape.numel() != node(i)->shape.numel() || !is_spread_constant(value)) return {};
  while (is_view(node(value))) value = src(value, 0);
  return UOp(node(value));
}

UOp Rangeify::loaded(const Instance& in, int32_t buffer) {
  const Node* n = node(in.node);
  const auto at = index_of(in);
  if (const UOp c = stored_constant(in.node)) return c;
  UOp gate;
  if (const auto h = layouts_.find(in.node); h != layouts_.end()) {
    Index shifted;
    UOp inside;
    for (size_t a = 0; a < at.size(); ++a) {
      shifted.push_back(add_index(at[a], h->second.before[a]));
      if (shifted[a].vmin() < 0 || shifted[a].vmax() >= h->second.dims[a]) gate = in.gate;
      inside = and_gate(inside, in_range(at[a], 0, n->shape[a]));
    }
    const UOp l = load_from(buffer, h->second.flat(shifted), gate);
    if (inside) zero_where_not_[l.node()] = inside;
    return l;
  }
  for (size_t a = 0; a < at.size() && !gate; ++a)
    if (at[a].vmin() < 0 || at[a].vmax() >= n->shape[a]) gate = in.gate;
  const auto copy = copies_.find(in.node);
  if (copy != copies_.end()) return load_from(copy->second, flatten(at, n->shape), gate);
  return load_from(buffer, n->op == Op::After ? flat_index(in.node, at) : flatten(at, n->shape), gate);
}

// Is x zero where `inside` does not hold? A load that is gated by it is, one from a halo, and a product of such (a
// factor that is not finite makes NaN there, as the product with a zero of padding does).
bool Rangeify::is_zero_outside(const Node* x, const UOp& inside) const {
  while (x->op == Op::Cast) x = x->src()[0];
  if (x->op == Op::Const) return !x->arg.is_invalid() && scalar_of(UOp(x)).as_double() == 0;
  if (x->op == Op::Mul && is_float(x->dtype)) return is_halo_load(x->src()[0], inside) || is_halo_load(x->src()[1], inside);
  if (x->op != Op::Load) return false;
  return (x->src()[0]->n_src > 2 && gate_implies(UOp(x->src()[0]->src()[2]), inside)) || is_halo_load(x, inside);
}

bool Rangeify::is_halo_load(const Node* x, const UOp& inside) const {
  while (x->op == Op::Cast) x = x->src()[0];
  const auto it = zero_where_not_.find(x);
  return it != zero_where_not_.end() && gate_implies(it->second, inside);
}

// x where `inside` holds, else 0.
UOp Rangeify::zero_outside(const UOp& x, const UOp& inside) const {
  if (!inside || is_zero_outside(x.node(), inside)) return x;
  return where(inside, x, constant(x.dtype(), 0));
}

// A reduce of term(x). A reduce of a reduce is one reduce, of the terms of the inner one.
template <class F = std::identity> static UOp reduce_value(const UOp& x, std::string_view monoid, std::span<const UOp> ranges, F term = {}) {
  if (ranges.empty()) return term(x);
  if (x.op() != Op::Reduce || x.arg().at(0).as_str() != monoid) return reduce(term(x), monoid, ranges);
  SmallVec<UOp, 6> all(ranges.begin(), ranges.end());
  for (size_t i = 1; i < x.n_src(); ++i) all.push_back(x.src(i));
  return reduce(term(x.src(0)), monoid, all);
}

UOp Rangeify::value_of(const Instance& in) {
  const Node* n = node(in.node);
  const int32_t buffer = out_.buffer_of[in.node];
  const int32_t own = own_nest_[in.node];
  const int32_t k = static_cast<int32_t>(&in - instances_.data());
  if (const auto it = staged_.find(k); it != staged_.end()) return read_stage(in, instances_[it->second]);
  const bool computed_here = own >= 0 ? nests_[own].instance == k : row_nest_.contains(in.node) && computed_in(in.node, in.nest);
  if (buffer >= 0 && !computed_here) return loaded(in, buffer);
  const auto at = index_of(in);
  if ((kViews | OpSet{Op::Contiguous, Op::Copy}).has(n->op)) return source_value(in, 0);
  switch (n->op) {
    case Op::Const:
    case Op::Variable: return UOp(n);
    case Op::Lanes: return cast(at[0], n->dtype);
    case Op::Pad: return zero_outside(source_value(in, 0), in.own[0]);
    case Op::Gather: return zero_outside(source_value(in, 1), in.own[0]);
    case Op::Reduce: return reduce_value(source_value(in, 0), n->arg.at(0).as_str(), in.own);
    case Op::Unwindow: {
      const UOp x = source_value(in, 0), inside = in.own.back();
      if (in.own.size() == 1) return zero_outside(x, inside);
      const UOp j[] = {in.own[0]};
      // The condition goes inside of a sum, so that there is one sum.
      return reduce_value(x, "add", j, [&](const UOp& term) { return zero_outside(term, inside); });
    }
    case Op::Stack: {
      if (at[0].is_const()) return source_value(in, 0);
      UOp v = source_value(in, n->n_src - 1);
      for (size_t s = n->n_src - 1; s-- > 0;) v = where(lt(at[0], static_cast<int64_t>(s) + 1), source_value(in, s), v);
      return v;
    }
    case Op::Bitcast: return bitcast_value(n, in);
    case Op::CmpLt:
      if (!in.own.empty()) return lt(in.own[0], UOp(n->src()[1]));
      [[fallthrough]];
    default: {
      SmallVec<UOp, 3> s;
      for (size_t i = 0; i < n->n_src; ++i) s.push_back(source_value(in, i));
      return UOp::make(n->op, n->dtype, std::span<const UOp>(s), n->arg);
    }
  }
}

static DType uint_of(int n) { return n == 1 ? DType::UInt8 : n == 2 ? DType::UInt16 : n == 4 ? DType::UInt32 : DType::UInt64; }
static UOp bits_as(const UOp& x, DType dtype) { return x.dtype() == dtype ? x : UOp::make(Op::Bitcast, dtype, {x}); }

UOp Rangeify::bitcast_value(const Node* n, const Instance& in) const {
  const int from = n_bytes(n->src()[0]->dtype), to = n_bytes(n->dtype);
  if (from == to) return UOp::make(Op::Bitcast, n->dtype, {source_value(in, 0)});
  if (from > to) {
    const UOp bits = bits_as(source_value(in, 0), uint_of(from));
    const UOp by = cast(mul_index(in.own[0], to * 8), bits.dtype());
    return bits_as(cast(alu(Op::Shr, {bits, by}), uint_of(to)), n->dtype);
  }
  UOp all;
  for (int p = 0; p < to / from; ++p) {
    UOp bits = cast(bits_as(source_value(in, static_cast<size_t>(p)), uint_of(from)), uint_of(to));
    if (p > 0) bits = alu(Op::Shl, {bits, constant(bits.dtype(), p * from * 8)});
    all = all ? all | bits : bits;
  }
  return bits_as(all, n->dtype);
}

void Rangeify::emit() {
  // State stores name their nests; others compute the node of their nest.
  std::vector<char> is_state(nests_.size(), 0);
  for (const StateStore& s : state_stores_) is_state[static_cast<size_t>(s.nest)] = 1;
  // Sources were visited last, so nests in reverse are in order.
  for (size_t k = nests_.size(); k-- > 0;) {
    const OpenNest& open = nests_[k];
    Nest& nest = out_.nests.emplace_back();
    nest.ranges = open.ranges;
    if (is_state[k]) continue;
    const auto copy = copies_.find(open.node);
    if (copy != copies_.end()) {
      const Index at(open.ranges.begin(), open.ranges.end());
      const UOp flat = at.empty() ? idx(0) : at[0];
      nest.stores.push_back({copy->second, flat, {}, load_from(out_.buffer_of[open.node], flat, {})});
      continue;
    }
    const Instance& in = instances_[open.instance];
    nest.stores.push_back({out_.buffer_of[open.node],
                           open.store_index ? open.store_index : flatten(index_of(in), node(open.node)->shape),
                           {},
                           zero_outside(in.value, open.inside)});
  }
  for (const StateStore& s : state_stores_) {
    Nest& nest = made_nest(s.nest);
    UOp value = instances_[nests_[s.nest].instance].value;
    if (std::find(scatter_adds_.begin(), scatter_adds_.end(), s.nest) != scatter_adds_.end())
      value = load_from(out_.buffers[s.buffer].previous, s.index, s.gate) + value;
    nest.stores.push_back({s.buffer, s.index, s.gate, value});
    nest.store_node = s.value_node;
  }
  store_rows();
  replace_stand_ins();
  // Copies between devices: kernels are put in order later.
  for (size_t i = 0; i < g_.size(); ++i) {
    if (own_nest_[i] != kCopyNest) continue;
    Nest& nest = out_.nests.emplace_back();
    nest.copy_from = out_.buffer_of[strip_reshapes(g_, src(static_cast<int32_t>(i), 0))];
    nest.stores.push_back({out_.buffer_of[i], {}, {}, {}});
  }
  for (Nest& nest : out_.nests) describe(nest);
}

// Indices that are values: stand-ins become the values, which may hold further stand-ins.
void Rangeify::replace_stand_ins() {
  sort_unique(has_stand_ins_);
  for (const int32_t id : has_stand_ins_)
    for (NestStore& s : made_nest(id).stores)
      for (;;) {
        const UOp all[] = {s.index, s.value, s.gate ? s.gate : s.index};
        std::unordered_map<const Node*, UOp> map;
        for (const Node* n : toposort(all))
          if (n->op == Op::Load && n->src()[0]->src()[0]->op == Op::Param) {
            const int64_t slot = n->src()[0]->src()[0]->arg.int_at(0);
            if (slot < 0) map.emplace(n, instances_[-1 - slot].value);
          }
        if (map.empty()) break;
        s.replace(map);
      }
}

// What a nest reads, where it runs.
void Rangeify::describe(Nest& nest) {
  const VirtualBuffer& target = out_.buffers[nest.stores[0].buffer];
  nest.device = target.device;
  if (nest.is_copy()) {
    nest.reads = {nest.copy_from};
    return;
  }
  describe_nest(nest);
  for (const int32_t r : nest.reads) {
    const uint16_t d = out_.buffers[r].device;
    WHIT_USER(d == nest.device, Runtime, "[schedule] one kernel cannot read memory of {} and write memory of {}; copy it first with .to()",
              device_name(d), device_name(nest.device));
  }
}

}  // namespace whit::sched
