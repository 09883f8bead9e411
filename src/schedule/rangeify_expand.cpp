// Rangeify, backward: what each instance wants of its sources.
#include <algorithm>

#include "ir/build.h"
#include "ir/eval.h"
#include "rules/linear.h"
#include "schedule/rangeify_state.h"

namespace whit::sched {

void Rangeify::visit(int32_t i) {
  const size_t k = static_cast<size_t>(i);
  const Node* n = node(i);
  if (n->op == Op::After) return visit_after(i);
  if (n->op == Op::Buffer) {
    count_loads(i);
    if (forced_.copied[k]) copy_state(i);
    return;
  }
  if (n->op == Op::Scatter) return visit_scatter(i);
  const bool was_in_memory = in_memory_[k];
  if (!was_in_memory && keep_in_nest(i)) return;
  if (was_in_memory || should_materialise(i)) {
    materialise(i);
    count_loads(i);
    if (n->op == Op::Copy) {
      own_nest_[k] = kCopyNest;
      return;
    }
    Index index;
    UOp inside;
    const Layout* layout = was_in_memory ? nullptr : find_layout(i);
    const int32_t nest = open_nest(i, n->shape, index, layout);
    own_nest_[k] = nest;
    if (layout) {
      out_.buffers[out_.buffer_of[k]].n_elems = Shape(layout->dims).numel();
      nests_[nest].store_index = layout->flat(index);
      for (size_t a = 0; a < index.size(); ++a) {
        index[a] = add_index(index[a], -layout->before[a]);
        inside = and_gate(inside, in_range(index[a], 0, n->shape[a]));
      }
      nests_[nest].inside = inside;
    }
    // The instance in which it is computed is not found by want(): users load.
    const int32_t own = add_instance(i, nest, nests_[nest].scope, intern(index), inside);
    nests_[nest].instance = own;
    expand(own);
    return;
  }
  for (int32_t in = first_instance_[k]; in >= 0; in = instances_[in].next) expand(in);
}

// Null for row-major.
const Layout* Rangeify::find_layout(int32_t i) {
  const Shape& shape = node(i)->shape;
  Layout l(shape);
  if (!add_halo(i, l) && !follow_source(i, l)) return nullptr;
  return &layouts_.insert_or_assign(i, std::move(l)).first->second;
}

// How far the loops over outputs step along an axis: the stride of a window. 1 when they don't, or differ.
static int64_t step_of(const UOp& index) {
  int64_t step = 0;
  for (const Linear::Term& t : linear_of(index).terms) {
    if (t.node.op() != Op::Range) return 1;
    if (axis_type(t.node.node()) == AxisType::Weak) step = step == 0 || step == t.factor ? t.factor : 1;
  }
  return std::max<int64_t>(step, 1);
}

// Zeros around a value that the windows of a contraction read beyond its edges; false when that does not pay.
bool Rangeify::add_halo(int32_t i, Layout& l) const {
  const Shape& shape = node(i)->shape;
  Dims before(shape.size(), 0), after(shape.size(), 0), steps(shape.size(), 0);
  bool pays = false;
  for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next) {
    const Instance& in = instances_[k];
    const auto at = index_of(in);
    for (size_t a = 0; a < shape.size(); ++a) {
      const int64_t lo = at[a].vmin(), hi = at[a].vmax();
      if (lo < -shape[a] || hi > 2 * shape[a]) return false;
      if ((lo < 0 || hi >= shape[a]) && in.gate && scopes_[in.scope].contraction) pays = true;
      before[a] = std::max(before[a], -lo);
      after[a] = std::max(after[a], hi - shape[a] + 1);
      const int64_t step = scopes_[in.scope].contraction ? step_of(at[a]) : 1;
      steps[a] = steps[a] == 0 || steps[a] == step ? step : 1;
    }
  }
  if (!pays && std::ranges::none_of(steps, [](int64_t s) { return s > 1; })) return false;
  Dims dims(shape.begin(), shape.end());
  int64_t plane_bytes = 0;
  size_t last = 0;
  for (size_t a = 0; a < shape.size(); ++a) {
    l.phases[a] = std::max<int64_t>(steps[a], 1);
    dims[a] = (dims[a] + before[a] + after[a] + l.phases[a] - 1) / l.phases[a] * l.phases[a];
    if (dims[a] > shape[a]) last = a, plane_bytes = std::max<int64_t>(plane_bytes, n_bytes(node(i)->dtype));
    plane_bytes *= dims[a] / l.phases[a];
  }
  // Planes a multiple of a page apart would meet in a few sets of the first cache.
  if (plane_bytes % 4096 == 0 && plane_bytes > 0) dims[last] += l.phases[last];
  if (Shape(dims).numel() > kMaxHalo * shape.numel()) return false;
  l.before = std::move(before);
  l.dims = std::move(dims);
  return true;
}

// The axes of an elementwise value in the order in which its largest operand has them in memory; false when that is
// row-major already.
bool Rangeify::follow_source(int32_t i, Layout& l) const {
  const Node* n = node(i);
  const size_t rank = n->shape.size();
  if (!is_elementwise(n->op) || rank < 2) return false;
  Index index;
  for (size_t a = 0; a < rank; ++a) index.push_back(n->shape[a] == 1 ? idx(0) : range(n->shape[a], static_cast<int64_t>(a), AxisType::Weak));
  for (int steps = 0;; ++steps) {
    if (steps > 64) return false;
    n = node(i);
    const bool in_memory = in_memory_[i] && steps > 0;
    if (in_memory || n->op == Op::Buffer || n->op == Op::Reduce) break;
    if (n->op == Op::Pad || n->op == Op::Unwindow || n->op == Op::Window) return false;
    if (is_view(n)) {
      index = source_index(n, index);
      i = src(i, 0);
    } else if (is_elementwise(n->op) && n->op != Op::Bitcast) {
      int32_t largest = -1;
      int64_t most = 1;
      for (const int32_t s : g_.src_of(static_cast<size_t>(i))) {
        int32_t base = s;
        while (is_view(node(base))) base = src(base, 0);
        const int64_t n_elems = node(s)->shape.empty() ? 0 : node(base)->shape.numel();
        if (n_elems > most) most = n_elems, largest = s;
      }
      if (largest < 0) return false;
      i = largest;
    } else {
      return false;
    }
  }
  if (node(i)->op == Op::After || layouts_.contains(i)) return false;
  const Linear flat = linear_of(flatten(index, node(i)->shape));
  Dims stride(rank, 0);
  for (const Linear::Term& t : flat.terms) {
    if (t.node.op() != Op::Range || t.factor <= 0) return false;
    stride[static_cast<size_t>(range_id(t.node.node()))] = t.factor;
  }
  for (size_t a = 0; a < rank; ++a)
    if (l.dims[a] > 1 && stride[a] == 0) return false;  // spread: there is no order to follow
  // An axis of size 1 stays where it is.
  for (size_t a = 0; a < rank; ++a)
    if (l.dims[a] == 1) stride[a] = a == 0 ? INT64_MAX : stride[a - 1];
  std::sort(l.order.begin(), l.order.end(), [&](int64_t a, int64_t b) {
    const int64_t x = stride[static_cast<size_t>(a)], y = stride[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  bool row_major = true;
  for (size_t a = 0; a < rank; ++a) row_major &= l.order[a] == static_cast<int64_t>(a);
  if (row_major) return false;
  int64_t joined = l.dims[static_cast<size_t>(l.order[rank - 1])];
  while (joined < kShortLoop && l.n_joined < rank) {
    const size_t next = static_cast<size_t>(l.order[rank - 1 - l.n_joined]);
    const size_t last = static_cast<size_t>(l.order[rank - l.n_joined]);
    if (stride[next] != stride[last] * l.dims[last]) break;  // the source has a gap
    joined *= l.dims[next];
    ++l.n_joined;
  }
  return true;
}

void Rangeify::count_loads(int32_t i) {
  int32_t last = -1;
  for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next) {
    const int32_t nest = instances_[k].nest;
    if (nest != last) ++nests_[nest].n_buffers;
    last = nest;
  }
}

// A state that is read after its memory was overwritten: read from a copy.
void Rangeify::copy_state(int32_t i) {
  const Shape shape{node(i)->shape.numel()};
  copies_[i] = add_buffer(VirtualBuffer::Kind::Temp, i, -1, shape[0], device_[i]);
  Index index;
  own_nest_[i] = open_nest(i, shape, index);
}

// Of a symbolic SHRINK: the loops go to the most that a size can be, which may be past the end of its source.
static UOp bounds_gate(const Node* n, std::span<const UOp> source) {
  UOp gate;
  for (size_t a = 0; n->n_src > 1 && a < source.size(); ++a)
    if (n->arg.int_at(2 * a) == -1) gate = and_gate(gate, in_range(source[a], 0, n->src()[0]->shape[a]));
  return gate;
}

Rangeify::Place Rangeify::place_of(int32_t view, int32_t base, std::span<const UOp> index) const {
  Place p{view, Index(index.begin(), index.end()), {}};
  while (p.base != base) {
    const Node* n = node(p.base);
    WHIT_CHECK(is_view(n) && n->op != Op::Pad && n->op != Op::Unwindow, "a view of memory through {}", n->op);
    Index below = source_index(n, p.index);
    // The loops go to the most that a symbolic size can be.
    for (size_t a = 0; n->op == Op::Shrink && a < below.size(); ++a)
      if (n->shape.symbol(a)) p.gate = and_gate(p.gate, in_range(p.index[a], 0, size_of(n->shape, a)));
    if (n->op == Op::Shrink) p.gate = and_gate(p.gate, bounds_gate(n, below));
    p.index = std::move(below);
    p.base = src(p.base, 0);
  }
  return p;
}

// A nest that fills memory with the value of node i, before stores into it.
void Rangeify::store_whole(int32_t i, int32_t buffer) {
  Index index;
  const int32_t nest = open_nest(i, node(i)->shape, index);
  nests_[nest].instance = want(i, nest, nests_[nest].scope, index, {});
  state_stores_.push_back({nest, buffer, -1, flatten(index, node(i)->shape), {}});
}

void Rangeify::visit_after(int32_t i) {
  const Node* n = node(i);
  count_loads(i);
  if (forced_.copied[i]) copy_state(i);
  // The buffers of the states, oldest first.
  SmallVec<int32_t, 4> states;
  for (int32_t b = out_.buffer_of[i]; states.size() + 1 < n->n_src; b = out_.buffers[b].previous) states.push_back(b);
  std::reverse(states.begin(), states.end());
  if (const int32_t x = memory_below(src(i, 0)); !is_state(x)) store_whole(x, out_.buffers[states[0]].previous);
  for (size_t d = 1; d < n->n_src; ++d) {
    const int32_t store = src(i, d), view = src(store, 0), value = src(store, 1);
    Index index;
    const int32_t nest = open_nest(value, node(view)->shape, index);
    // The view shows x, or the memory that x shows.
    int32_t base = memory_below(view);
    if (!is_state(base)) base = src(i, 0);
    const Place p = place_of(view, base, index);
    UOp flat = flat_index(p.base, p.index);
    const bool scalar = node(value)->shape.empty();
    nests_[nest].instance = want(value, nest, nests_[nest].scope, scalar ? std::span<const UOp>() : index, {});
    state_stores_.push_back({nest, states[d - 1], value, std::move(flat), p.gate});
  }
}

void Rangeify::visit_scatter(int32_t i) {
  const Node* n = node(i);
  count_loads(i);
  const int32_t at = src(i, 1), value = src(i, 2);
  const int32_t state = out_.buffer_of[i];
  store_whole(src(i, 0), out_.buffers[state].previous);
  // Rows in parallel outside, the indices in order inside.
  Index row;
  const std::span<const int64_t> dims(n->shape.begin(), n->shape.end());
  const int32_t nest = open_nest(i, Shape(dims.subspan(1)), row);
  Index where;
  for (const int64_t size : node(at)->shape) where.push_back(open_loop(nest, size, AxisType::Loop));
  const int32_t scope = nests_[nest].scope;
  const UOp index_value = loaded_index(want(at, nest, scope, where, {}), n->src()[1]->dtype);
  Index full(where.begin(), where.end());
  full.append(row.begin(), row.end());
  nests_[nest].instance = want(value, nest, scope, full, {});
  Index target{index_value};
  target.append(row.begin(), row.end());
  state_stores_.push_back({nest, state, -1, flatten(target, n->shape), in_range(index_value, 0, n->shape[0])});
  if (n->arg.as_str() == "add") scatter_adds_.push_back(nest);
}

// The value of an instance as an index, before it is known: a LOAD from a stand-in PARAM with a negative slot.
UOp Rangeify::loaded_index(int32_t instance, DType dtype) {
  const Instance& in = instances_[instance];
  const Shape& shape = node(in.node)->shape;
  const int64_t n[] = {std::max<int64_t>(1, shape.numel())};
  const UOp stand_in = param(-1 - instance, dtype, n);
  UOp l = load(index(stand_in, flatten(index_of(in), shape)));
  has_stand_ins_.push_back(in.nest);
  return cast(l, DType::WeakInt);
}

// Row-major place of an element; an AFTER has the layout of the memory that it is a state of.
UOp Rangeify::flat_index(int32_t i, std::span<const UOp> index) const {
  Place p{i, Index(index.begin(), index.end()), {}};
  while (node(p.base)->op == Op::After) {
    const int32_t x = src(p.base, 0);
    p = place_of(x, memory_below(x), p.index);
  }
  return flatten(p.index, node(p.base)->shape);
}

// The result of the relu whose condition node i is, when that has a nest of its own; else -1.
int32_t Rangeify::materialised_relu(int32_t i) const {
  const auto r = relu_of_.find(i);
  return r != relu_of_.end() && own_nest_[r->second] >= 0 ? r->second : -1;
}

UOp Rangeify::fresh_range(int32_t nest, int64_t size) { return range(size, nests_[nest].next_range++, AxisType::Reduce); }

// Asks the sources of an inlined instance for their instances.
void Rangeify::expand(int32_t k) {
  const Instance in = instances_[k];
  const Node* n = node(in.node);
  if (n->op == Op::CmpLt) {
    const int32_t r = materialised_relu(in.node);
    // Not for a condition in memory: the result reads it.
    if (r >= 0 && own_nest_[in.node] < 0 && own_nest_[r] != in.nest) {
      Instance other = in;
      other.node = r;
      const UOp l = loaded(other, out_.buffer_of[r]);
      instances_[k].own.push_back(l);
      ++nests_[in.nest].n_buffers;
      return;
    }
  }
  SmallVec<int32_t, 4> wanted;
  SmallVec<UOp, 2> own;
  const Index at(index_of(in).begin(), index_of(in).end());
  const auto ask = [&](size_t s, int32_t scope, std::span<const UOp> index, const UOp& gate) {
    const int32_t j = src(in.node, s);
    // A constant has no instances.
    wanted.push_back(node(j)->op == Op::Const ? -1 - j : want(j, in.nest, scope, node(j)->shape.empty() ? std::span<const UOp>() : index, gate));
  };
  switch (n->op) {
    case Op::Shrink: {
      const Index index = source_index(n, at);
      ask(0, in.scope, index, and_gate(in.gate, bounds_gate(n, index)));
      break;
    }
    case Op::Pad: {
      Index index;
      UOp inside;
      const auto arg = n->arg.as_ints();
      const Shape& shape = n->src()[0]->shape;
      for (size_t a = 0; a < at.size(); ++a) {
        index.push_back(n->n_src == 1 ? add_index(at[a], -arg[2 * a]) : add_index(at[a], mul_index(box_of(n, a).first.uop(), -1)));
        if (arg[2 * a] != 0 || arg[2 * a + 1] != 0) inside = and_gate(inside, in_range(index[a], 0, size_of(shape, a)));
      }
      own.push_back(inside);
      ask(0, in.scope, index, and_gate(in.gate, inside));
      break;
    }
    case Op::Reduce: {
      Index index = at;
      const bool contraction = is_contraction(g_, in.node);
      const int32_t scope = add_scope(in.scope, innermost_of(in), contraction, false);
      for (const Arg& axis : n->arg.as_list().subspan(1)) {
        const size_t a = static_cast<size_t>(axis.as_int());
        const int64_t size = n->src()[0]->shape[a];
        if (size == 1) continue;
        index[a] = fresh_range(in.nest, size);
        own.push_back(index[a]);
        scopes_[scope].ranges.push_back(index[a]);
      }
      OpenNest& nest = nests_[in.nest];
      contraction ? ++nest.n_contractions : ++nest.n_reduces;
      ask(0, scope, index, in.gate);
      break;
    }
    case Op::Unwindow: {
      // y[i] = sum over j of x[(i - j*dilation)/stride, j]
      const auto arg = n->arg.as_ints();
      const auto axis = static_cast<size_t>(arg[0]);
      const int64_t stride = arg[2], dilation = arg[3];
      const Shape& shape = n->src()[0]->shape;
      const int64_t size = shape.back(), n_out = shape[axis];
      Index index = at;
      index.push_back(UOp());
      UOp valid;
      int32_t scope = in.scope;
      if (dilation == 1 && size <= stride) {  // windows do not overlap: at most one j
        div_mod_index(at[axis], stride, index[axis], index.back());
        valid = and_gate(in_range(index.back(), 0, size), in_range(index[axis], 0, n_out));
      } else {
        const UOp j = size == 1 ? idx(0) : fresh_range(in.nest, size);
        if (size > 1) {
          scope = add_scope(in.scope, innermost_of(in), false, true);
          scopes_.back().ranges.push_back(j);
          own.push_back(j);
        }
        index.back() = j;
        const UOp shifted = add_index(at[axis], mul_index(j, -dilation));
        UOp rest;
        div_mod_index(shifted, stride, index[axis], rest);
        if (rest.vmin() != 0 || rest.vmax() != 0) valid = alu(Op::CmpEq, {rest, idx(0)});
        valid = and_gate(valid, in_range(index[axis], 0, n_out));
      }
      own.push_back(valid);
      ask(0, scope, index, and_gate(in.gate, valid));
      break;
    }
    case Op::Stack: {
      const std::span<const UOp> inner = std::span<const UOp>(at).subspan(1);
      if (at[0].is_const()) {  // outside of the sources only where the gate is false
        const int64_t last = static_cast<int64_t>(n->n_src) - 1;
        ask(static_cast<size_t>(std::clamp<int64_t>(const_int(at[0]), 0, last)), in.scope, inner, in.gate);
      } else {
        for (size_t s = 0; s < n->n_src; ++s) ask(s, in.scope, inner, in.gate);
      }
      break;
    }
    case Op::Gather: {
      const size_t rank = n->src()[1]->shape.size();
      ask(1, in.scope, std::span<const UOp>(at).subspan(0, rank), in.gate);
      const int64_t n_rows = n->src()[0]->shape[0];
      const auto near = [&](int32_t c) { return idx(std::clamp<int64_t>(const_int(UOp(node(c))), -1, n_rows)); };  // outside, not far: strides follow
      Index index{wanted[0] < 0 ? near(-1 - wanted[0]) : loaded_index(wanted[0], n->src()[1]->dtype)};
      const UOp inside = in_range(index[0], 0, n_rows);
      index.append(at.begin() + static_cast<ptrdiff_t>(rank), at.end());
      own.push_back(inside);
      ask(0, in.scope, index, and_gate(in.gate, inside));
      break;
    }
    case Op::Bitcast: expand_bitcast(n, in, at, own, ask); break;
    case Op::Lanes:
    case Op::Variable:
    case Op::Const: break;
    default:
      if (kViews.has(n->op)) {
        ask(0, in.scope, source_index(n, at), in.gate);
        break;
      }
      WHIT_USER(n->op != Op::Param, Runtime, "[realize] the value reads a PARAM, the placeholder of an argument, which has no data");
      WHIT_CHECK(is_elementwise(n->op) || n->op == Op::Contiguous || n->op == Op::Copy, "{} in a tensor graph", name(n->op));
      for (size_t s = 0; s < n->n_src; ++s) ask(s, in.scope, at, in.gate);
  }
  Instance& to = instances_[k];
  to.own = std::move(own);
  to.first_src = static_cast<uint32_t>(src_instances_.size());
  src_instances_.insert(src_instances_.end(), wanted.begin(), wanted.end());
}

template <class Ask> void Rangeify::expand_bitcast(const Node* n, const Instance& in, const Index& at, SmallVec<UOp, 2>& own, const Ask& ask) {
  const int from = n_bytes(n->src()[0]->dtype), to = n_bytes(n->dtype);
  Index index = at;
  if (from == to || at.empty()) {
    ask(0, in.scope, index, in.gate);
  } else if (from > to) {  // a part of one element
    UOp part;
    div_mod_index(at.back(), from / to, index.back(), part);
    own.push_back(part);
    ask(0, in.scope, index, in.gate);
  } else {  // several elements, the lowest first
    for (int p = 0; p < to / from; ++p) {
      index.back() = add_index(mul_index(at.back(), to / from), p);
      ask(0, in.scope, index, in.gate);
    }
  }
}

}  // namespace whit::sched
