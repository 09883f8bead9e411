// Rangeify: what is in memory for certain, instances and nests.
#include "ir/build.h"
#include "ir/eval.h"
#include "rules/linear.h"
#include "schedule/rangeify_state.h"

namespace whit::sched {

NestGraph Rangeify::run() {
  find_memory();
  costs_ = estimate_costs(g_, in_memory_, limits_.launch_ns);
  find_structure();
  find_scores();
  first_instance_.assign(g_.size(), -1);
  own_nest_.assign(g_.size(), -1);
  for (size_t i = g_.size(); i-- > 0;) visit(static_cast<int32_t>(i));
  for (size_t i = 0; i < g_.size(); ++i)
    for (int32_t k = first_instance_[i]; k >= 0; k = instances_[k].next) instances_[k].value = value_of(instances_[k]);
  emit();
  return std::move(out_);
}

int32_t Rangeify::add_buffer(VirtualBuffer::Kind kind, int32_t i, int32_t previous, int64_t n_elems, uint16_t device) {
  const int32_t id = static_cast<int32_t>(out_.buffers.size());
  const int32_t memory = kind == VirtualBuffer::Kind::State ? out_.buffers[previous].memory : id;
  const DType dtype = kind == VirtualBuffer::Kind::State ? out_.buffers[previous].dtype : node(i)->dtype;
  out_.buffers.push_back({kind, i, previous, memory, dtype, device, n_elems});
  return id;
}

// A buffer for the value of node i.
int32_t Rangeify::materialise(int32_t i) {
  int32_t& b = out_.buffer_of[i];
  if (b < 0) b = add_buffer(VirtualBuffer::Kind::Temp, i, -1, node(i)->shape.numel(), device_[i]);
  in_memory_[i] = true;
  return b;
}

// The node whose memory a chain of views shows: a BUFFER or an AFTER; x itself when there is none below.
int32_t Rangeify::memory_below(int32_t x) const {
  int32_t i = x;
  while (is_view(node(i))) i = src(i, 0);
  return is_state(i) ? i : x;
}

void Rangeify::find_memory() {
  out_.buffer_of.assign(g_.size(), -1);
  in_memory_.assign(g_.size(), false);
  for (size_t k = 0; k < g_.size(); ++k) {
    const int32_t i = static_cast<int32_t>(k);
    const Node* n = node(i);
    if (forced_.materialised[k]) materialise(i);
    switch (n->op) {
      case Op::Buffer:
        out_.buffer_of[k] = add_buffer(VirtualBuffer::Kind::Input, i, -1, n->shape.numel(), n->device);
        in_memory_[k] = true;
        break;
      case Op::Contiguous:
        if (!is_weak(n->dtype)) out_.buffers[materialise(i)].is_barrier = true;
        break;
      case Op::Copy:
        if (node(src(i, 0))->device == 0) break;  // a value without a device is computed where it is wanted
        materialise(strip_reshapes(g_, src(i, 0)));
        materialise(i);
        break;
      case Op::Scatter: {
        const int32_t base = add_buffer(VirtualBuffer::Kind::Temp, i, -1, n->shape.numel(), device_[i]);
        out_.buffer_of[k] = add_buffer(VirtualBuffer::Kind::State, i, base, n->shape.numel(), device_[i]);
        in_memory_[k] = true;
        break;
      }
      case Op::After: {
        const int32_t base = memory_below(src(i, 0));
        // A computed value is stored into in a copy of its own: others may want it as it was.
        int32_t previous = out_.buffer_of[base];
        if (!is_state(base)) previous = add_buffer(VirtualBuffer::Kind::Temp, base, -1, node(base)->shape.numel(), device_[base]);
        for (size_t d = 1; d < n->n_src; ++d) {
          WHIT_CHECK(n->src()[d]->op == Op::Store, "AFTER of {}", n->src()[d]->op);
          const VirtualBuffer& p = out_.buffers[previous];
          previous = add_buffer(VirtualBuffer::Kind::State, i, previous, p.n_elems, p.device);
        }
        out_.buffer_of[k] = previous;
        in_memory_[k] = true;
        break;
      }
      default: break;
    }
  }
  for (const UOp& r : g_.roots) {
    const int32_t i = strip_reshapes(g_, g_.index.find(r.node()));
    const int32_t b = materialise(i);
    VirtualBuffer& v = out_.buffers[b];
    VirtualBuffer& memory = out_.buffers[v.memory];
    if (memory.kind == VirtualBuffer::Kind::Temp) memory.kind = VirtualBuffer::Kind::Output;
    out_.root_buffer.push_back(b);
  }
}

void Rangeify::find_structure() {
  std::vector<uint32_t> n_users(g_.size(), 0);
  for (const int32_t s : g_.src) ++n_users[static_cast<size_t>(s)];
  over_contraction_.assign(g_.size(), 0);
  is_product_.assign(g_.size(), 0);
  for (size_t k = 0; k < g_.size(); ++k) {
    const int32_t i = static_cast<int32_t>(k);
    const Node* n = node(i);
    if (n->op == Op::Reduce) {
      over_contraction_[k] = is_contraction(g_, i);
      const int32_t product = src(i, 0);
      bool is_larger = over_contraction_[k];
      for (int32_t s : g_.src_of(static_cast<size_t>(product))) {
        while (is_view(node(s))) s = src(s, 0);
        is_larger &= node(s)->shape.numel() < node(product)->shape.numel();
      }
      is_product_[product] |= is_larger;
    } else if (is_elementwise(n->op) || is_view(n)) {
      for (const int32_t s : g_.src_of(k))
        if (n_users[static_cast<size_t>(s)] == 1 && !in_memory_[s]) over_contraction_[k] |= over_contraction_[s];
    }
    // r = WHERE(x < c, 0, x) with c > 0: then x < c exactly where r < c, so that who needs the condition can take r.
    if (n->op == Op::Where && n->src()[0]->op == Op::CmpLt) {
      const Node* c = n->src()[0];
      const UOp bound(c->src()[1]), zero(n->src()[1]);
      if (c->src()[0] == n->src()[2] && bound.is_const() && is_float(bound.dtype()) && bound.arg().to_double() > 0 && zero.is_const() &&
          zero.arg().to_double() == 0)
        relu_of_[src(i, 0)] = i;
    }
  }
}

uint32_t Rangeify::intern(std::span<const UOp> index) {
  uint64_t h = index.size();
  for (const UOp& u : index) h = hash_mix(h, reinterpret_cast<uintptr_t>(u.node()));
  auto& bucket = index_ids_[h];
  for (const uint32_t id : bucket)
    if (std::equal(index.begin(), index.end(), index_pool_[id].begin(), index_pool_[id].end())) return id;
  const uint32_t id = static_cast<uint32_t>(index_pool_.size());
  index_pool_.emplace_back(index);
  bucket.push_back(id);
  return id;
}

int32_t Rangeify::want(int32_t i, int32_t nest, int32_t scope, std::span<const UOp> index, const UOp& gate) {
  const uint32_t id = intern(index);
  // Most nodes are wanted a few times: a look at each is cheaper than a table.
  const int32_t k = static_cast<int32_t>(instances_.size());
  int32_t seen = 0;
  for (int32_t j = first_instance_[i]; j >= 0 && seen <= kFewInstances; ++seen) {
    const Instance& in = instances_[j];
    if (in.nest == nest && in.index == id && in.gate == gate) return j;
    j = in.next;
  }
  if (seen >= kFewInstances) {
    if (seen == kFewInstances)
      for (int32_t j = first_instance_[i]; j >= 0; j = instances_[j].next) {
        const Instance& in = instances_[j];
        instance_ids_.try_emplace(InstanceKey{i, in.nest, in.index, in.gate.node()}, j);
      }
    const auto [it, fresh] = instance_ids_.try_emplace(InstanceKey{i, nest, id, gate.node()}, k);
    if (!fresh) return it->second;
  }
  ++nests_[nest].n_instances;
  return add_instance(i, nest, scope, id, gate);
}

int32_t Rangeify::add_instance(int32_t i, int32_t nest, int32_t scope, uint32_t index, const UOp& gate) {
  instances_.push_back({i, nest, scope, first_instance_[i], index, 0, gate, {}, {}});
  return first_instance_[i] = static_cast<int32_t>(instances_.size()) - 1;
}

int32_t Rangeify::add_scope(int32_t parent, int64_t innermost, bool contraction, bool unwindow) {
  scopes_.push_back({parent, innermost, contraction, unwindow, {}});
  return static_cast<int32_t>(scopes_.size()) - 1;
}

int32_t Rangeify::open_nest(int32_t i, const Shape& shape, Index& index, const Layout* layout) {
  const int32_t id = static_cast<int32_t>(nests_.size());
  nests_.push_back({});
  OpenNest& nest = nests_.back();
  nest.node = i;
  nest.scope = add_scope(-1, -1, false, false);
  const Layout& l = layout ? *layout : Layout(shape);
  const auto loop = [&](int64_t size) { return open_loop(id, size, AxisType::Weak); };
  const auto phase = mapped(l.phases, loop);
  index.resize(shape.size());
  const std::span<const int64_t> order(l.order), joined = order.last(l.n_joined > 1 ? l.n_joined : 0);
  for (const int64_t axis : order.first(order.size() - joined.size())) {
    const size_t a = static_cast<size_t>(axis);
    index[a] = add_index(loop(l.dims[a] / l.phases[a]) * l.phases[a], phase[a]);
  }
  if (!joined.empty()) {
    const auto sizes = mapped(joined, [&](int64_t axis) { return l.dims[static_cast<size_t>(axis)]; });
    const Index at = unflatten(loop(Shape(sizes).numel()), sizes);
    for (size_t k = 0; k < at.size(); ++k) index[static_cast<size_t>(joined[k])] = at[k];
  }
  return id;
}

UOp Rangeify::open_loop(int32_t nest, int64_t size, AxisType type) {
  if (size == 1) return idx(0);
  OpenNest& open = nests_[nest];
  open.ranges.push_back(range(size, open.next_range++, type));
  scopes_[open.scope].ranges.push_back(open.ranges.back());
  open.n_iterations *= size;
  return open.ranges.back();
}

// Id of the innermost range that an instance's index depends on, -1 for none.
int64_t Rangeify::innermost_of(const Instance& in) const {
  int64_t innermost = -1;
  for (const UOp& u : index_of(in))
    if (const auto r = u.ranges(); !r.empty()) innermost = std::max(innermost, range_id(r.back()));
  return innermost;
}

// How often a value at this index is computed.
int64_t Rangeify::evaluations(const Instance& in) const {
  int64_t innermost = innermost_of(in);
  __int128 n = 1;
  for (int32_t k = in.scope; k >= 0;) {
    const Scope& s = scopes_[k];
    for (const UOp& r : s.ranges)
      if (range_id(r.node()) <= innermost) n = std::min<__int128>(n * range_size(r.node()), INT64_MAX);
    innermost = std::min(innermost, s.innermost);
    k = s.parent;
  }
  return static_cast<int64_t>(n);
}

NestGraph rangeify(const Graph& graph, const Forced& forced, const RangeifyLimits& limits, uint16_t default_device) {
  return Rangeify(graph, forced, limits, default_device).run();
}

int32_t strip_reshapes(const Graph& graph, int32_t node) {
  while (graph.nodes[static_cast<size_t>(node)]->op == Op::Reshape) node = graph.src_of(static_cast<size_t>(node))[0];
  return node;
}

}  // namespace whit::sched
