#include "schedule/rangeify.h"

#include <algorithm>
#include <unordered_map>

#include "base/flags.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "rules/linear.h"
#include "schedule/cost.h"
#include "schedule/index.h"

namespace whit::sched {
namespace {

// The loops that are open where a value is wanted: those of the nest, then of reduces from outside in.
struct Scope {
  int32_t parent;     // -1: the nest itself
  int64_t innermost;  // the reduce runs once for each value of the parent's ranges up to this id
  bool contraction, unwindow;
  SmallVec<UOp, 4> ranges{};
};

// A node wanted at an index.
struct Instance {
  int32_t node, nest, scope;
  int32_t next;            // of the same node
  uint32_t index;          // in the pool
  uint32_t first_src;      // in src_instances_
  UOp gate{};              // null: always
  SmallVec<UOp, 2> own{};  // REDUCE, UNWINDOW: its ranges; PAD, GATHER, UNWINDOW: then the condition of the value
  UOp value{};
};

struct OpenNest {
  int32_t node;  // what it computes
  int32_t instance = -1;
  int64_t n_iterations = 1;
  int64_t next_range = 0;
  int n_instances = 0, n_buffers = 0, n_reduces = 0, n_contractions = 0;  // reduces: without those of UNWINDOW
  int32_t scope = -1;
  std::vector<UOp> ranges{};
  UOp store_index{}, inside{};  // with a halo: where the value goes, and where it is not zero
};

// Where the elements of a temporary lie. Row-major, unless: there are zeros around it, so that windows that reach over
// its edge need no gate; or its axes are ordered as what it is computed from lies, so that it is one pass over memory.
struct Layout {
  Dims before{}, dims{};  // by axis
  Dims order{};           // memory axis -> axis

  // Row-major place in memory; `at` is the index by axis, from the edge of the halo.
  UOp flat(std::span<const UOp> at) const {
    Index ordered;
    Dims sizes;
    for (const int64_t a : order) {
      ordered.push_back(at[static_cast<size_t>(a)]);
      sizes.push_back(dims[static_cast<size_t>(a)]);
    }
    return flatten(ordered, sizes);
  }
};

struct StateStore {
  int32_t nest, buffer, value_node;
  UOp index{}, gate{};
};

class Rangeify {
 public:
  Rangeify(const Graph& graph, const Forced& forced, const RangeifyLimits& limits, uint16_t default_device)
      : g_(graph), forced_(forced), limits_(limits), default_device_(default_device) {}

  NestGraph run() {
    find_memory();
    costs_ = estimate_costs(g_, in_memory_, limits_.launch_ns);
    find_structure();
    first_instance_.assign(g_.size(), -1);
    own_nest_.assign(g_.size(), -1);
    for (size_t i = g_.size(); i-- > 0;) visit(static_cast<int32_t>(i));
    for (size_t i = 0; i < g_.size(); ++i)
      for (int32_t k = first_instance_[i]; k >= 0; k = instances_[static_cast<size_t>(k)].next)
        instances_[static_cast<size_t>(k)].value = value_of(instances_[static_cast<size_t>(k)]);
    emit();
    return std::move(out_);
  }

 private:
  const Node* node(int32_t i) const { return g_.nodes[static_cast<size_t>(i)]; }
  int32_t src(int32_t i, size_t k) const { return g_.src_of(static_cast<size_t>(i))[k]; }
  uint16_t device_of(int32_t i) const { return node(i)->device ? node(i)->device : default_device_; }

  // ---- what is in memory for certain

  int32_t add_buffer(VirtualBuffer::Kind kind, int32_t i, int32_t previous, int64_t n_elems, uint16_t device) {
    const int32_t id = static_cast<int32_t>(out_.buffers.size());
    const int32_t memory = kind == VirtualBuffer::Kind::State ? out_.buffers[static_cast<size_t>(previous)].memory : id;
    const DType dtype =
        kind == VirtualBuffer::Kind::State ? out_.buffers[static_cast<size_t>(previous)].dtype : node(i)->dtype;
    out_.buffers.push_back({kind, i, previous, memory, dtype, device, n_elems});
    return id;
  }

  // A buffer for the value of node i.
  int32_t materialise(int32_t i) {
    int32_t& b = out_.buffer_of[static_cast<size_t>(i)];
    if (b < 0) b = add_buffer(VirtualBuffer::Kind::Temp, i, -1, node(i)->shape.numel(), device_of(i));
    in_memory_[static_cast<size_t>(i)] = true;
    return b;
  }

  static bool is_view(const Node* n) { return is_movement(n->op) && n->op != Op::Stack; }

  bool is_state(int32_t i) const { return node(i)->op == Op::Buffer || node(i)->op == Op::After; }

  // The node whose memory a chain of views shows: a BUFFER or an AFTER; x itself when there is none below.
  int32_t memory_below(int32_t x) const {
    int32_t i = x;
    while (is_view(node(i))) i = src(i, 0);
    return is_state(i) ? i : x;
  }

  void find_memory() {
    out_.buffer_of.assign(g_.size(), -1);
    in_memory_.assign(g_.size(), false);
    for (size_t k = 0; k < g_.size(); ++k) {
      const int32_t i = static_cast<int32_t>(k);
      const Node* n = node(i);
      if (!forced_.materialised.empty() && forced_.materialised[k]) materialise(i);
      switch (n->op) {
        case Op::Buffer:
          out_.buffer_of[k] = add_buffer(VirtualBuffer::Kind::Input, i, -1, n->shape.numel(), n->device);
          in_memory_[k] = true;
          break;
        case Op::Contiguous:
          if (!is_weak(n->dtype)) out_.buffers[static_cast<size_t>(materialise(i))].is_barrier = true;
          break;
        case Op::Copy:
          if (node(src(i, 0))->device == 0) break;  // a value without a device is computed where it is wanted
          materialise(strip_reshapes(g_, src(i, 0)));
          materialise(i);
          break;
        case Op::Scatter: {
          const int32_t base = add_buffer(VirtualBuffer::Kind::Temp, i, -1, n->shape.numel(), device_of(i));
          out_.buffer_of[k] = add_buffer(VirtualBuffer::Kind::State, i, base, n->shape.numel(), device_of(i));
          in_memory_[k] = true;
          break;
        }
        case Op::After: {
          const int32_t base = memory_below(src(i, 0));
          // A computed value is stored into in a copy of its own: others may want it as it was.
          int32_t previous = out_.buffer_of[static_cast<size_t>(base)];
          if (!is_state(base))
            previous = add_buffer(VirtualBuffer::Kind::Temp, base, -1, node(base)->shape.numel(), device_of(base));
          for (size_t d = 1; d < n->n_src; ++d) {
            WHIT_CHECK(n->src()[d]->op == Op::Store, "AFTER of {}", name(n->src()[d]->op));
            const VirtualBuffer& p = out_.buffers[static_cast<size_t>(previous)];
            previous = add_buffer(VirtualBuffer::Kind::State, i, previous, p.n_elems, p.device);
          }
          out_.buffer_of[k] = previous;
          in_memory_[k] = true;
          break;
        }
        default:
          break;
      }
    }
    for (const UOp& r : g_.roots) {
      const int32_t i = strip_reshapes(g_, g_.index.find(r.node()));
      const int32_t b = materialise(i);
      VirtualBuffer& v = out_.buffers[static_cast<size_t>(b)];
      VirtualBuffer& memory = out_.buffers[static_cast<size_t>(v.memory)];
      if (memory.kind == VirtualBuffer::Kind::Temp) memory.kind = VirtualBuffer::Kind::Output;
      out_.root_buffer.push_back(b);
    }
  }

  void find_structure() {
    std::vector<uint32_t> n_users(g_.size(), 0);
    for (const int32_t s : g_.src) ++n_users[static_cast<size_t>(s)];
    over_contraction_.assign(g_.size(), 0);
    for (size_t k = 0; k < g_.size(); ++k) {
      const int32_t i = static_cast<int32_t>(k);
      const Node* n = node(i);
      if (n->op == Op::Reduce) {
        over_contraction_[k] = is_contraction(g_, i);
      } else if (is_elementwise(n->op) || is_view(n)) {
        for (const int32_t s : g_.src_of(k))
          if (n_users[static_cast<size_t>(s)] == 1 && !in_memory_[static_cast<size_t>(s)])
            over_contraction_[k] |= over_contraction_[static_cast<size_t>(s)];
      }
      // r = WHERE(x < c, 0, x) with c > 0: then x < c exactly where r < c, so that who needs the condition can take r.
      if (n->op == Op::Where && n->src()[0]->op == Op::CmpLt) {
        const Node* c = n->src()[0];
        const UOp bound(c->src()[1]), zero(n->src()[1]);
        if (c->src()[0] == n->src()[2] && bound.is_const() && is_float(bound.dtype()) && bound.arg().to_double() > 0 &&
            zero.is_const() && zero.arg().to_double() == 0)
          relu_of_[src(i, 0)] = i;
      }
    }
  }

  // ---- instances

  uint32_t intern(std::span<const UOp> index) {
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

  struct InstanceKey {
    int32_t node, nest;
    uint32_t index;
    const Node* gate;
    bool operator==(const InstanceKey&) const = default;
  };
  struct InstanceKeyHash {
    size_t operator()(const InstanceKey& k) const {
      return hash_mix(
          hash_mix(static_cast<uint64_t>(static_cast<uint32_t>(k.node)) << 32 | static_cast<uint32_t>(k.nest), k.index),
          reinterpret_cast<uintptr_t>(k.gate));
    }
  };

  int32_t want(int32_t i, int32_t nest, int32_t scope, std::span<const UOp> index, const UOp& gate) {
    const uint32_t id = intern(index);
    // Most nodes are wanted a few times: a look at each is cheaper than a table.
    const int32_t k = static_cast<int32_t>(instances_.size());
    int32_t seen = 0;
    for (int32_t j = first_instance_[static_cast<size_t>(i)]; j >= 0 && seen <= kFewInstances; ++seen) {
      const Instance& in = instances_[static_cast<size_t>(j)];
      if (in.nest == nest && in.index == id && in.gate == gate) return j;
      j = in.next;
    }
    if (seen >= kFewInstances) {
      if (seen == kFewInstances)
        for (int32_t j = first_instance_[static_cast<size_t>(i)]; j >= 0; j = instances_[static_cast<size_t>(j)].next) {
          const Instance& in = instances_[static_cast<size_t>(j)];
          instance_ids_.try_emplace(InstanceKey{i, in.nest, in.index, in.gate.node()}, j);
        }
      const auto [it, fresh] = instance_ids_.try_emplace(InstanceKey{i, nest, id, gate.node()}, k);
      if (!fresh) return it->second;
    }
    instances_.push_back({i, nest, scope, first_instance_[static_cast<size_t>(i)], id, 0, gate, {}, {}});
    first_instance_[static_cast<size_t>(i)] = k;
    ++nests_[static_cast<size_t>(nest)].n_instances;
    return k;
  }
  std::span<const UOp> index_of(const Instance& in) const { return index_pool_[in.index]; }

  int32_t add_scope(int32_t parent, int64_t innermost, bool contraction, bool unwindow) {
    scopes_.push_back({parent, innermost, contraction, unwindow, {}});
    return static_cast<int32_t>(scopes_.size()) - 1;
  }

  int32_t open_nest(int32_t i, const Shape& shape, Index& index, const Layout* layout = nullptr) {
    const int32_t id = static_cast<int32_t>(nests_.size());
    nests_.push_back({});
    OpenNest& nest = nests_.back();
    nest.node = i;
    index.resize(shape.size());
    for (size_t k = 0; k < shape.size(); ++k) {
      const size_t a = layout ? static_cast<size_t>(layout->order[k]) : k;
      const int64_t size = layout ? layout->dims[a] : shape[a];
      if (size == 1) {
        index[a] = idx(0);
        continue;
      }
      index[a] = range(size, nest.next_range++, AxisType::Weak);
      nest.ranges.push_back(index[a]);
      nest.n_iterations *= size;
    }
    nest.scope = add_scope(-1, -1, false, false);
    scopes_.back().ranges.append(nest.ranges.begin(), nest.ranges.end());
    return id;
  }

  // Id of the innermost range that an instance's index depends on, -1 for none.
  int64_t innermost_of(const Instance& in) const {
    int64_t innermost = -1;
    for (const UOp& u : index_of(in))
      if (const auto r = u.ranges(); !r.empty()) innermost = std::max(innermost, range_id(r.back()));
    return innermost;
  }

  // How often a value at this index is computed.
  int64_t evaluations(const Instance& in) const {
    int64_t innermost = innermost_of(in);
    __int128 n = 1;
    for (int32_t k = in.scope; k >= 0;) {
      const Scope& s = scopes_[static_cast<size_t>(k)];
      for (const UOp& r : s.ranges)
        if (range_id(r.node()) <= innermost) n = std::min<__int128>(n * range_size(r.node()), INT64_MAX);
      innermost = std::min(innermost, s.innermost);
      k = s.parent;
    }
    return static_cast<int64_t>(n);
  }

  // ---- decisions

  struct Demand {
    double evaluations = 0;
    int n_instances = 0;
    bool one_nest = true;
    const Instance* first = nullptr;
  };
  Demand demand_of(int32_t i) const {
    Demand d;
    for (int32_t k = first_instance_[static_cast<size_t>(i)]; k >= 0; k = instances_[static_cast<size_t>(k)].next) {
      const Instance& in = instances_[static_cast<size_t>(k)];
      d.evaluations += static_cast<double>(evaluations(in));
      ++d.n_instances;
      if (d.first && d.first->nest != in.nest) d.one_nest = false;
      d.first = &in;
    }
    return d;
  }

  bool should_materialise(int32_t i) {
    const Node* n = node(i);
    if (n->dtype == DType::Void || n->shape.numel() <= 0 || is_weak(n->dtype)) return false;
    const Demand d = demand_of(i);
    if (d.n_instances == 0) return false;
    const double n_elems = static_cast<double>(n->shape.numel());
    const OpenNest& nest = nests_[static_cast<size_t>(d.first->nest)];
    if (n->op == Op::Reduce) return should_materialise_reduce(i, d, n_elems);
    if (n->op == Op::Pad) {
      // Under a contraction a padded copy keeps gates out of the inner loop. What is computed below without a
      // contraction is stored with a halo instead.
      int32_t base = src(i, 0);
      while (is_view(node(base))) base = src(base, 0);
      const size_t b = static_cast<size_t>(base);
      if (is_elementwise(node(base)->op) && !in_memory_[b] && !over_contraction_[b]) return false;
      return d.first->scope != nest.scope && scopes_[static_cast<size_t>(d.first->scope)].contraction &&
             d.evaluations >= 4 * n_elems;
    }
    if (n->op == Op::Unwindow) {
      // A convolution's data gradient gets a kernel of its own where another reduce is in the nest already: a contraction
      // is fast only by itself.
      const bool outermost = !scopes_[static_cast<size_t>(d.first->scope)].unwindow;
      if (outermost && nest.n_reduces + nest.n_contractions > 0 && is_unwindowed_contraction(i)) return true;
      return d.evaluations > 1.5 * n_elems && d.evaluations > 10000;
    }
    if (is_movement(n->op) && n->op != Op::Stack) return false;
    const Cost& c = costs_[static_cast<size_t>(i)];
    if (n->op == Op::Lanes || n->op == Op::Const || n->op == Op::Variable) return false;
    if (n->op == Op::CmpLt && materialised_relu(i) >= 0) return false;  // one load and a comparison
    if (c.n_loads + (c.own_ns > 0.01) > 1 || c.n_nodes > limits_.max_nodes) {
      if (nest.n_instances > limits_.max_nodes) return true;
      if (nest.n_buffers >= limits_.max_buffers - 3 && c.n_loads > 1) return true;
    }
    if (d.evaluations <= n_elems) return false;
    // The load that reads it from memory instead is saved.
    const double cost = c.ns + std::max(0.0F, c.load_ns - 0.25F);
    return (d.evaluations - n_elems) * cost >
           limits_.launch_ns + n_elems * (d.one_nest ? kStoreLoadSameNestNs : kStoreLoadNs);
  }

  bool is_unwindowed_contraction(int32_t i) const {
    while (is_movement(node(i)->op) && node(i)->op != Op::Stack) i = src(i, 0);
    return node(i)->op == Op::Reduce && is_contraction(g_, i);
  }

  bool should_materialise_reduce(int32_t i, const Demand& d, double n_elems) {
    const int32_t body = src(i, 0);
    const bool contraction = is_contraction(g_, i);
    const OpenNest& nest = nests_[static_cast<size_t>(d.first->nest)];
    const Scope& scope = scopes_[static_cast<size_t>(d.first->scope)];
    const double n_reduced = static_cast<double>(node(body)->shape.numel()) / n_elems;
    if (nest.n_instances > limits_.max_nodes) return true;
    const double cost =
        n_reduced * (costs_[static_cast<size_t>(body)].ns + 0.1 + 0.15 * costs_[static_cast<size_t>(body)].n_loads);
    if (contraction) {
      if (d.n_instances > 1) return true;
      if (scope.unwindow && nest.n_contractions + nest.n_reduces == 0) return d.evaluations > 2 * n_elems;
      return d.first->scope != nest.scope || d.evaluations > n_elems || nest.n_contractions + nest.n_reduces > 0;
    }
    if (d.n_instances > 1 || d.evaluations > n_elems) {
      if (d.n_instances > 4 || nest.n_contractions > 0) return true;
      return (d.evaluations - n_elems) * cost > limits_.launch_ns;
    }
    // Beside a contraction there is no other reduce, now or later.
    const bool beside = nest.node != i && over_contraction_[static_cast<size_t>(nest.node)];
    if ((nest.n_contractions > 0 || beside) && d.first->scope == nest.scope) return true;
    if (scopes_[static_cast<size_t>(d.first->scope)].contraction) return true;
    // Few rows: each would be reduced by one thread.
    const bool epilogue = static_cast<double>(nest.n_iterations) <= n_elems;
    return !epilogue && n_elems < 16 && n_elems * cost > 4 * limits_.launch_ns;
  }

  // ---- backward

  void visit(int32_t i) {
    const size_t k = static_cast<size_t>(i);
    const Node* n = node(i);
    if (n->op == Op::After) return visit_after(i);
    if (n->op == Op::Buffer) {
      count_loads(i);
      if (!forced_.copied.empty() && forced_.copied[k]) copy_state(i);
      return;
    }
    if (n->op == Op::Scatter) return visit_scatter(i);
    const bool was_in_memory = in_memory_[k];
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
        out_.buffers[static_cast<size_t>(out_.buffer_of[k])].n_elems = Shape(layout->dims).numel();
        nests_[static_cast<size_t>(nest)].store_index = layout->flat(index);
        for (size_t a = 0; a < index.size(); ++a) {
          index[a] = add_index(index[a], -layout->before[a]);
          inside = and_gate(inside, in_range(index[a], 0, n->shape[a]));
        }
        nests_[static_cast<size_t>(nest)].inside = inside;
      }
      const int32_t own = push_own(i, nest, index, inside);
      nests_[static_cast<size_t>(nest)].instance = own;
      expand(own);
      return;
    }
    for (int32_t in = first_instance_[k]; in >= 0; in = instances_[static_cast<size_t>(in)].next) expand(in);
  }

  // The instance in which a materialised node is computed. It is not found by want(): users load.
  int32_t push_own(int32_t i, int32_t nest, std::span<const UOp> index, const UOp& gate) {
    const int32_t k = static_cast<int32_t>(instances_.size());
    int32_t& first = first_instance_[static_cast<size_t>(i)];
    instances_.push_back({i, nest, nests_[static_cast<size_t>(nest)].scope, first, intern(index), 0, gate, {}, {}});
    first = k;
    return k;
  }

  // Null for row-major.
  const Layout* find_layout(int32_t i) {
    const Shape& shape = node(i)->shape;
    Layout l{Dims(shape.size(), 0), Dims(shape.begin(), shape.end()), {}};
    if (!add_halo(i, l) && !follow_source(i, l)) return nullptr;
    if (l.order.empty())
      for (size_t a = 0; a < shape.size(); ++a) l.order.push_back(static_cast<int64_t>(a));
    return &(layouts_[i] = std::move(l));
  }

  // Zeros around a value that the windows of a contraction read beyond its edges; false when that does not pay.
  bool add_halo(int32_t i, Layout& l) const {
    const Shape& shape = node(i)->shape;
    Dims before(shape.size(), 0), after(shape.size(), 0);
    bool pays = false;
    for (int32_t k = first_instance_[static_cast<size_t>(i)]; k >= 0; k = instances_[static_cast<size_t>(k)].next) {
      const Instance& in = instances_[static_cast<size_t>(k)];
      const auto at = index_of(in);
      for (size_t a = 0; a < shape.size(); ++a) {
        const int64_t lo = at[a].vmin(), hi = at[a].vmax();
        if (lo < -shape[a] || hi > 2 * shape[a]) return false;
        if ((lo < 0 || hi >= shape[a]) && in.gate && scopes_[static_cast<size_t>(in.scope)].contraction) pays = true;
        before[a] = std::max(before[a], -lo);
        after[a] = std::max(after[a], hi - shape[a] + 1);
      }
    }
    if (!pays) return false;
    Dims dims(shape.begin(), shape.end());
    for (size_t a = 0; a < shape.size(); ++a) dims[a] += before[a] + after[a];
    if (Shape(dims).numel() > kMaxHalo * shape.numel()) return false;
    l.before = std::move(before);
    l.dims = std::move(dims);
    return true;
  }

  // The axes of an elementwise value in the order in which its largest operand has them in memory; false when that is
  // row-major already.
  bool follow_source(int32_t i, Layout& l) const {
    const Node* n = node(i);
    const size_t rank = n->shape.size();
    if (!is_elementwise(n->op) || rank < 2) return false;
    Index index;
    for (size_t a = 0; a < rank; ++a)
      index.push_back(n->shape[a] == 1 ? idx(0) : range(n->shape[a], static_cast<int64_t>(a), AxisType::Weak));
    for (int steps = 0;; ++steps) {
      if (steps > 64) return false;
      n = node(i);
      const bool in_memory = in_memory_[static_cast<size_t>(i)] && steps > 0;
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
    for (size_t a = 0; a < rank; ++a) {
      if (l.dims[a] > 1 && stride[a] == 0) return false;  // spread: there is no order to follow
      l.order.push_back(static_cast<int64_t>(a));
    }
    // An axis of size 1 stays where it is.
    for (size_t a = 0; a < rank; ++a)
      if (l.dims[a] == 1) stride[a] = a == 0 ? INT64_MAX : stride[a - 1];
    std::stable_sort(l.order.begin(), l.order.end(), [&](int64_t a, int64_t b) {
      return stride[static_cast<size_t>(a)] > stride[static_cast<size_t>(b)];
    });
    for (size_t a = 0; a < rank; ++a)
      if (l.order[a] != static_cast<int64_t>(a)) return true;
    return false;
  }

  void count_loads(int32_t i) {
    int32_t last = -1;
    for (int32_t k = first_instance_[static_cast<size_t>(i)]; k >= 0; k = instances_[static_cast<size_t>(k)].next) {
      const int32_t nest = instances_[static_cast<size_t>(k)].nest;
      if (nest != last) ++nests_[static_cast<size_t>(nest)].n_buffers;
      last = nest;
    }
  }

  // A state that is read after its memory was overwritten: read from a copy.
  void copy_state(int32_t i) {
    const Shape shape{node(i)->shape.numel()};
    copies_[i] = add_buffer(VirtualBuffer::Kind::Temp, i, -1, shape[0], device_of(i));
    out_.buffers.back().dtype = node(i)->dtype;
    Index index;
    const int32_t nest = open_nest(i, shape, index);
    own_nest_[static_cast<size_t>(i)] = nest;
  }

  // The element of the memory below a chain of views.
  struct Place {
    int32_t base;
    Index index{};
    UOp gate{};
  };
  Place place_of(int32_t view, int32_t base, std::span<const UOp> index) const {
    Place p{view, Index(index.begin(), index.end()), {}};
    while (p.base != base) {
      const Node* n = node(p.base);
      WHIT_CHECK(is_view(n) && n->op != Op::Pad && n->op != Op::Unwindow, "a view of memory through {}", name(n->op));
      p.index = source_index(n, p.index);
      p.base = src(p.base, 0);
    }
    return p;
  }

  void visit_after(int32_t i) {
    const Node* n = node(i);
    count_loads(i);
    if (!forced_.copied.empty() && forced_.copied[static_cast<size_t>(i)]) copy_state(i);
    // The buffers of the states, oldest first.
    SmallVec<int32_t, 4> states;
    for (int32_t b = out_.buffer_of[static_cast<size_t>(i)]; states.size() + 1 < n->n_src;
         b = out_.buffers[static_cast<size_t>(b)].previous)
      states.push_back(b);
    std::reverse(states.begin(), states.end());
    if (const int32_t x = memory_below(src(i, 0)); !is_state(x)) {
      Index index;
      const int32_t nest = open_nest(x, node(x)->shape, index);
      nests_[static_cast<size_t>(nest)].instance = want(x, nest, nests_[static_cast<size_t>(nest)].scope, index, {});
      state_stores_.push_back(
          {nest, out_.buffers[static_cast<size_t>(states[0])].previous, -1, flatten(index, node(x)->shape), {}});
    }
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
      nests_[static_cast<size_t>(nest)].instance =
          want(value, nest, nests_[static_cast<size_t>(nest)].scope, scalar ? std::span<const UOp>() : index, {});
      state_stores_.push_back({nest, states[d - 1], value, std::move(flat), {}});
    }
  }

  void visit_scatter(int32_t i) {
    const Node* n = node(i);
    count_loads(i);
    const int32_t x = src(i, 0), at = src(i, 1), value = src(i, 2);
    const int32_t state = out_.buffer_of[static_cast<size_t>(i)];
    const int32_t base = out_.buffers[static_cast<size_t>(state)].previous;
    {
      Index index;
      const int32_t nest = open_nest(x, n->shape, index);
      nests_[static_cast<size_t>(nest)].instance = want(x, nest, nests_[static_cast<size_t>(nest)].scope, index, {});
      state_stores_.push_back({nest, base, -1, flatten(index, n->shape), {}});
    }
    // Rows in parallel outside, the indices in order inside.
    Index row;
    const std::span<const int64_t> dims(n->shape.begin(), n->shape.end());
    const int32_t nest = open_nest(i, Shape(dims.subspan(1)), row);
    OpenNest& open = nests_[static_cast<size_t>(nest)];
    Index where;
    for (const int64_t size : node(at)->shape) {
      where.push_back(size == 1 ? idx(0) : range(size, open.next_range++, AxisType::Loop));
      if (size != 1) {
        open.ranges.push_back(where.back());
        scopes_[static_cast<size_t>(open.scope)].ranges.push_back(where.back());
        open.n_iterations *= size;
      }
    }
    const int32_t scope = open.scope;
    const UOp index_value = loaded_index(want(at, nest, scope, where, {}), n->src()[1]->dtype);
    Index full(where.begin(), where.end());
    full.append(row.begin(), row.end());
    nests_[static_cast<size_t>(nest)].instance = want(value, nest, scope, full, {});
    Index target{index_value};
    target.append(row.begin(), row.end());
    state_stores_.push_back({nest, state, -1, flatten(target, n->shape), in_range(index_value, 0, n->shape[0])});
    if (n->arg.as_str() == "add") scatter_adds_.push_back(nest);
  }

  // The value of an instance as an index, before it is known: a LOAD from a stand-in PARAM with a negative slot.
  UOp loaded_index(int32_t instance, DType dtype) {
    const Instance& in = instances_[static_cast<size_t>(instance)];
    const Shape& shape = node(in.node)->shape;
    const int64_t n[] = {std::max<int64_t>(1, shape.numel())};
    const UOp stand_in = param(-1 - instance, dtype, n);
    UOp l = load(index(stand_in, flatten(index_of(in), shape)));
    has_stand_ins_.push_back(in.nest);
    return cast(l, DType::WeakInt);
  }

  // Row-major place of an element; an AFTER has the layout of the memory that it is a state of.
  UOp flat_index(int32_t i, std::span<const UOp> index) const {
    Place p{i, Index(index.begin(), index.end()), {}};
    while (node(p.base)->op == Op::After) {
      const int32_t x = src(p.base, 0);
      p = place_of(x, memory_below(x), p.index);
    }
    return flatten(p.index, node(p.base)->shape);
  }

  // The result of the relu whose condition node i is, when that has a nest of its own; else -1.
  int32_t materialised_relu(int32_t i) const {
    const auto r = relu_of_.find(i);
    return r != relu_of_.end() && own_nest_[static_cast<size_t>(r->second)] >= 0 ? r->second : -1;
  }

  UOp fresh_range(int32_t nest, int64_t size) {
    return range(size, nests_[static_cast<size_t>(nest)].next_range++, AxisType::Reduce);
  }

  // Asks the sources of an inlined instance for their instances.
  void expand(int32_t k) {
    const Instance in = instances_[static_cast<size_t>(k)];
    const Node* n = node(in.node);
    if (n->op == Op::CmpLt) {
      const int32_t r = materialised_relu(in.node);
      // Not for a condition in memory: the result reads it.
      if (r >= 0 && own_nest_[static_cast<size_t>(in.node)] < 0 && own_nest_[static_cast<size_t>(r)] != in.nest) {
        Instance other = in;
        other.node = r;
        const UOp l = loaded(other, out_.buffer_of[static_cast<size_t>(r)]);
        instances_[static_cast<size_t>(k)].own.push_back(l);
        ++nests_[static_cast<size_t>(in.nest)].n_buffers;
        return;
      }
    }
    SmallVec<int32_t, 4> wanted;
    SmallVec<UOp, 2> own;
    const Index at(index_of(in).begin(), index_of(in).end());
    const auto ask = [&](size_t s, int32_t scope, std::span<const UOp> index, const UOp& gate) {
      const int32_t j = src(in.node, s);
      // A constant has no instances.
      wanted.push_back(node(j)->op == Op::Const
                           ? -1 - j
                           : want(j, in.nest, scope, node(j)->shape.empty() ? std::span<const UOp>() : index, gate));
    };
    switch (n->op) {
      case Op::Reshape:
      case Op::Expand:
      case Op::Permute:
      case Op::Shrink:
      case Op::Flip:
      case Op::Window:
        ask(0, in.scope, source_index(n, at), in.gate);
        break;
      case Op::Pad: {
        Index index;
        UOp inside;
        const auto arg = n->arg.as_ints();
        const Shape& shape = n->src()[0]->shape;
        for (size_t a = 0; a < at.size(); ++a) {
          index.push_back(add_index(at[a], -arg[2 * a]));
          if (arg[2 * a] != 0 || arg[2 * a + 1] != 0) inside = and_gate(inside, in_range(index[a], 0, shape[a]));
        }
        own.push_back(inside);
        ask(0, in.scope, index, and_gate(in.gate, inside));
        break;
      }
      case Op::Reduce: {
        Index index = at;
        const bool contraction = is_contraction(g_, in.node);
        const int32_t scope = add_scope(in.scope, innermost_of(in), contraction, false);
        const auto arg = n->arg.as_list();
        SmallVec<bool, 8> reduced(at.size(), false);
        for (size_t a = 1; a < arg.size(); ++a) reduced[static_cast<size_t>(arg[a].as_int())] = true;
        for (size_t a = 0; a < at.size(); ++a) {
          const int64_t size = n->src()[0]->shape[a];
          if (!reduced[a] || size == 1) continue;
          index[a] = fresh_range(in.nest, size);
          own.push_back(index[a]);
          scopes_[static_cast<size_t>(scope)].ranges.push_back(index[a]);
        }
        OpenNest& nest = nests_[static_cast<size_t>(in.nest)];
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
        Index index;
        UOp inside;
        const int64_t n_rows = n->src()[0]->shape[0];
        if (wanted[0] < 0) {
          index.push_back(idx(const_int(UOp(node(-1 - wanted[0])))));
        } else {
          index.push_back(loaded_index(wanted[0], n->src()[1]->dtype));
        }
        inside = in_range(index[0], 0, n_rows);
        index.append(at.begin() + static_cast<ptrdiff_t>(rank), at.end());
        own.push_back(inside);
        ask(0, in.scope, index, and_gate(in.gate, inside));
        break;
      }
      case Op::Bitcast:
        expand_bitcast(n, in, at, own, ask);
        break;
      case Op::Lanes:
      case Op::Variable:
      case Op::Const:
        break;
      default:
        WHIT_CHECK(is_elementwise(n->op) || n->op == Op::Contiguous || n->op == Op::Copy, "{} in a tensor graph",
                   name(n->op));
        for (size_t s = 0; s < n->n_src; ++s) ask(s, in.scope, at, in.gate);
    }
    Instance& to = instances_[static_cast<size_t>(k)];
    to.own = std::move(own);
    to.first_src = static_cast<uint32_t>(src_instances_.size());
    src_instances_.insert(src_instances_.end(), wanted.begin(), wanted.end());
  }

  template <class Ask>
  void expand_bitcast(const Node* n, const Instance& in, const Index& at, SmallVec<UOp, 2>& own, const Ask& ask) {
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

  // ---- forward

  UOp source_value(const Instance& in, size_t s) const {
    const int32_t k = src_instances_[in.first_src + s];
    return k < 0 ? UOp(node(-1 - k)) : instances_[static_cast<size_t>(k)].value;
  }

  UOp load_from(int32_t buffer, const UOp& flat, const UOp& gate) const {
    const VirtualBuffer& b = out_.buffers[static_cast<size_t>(buffer)];
    const int64_t n[] = {b.n_elems};
    return load(index(param(buffer, b.dtype, n), flat, gate));
  }

  UOp loaded(const Instance& in, int32_t buffer) {
    const Node* n = node(in.node);
    const auto at = index_of(in);
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
  bool is_zero_outside(const Node* x, const UOp& inside) const {
    while (x->op == Op::Cast) x = x->src()[0];
    if (x->op == Op::Const) return !x->arg.is_invalid() && scalar_of(UOp(x)).as_double() == 0;
    if (x->op == Op::Mul && is_float(x->dtype))
      return is_halo_load(x->src()[0], inside) || is_halo_load(x->src()[1], inside);
    if (x->op != Op::Load) return false;
    return (x->src()[0]->n_src > 2 && gate_implies(UOp(x->src()[0]->src()[2]), inside)) || is_halo_load(x, inside);
  }
  bool is_halo_load(const Node* x, const UOp& inside) const {
    while (x->op == Op::Cast) x = x->src()[0];
    const auto it = zero_where_not_.find(x);
    return it != zero_where_not_.end() && gate_implies(it->second, inside);
  }

  // x where `inside` holds, else 0.
  UOp zero_outside(const UOp& x, const UOp& inside) const {
    if (!inside || is_zero_outside(x.node(), inside)) return x;
    return where(inside, x, constant(x.dtype(), 0));
  }

  UOp value_of(const Instance& in) {
    const Node* n = node(in.node);
    const int32_t buffer = out_.buffer_of[static_cast<size_t>(in.node)];
    const int32_t own = own_nest_[static_cast<size_t>(in.node)];
    const bool computed_here =
        own >= 0 && nests_[static_cast<size_t>(own)].instance == static_cast<int32_t>(&in - instances_.data());
    if (buffer >= 0 && !computed_here) return loaded(in, buffer);
    const auto at = index_of(in);
    switch (n->op) {
      case Op::Const:
        return UOp(n);
      case Op::Variable:
        return UOp(n);
      case Op::Lanes:
        return cast(at[0], n->dtype);
      case Op::Reshape:
      case Op::Expand:
      case Op::Permute:
      case Op::Shrink:
      case Op::Flip:
      case Op::Window:
      case Op::Contiguous:
      case Op::Copy:
        return source_value(in, 0);
      case Op::Pad:
        return zero_outside(source_value(in, 0), in.own[0]);
      case Op::Gather:
        return zero_outside(source_value(in, 1), in.own[0]);
      case Op::Reduce:
        return reduce_value(source_value(in, 0), n->arg.at(0).as_str(), in.own);
      case Op::Unwindow: {
        const UOp x = source_value(in, 0), inside = in.own.back();
        if (in.own.size() == 1) return zero_outside(x, inside);
        const UOp j[] = {in.own[0]};
        if (!inside || !is_sum(x)) return reduce_value(zero_outside(x, inside), "add", j);
        // The condition goes inside of the sum, so that there is one sum.
        SmallVec<UOp, 6> all(j, j + 1);
        for (size_t r = 1; r < x.n_src(); ++r) all.push_back(x.src(r));
        return reduce(zero_outside(x.src(0), inside), "add", all);
      }
      case Op::Stack: {
        if (at[0].is_const()) return source_value(in, 0);
        UOp v = source_value(in, n->n_src - 1);
        for (size_t s = n->n_src - 1; s-- > 0;)
          v = where(lt(at[0], static_cast<int64_t>(s) + 1), source_value(in, s), v);
        return v;
      }
      case Op::Bitcast:
        return bitcast_value(n, in);
      case Op::CmpLt:
        if (!in.own.empty()) return lt(in.own[0], UOp(n->src()[1]));
        [[fallthrough]];
      default: {
        SmallVec<UOp, 3> s;
        for (size_t k = 0; k < n->n_src; ++k) s.push_back(source_value(in, k));
        return UOp::make(n->op, n->dtype, std::span<const UOp>(s), n->arg);
      }
    }
  }

  // A reduce of a reduce is one reduce.
  static UOp reduce_value(const UOp& x, std::string_view monoid, std::span<const UOp> ranges) {
    if (ranges.empty()) return x;
    if (x.op() != Op::Reduce || x.arg().at(0).as_str() != monoid) return reduce(x, monoid, ranges);
    SmallVec<UOp, 6> all(ranges.begin(), ranges.end());
    for (size_t i = 1; i < x.n_src(); ++i) all.push_back(x.src(i));
    return reduce(x.src(0), monoid, all);
  }

  static bool is_sum(const UOp& x) { return x.op() == Op::Reduce && x.arg().at(0).as_str() == "add"; }

  static DType uint_of(int n) {
    return n == 1 ? DType::UInt8 : n == 2 ? DType::UInt16 : n == 4 ? DType::UInt32 : DType::UInt64;
  }
  static UOp bits_as(const UOp& x, DType dtype) { return x.dtype() == dtype ? x : UOp::make(Op::Bitcast, dtype, {x}); }

  UOp bitcast_value(const Node* n, const Instance& in) const {
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

  // ---- the nests

  void emit() {
    // State stores name their nests; others compute the node of their nest.
    std::vector<char> is_state(nests_.size(), 0);
    for (const StateStore& s : state_stores_) is_state[static_cast<size_t>(s.nest)] = 1;
    std::vector<int32_t> place(nests_.size(), -1);
    const auto add = [&](int32_t id) -> Nest& {
      place[static_cast<size_t>(id)] = static_cast<int32_t>(out_.nests.size());
      out_.nests.emplace_back();
      Nest& nest = out_.nests.back();
      nest.ranges = nests_[static_cast<size_t>(id)].ranges;
      return nest;
    };
    // Sources were visited last, so nests in reverse are in order; copies between devices are put after their source.
    std::vector<int32_t> copies;
    for (size_t i = 0; i < g_.size(); ++i)
      if (own_nest_[i] == kCopyNest) copies.push_back(static_cast<int32_t>(i));
    for (size_t k = nests_.size(); k-- > 0;) {
      const int32_t id = static_cast<int32_t>(k);
      const OpenNest& open = nests_[k];
      if (is_state[k]) {
        add(id);
        continue;
      }
      Nest& nest = add(id);
      const auto copy = copies_.find(open.node);
      if (copy != copies_.end()) {
        const Index at(open.ranges.begin(), open.ranges.end());
        const UOp flat = at.empty() ? idx(0) : at[0];
        nest.stores.push_back(
            {copy->second, flat, {}, load_from(out_.buffer_of[static_cast<size_t>(open.node)], flat, {})});
        continue;
      }
      const Instance& in = instances_[static_cast<size_t>(open.instance)];
      nest.stores.push_back({out_.buffer_of[static_cast<size_t>(open.node)],
                             open.store_index ? open.store_index : flatten(index_of(in), node(open.node)->shape),
                             {},
                             zero_outside(in.value, open.inside)});
    }
    for (const StateStore& s : state_stores_) {
      Nest& nest = out_.nests[static_cast<size_t>(place[static_cast<size_t>(s.nest)])];
      const OpenNest& open = nests_[static_cast<size_t>(s.nest)];
      UOp value = instances_[static_cast<size_t>(open.instance)].value;
      if (std::find(scatter_adds_.begin(), scatter_adds_.end(), s.nest) != scatter_adds_.end())
        value = load_from(out_.buffers[static_cast<size_t>(s.buffer)].previous, s.index, s.gate) + value;
      nest.stores.push_back({s.buffer, s.index, s.gate, value});
      nest.store_node = s.value_node;
    }
    replace_stand_ins(place);
    for (const int32_t i : copies) {
      Nest nest;
      nest.is_copy = true;
      nest.copy_from = out_.buffer_of[static_cast<size_t>(strip_reshapes(g_, src(i, 0)))];
      nest.stores.push_back({out_.buffer_of[static_cast<size_t>(i)], {}, {}, {}});
      out_.nests.push_back(std::move(nest));
    }
    for (Nest& nest : out_.nests) describe(nest);
  }

  // Indices that are values: stand-ins become the values, which may hold further stand-ins.
  void replace_stand_ins(std::span<const int32_t> place) {
    std::sort(has_stand_ins_.begin(), has_stand_ins_.end());
    has_stand_ins_.erase(std::unique(has_stand_ins_.begin(), has_stand_ins_.end()), has_stand_ins_.end());
    for (const int32_t id : has_stand_ins_) {
      Nest& nest = out_.nests[static_cast<size_t>(place[static_cast<size_t>(id)])];
      for (NestStore& s : nest.stores) {
        for (bool again = true; again;) {
          again = false;
          const UOp all[] = {s.index, s.value, s.gate ? s.gate : s.index};
          std::unordered_map<const Node*, UOp> map;
          for (const Node* n : toposort(all))
            if (n->op == Op::Load && n->src()[0]->src()[0]->op == Op::Param) {
              const int64_t slot = n->src()[0]->src()[0]->arg.int_at(0);
              if (slot < 0) map.emplace(n, instances_[static_cast<size_t>(-1 - slot)].value);
            }
          if (map.empty()) break;
          again = true;
          s.index = substitute(s.index, map);
          s.value = substitute(s.value, map);
          if (s.gate) s.gate = substitute(s.gate, map);
        }
      }
    }
  }

  // What a nest reads, where it runs.
  void describe(Nest& nest) {
    const VirtualBuffer& target = out_.buffers[static_cast<size_t>(nest.stores[0].buffer)];
    nest.device = target.device;
    if (nest.is_copy) {
      nest.reads = {nest.copy_from};
      return;
    }
    describe_nest(nest);
    for (const int32_t r : nest.reads) {
      const uint16_t d = out_.buffers[static_cast<size_t>(r)].device;
      WHIT_USER(d == nest.device, Runtime,
                "[schedule] one kernel cannot read memory of {} and write memory of {}; copy it first with .to()",
                device_name(d), device_name(nest.device));
    }
  }

  static constexpr int32_t kCopyNest = -2, kFewInstances = 6;
  static constexpr int64_t kMaxHalo = 3;  // times the elements

  const Graph& g_;
  const Forced& forced_;
  const RangeifyLimits& limits_;
  const uint16_t default_device_;
  NestGraph out_{};
  std::vector<char> in_memory_{};
  std::vector<Cost> costs_{};
  std::vector<int32_t> first_instance_{}, own_nest_{};
  std::vector<Instance> instances_{};
  std::vector<int32_t> src_instances_{};
  std::vector<OpenNest> nests_{};
  std::vector<Scope> scopes_{};
  std::vector<StateStore> state_stores_{};
  std::vector<int32_t> scatter_adds_{}, has_stand_ins_{};
  std::unordered_map<int32_t, int32_t> copies_{};
  std::vector<char> over_contraction_{};            // by node: elementwise over one that nobody else uses
  std::unordered_map<int32_t, int32_t> relu_of_{};  // condition -> WHERE
  std::unordered_map<int32_t, Layout> layouts_{};
  std::unordered_map<const Node*, UOp> zero_where_not_{};  // loads from halos
  std::vector<Index> index_pool_{};
  std::unordered_map<uint64_t, SmallVec<uint32_t, 1>> index_ids_{};
  std::unordered_map<InstanceKey, int32_t, InstanceKeyHash> instance_ids_{};
};

}  // namespace

NestGraph rangeify(const Graph& graph, const Forced& forced, const RangeifyLimits& limits, uint16_t default_device) {
  return Rangeify(graph, forced, limits, default_device).run();
}

int32_t strip_reshapes(const Graph& graph, int32_t node) {
  while (graph.nodes[static_cast<size_t>(node)]->op == Op::Reshape) node = graph.src_of(static_cast<size_t>(node))[0];
  return node;
}

}  // namespace whit::sched
