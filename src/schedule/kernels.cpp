#include "schedule/kernels.h"

#include <set>

#include "ir/build.h"
#include "ir/remake.h"
#include "rules/rules.h"

namespace whit::sched {
namespace {

// A sum of products whose factors each lack a range of the product.
bool is_contraction_value(const Node* reduce) {
  const Node* m = reduce->src()[0];
  while (m->op == Op::Cast) m = m->src()[0];
  if (m->op != Op::Mul || reduce->arg.at(0).as_str() != "add" || !m->range_set) return false;
  const auto lacks = [&](const Node* x) { return !x->range_set || x->range_set->nodes.size() < m->range_set->nodes.size(); };
  return lacks(m->src()[0]) && lacks(m->src()[1]);
}

}  // namespace

void NestStore::replace(const std::unordered_map<const Node*, UOp>& map) {
  index = substitute(index, map);
  value = substitute(value, map);
  if (gate) gate = substitute(gate, map);
}

std::vector<UOp> roots_of(const Nest& nest) {
  std::vector<UOp> roots;
  for (const NestStore& s : nest.stores) {
    roots.push_back(s.index);
    if (s.gate) roots.push_back(s.gate);
    roots.push_back(s.value);
  }
  return roots;
}

void describe_nest(Nest& nest) {
  nest.reads.clear();
  nest.has_reduce = nest.has_contraction = false;
  nest.n_iterations = 1;
  const auto iterations = [&](std::span<const Node* const> ranges) {
    __int128 t = 1;
    for (const Node* r : ranges) t = std::min<__int128>(t * range_size(r), INT64_MAX);
    nest.n_iterations = std::max(nest.n_iterations, static_cast<int64_t>(t));
  };
  const NodeList nodes = toposort(roots_of(nest));
  nest.n_nodes = static_cast<int32_t>(nodes.size());
  for (const Node* n : nodes) {
    if (n->op == Op::Param) nest.reads.push_back(static_cast<int32_t>(n->arg.int_at(0)));
    if (n->op == Op::Reduce) {
      nest.has_reduce = true;
      nest.has_contraction |= is_contraction_value(n);
      iterations(UOp(n->src()[0]).ranges());
    }
  }
  iterations(mapped(nest.ranges, &UOp::node));
  nest.has_loop = std::ranges::any_of(nest.ranges, [](const UOp& r) { return axis_type(r.node()) == AxisType::Loop; });
  sort_unique(nest.reads);
}

std::vector<Kernel> single_kernels(NestGraph& graph) {
  std::vector<Kernel> kernels;
  kernels.reserve(graph.nests.size());
  for (Nest& nest : graph.nests) kernels.emplace_back().nests.push_back(std::move(nest));
  graph.nests.clear();
  return kernels;
}

Dependencies find_dependencies(const NestGraph& graph, const std::vector<Kernel>& kernels) {
  Dependencies d;
  const size_t n = graph.buffers.size();
  d.writer.assign(n, -1);
  d.readers.assign(n, {});
  d.after.assign(kernels.size(), {});
  for (size_t k = 0; k < kernels.size(); ++k)
    for (const Nest& nest : kernels[k].nests) {
      for (const NestStore& s : nest.stores) d.writer[s.buffer] = static_cast<int32_t>(k);
      for (const int32_t r : nest.reads) d.readers[r].push_back(static_cast<int32_t>(k));
    }
  for (auto& r : d.readers) sort_unique(r);
  const auto edge = [&](int32_t from, int32_t to) {
    if (from >= 0 && to >= 0 && from != to) d.after[from].push_back(to);
  };
  for (size_t b = 0; b < n; ++b) {
    for (const int32_t r : d.readers[b]) edge(d.writer[b], r);
    const int32_t p = graph.buffers[b].previous;
    if (p < 0) continue;
    edge(d.writer[p], d.writer[b]);
    for (const int32_t r : d.readers[p]) edge(r, d.writer[b]);
  }
  for (auto& a : d.after) sort_unique(a);
  return d;
}

std::vector<int32_t> find_hazards(const NestGraph& graph) {
  std::vector<int32_t> out;
  for (const Nest& nest : graph.nests) {
    if (nest.store_node < 0) continue;
    for (const NestStore& s : nest.stores) {
      const auto is_target = [&](int64_t buffer) { return graph.buffers[buffer].memory == graph.buffers[s.buffer].memory; };
      const auto is_elsewhere = [&](const Node* n) {
        return n->op == Op::Index && n->src()[0]->op == Op::Param && is_target(n->src()[0]->arg.int_at(0)) && n->src()[1] != s.index.node();
      };
      if (std::ranges::any_of(nest.reads, is_target) && std::ranges::any_of(toposort(roots_of(nest)), is_elsewhere)) out.push_back(nest.store_node);
    }
  }
  sort_unique(out);
  return out;
}

namespace {

// The kernels that can run, one by one: `next` picks which of those that are ready does. Not those of a cycle, nor after it.
template <class Next> std::vector<int32_t> in_order(const Dependencies& d, const Next& next) {
  Numbered<int32_t> n_before(d.after.size(), 0);
  for (const auto& a : d.after)
    for (const int32_t k : a) ++n_before[k];
  std::set<int32_t> ready;
  for (size_t k = 0; k < n_before.size(); ++k)
    if (n_before[k] == 0) ready.insert(static_cast<int32_t>(k));
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const auto at = next(ready);
    order.push_back(*at);
    ready.erase(at);
    for (const int32_t a : d.after[order.back()])
      if (--n_before[a] == 0) ready.insert(a);
  }
  return order;
}

// Bytes of temporaries that are alive at once, kernel by kernel.
class LiveBytes {
 public:
  LiveBytes(const NestGraph& graph, const std::vector<Kernel>& kernels) : touched_(kernels.size()) {
    n_left_.assign(graph.buffers.size(), 0);
    n_bytes_.assign(graph.buffers.size(), 0);
    for (size_t k = 0; k < kernels.size(); ++k) {
      auto& t = touched_[k];
      const auto touch = [&](int32_t buffer) {
        const int32_t m = graph.buffers[buffer].memory;
        const VirtualBuffer& v = graph.buffers[m];
        if (v.kind != VirtualBuffer::Kind::Temp) return;
        n_bytes_[m] = v.n_elems * n_bytes(v.dtype);
        t.push_back(m);
      };
      for (const Nest& nest : kernels[k].nests) {
        for (const NestStore& s : nest.stores) touch(s.buffer);
        for (const int32_t r : nest.reads) touch(r);
      }
      sort_unique(t);
      for (const int32_t m : t) ++n_left_[m];
    }
    n_uses_ = n_left_;
  }
  // How the live bytes change when kernel k runs now.
  int64_t change(int32_t k) const {
    int64_t n = 0;
    for (const int32_t m : touched_[k]) {
      if (n_left_[m] == n_uses_[m]) n += n_bytes_[m];
      if (n_left_[m] == 1) n -= n_bytes_[m];
    }
    return n;
  }
  void run(int32_t k) {
    int64_t freed = 0;
    for (const int32_t m : touched_[k]) {
      if (n_left_[m] == n_uses_[m]) live_ += n_bytes_[m];
      if (--n_left_[m] == 0) freed += n_bytes_[m];
    }
    peak_ = std::max(peak_, live_);
    live_ -= freed;
  }
  int64_t peak() const { return peak_; }

 private:
  Numbered<std::vector<int32_t>> touched_;
  Numbered<int64_t> n_bytes_{};
  Numbered<int32_t> n_left_{}, n_uses_{};
  int64_t live_ = 0, peak_ = 0;
};

constexpr size_t kMostToReorder = 3000;

// Another order if that lowers the peak: always the kernel next that leaves the least alive, or the order given but for
// kernels that leave no more alive than there was, which run as soon as they can.
void lower_peak(const NestGraph& graph, const std::vector<Kernel>& kernels, const Dependencies& d, std::vector<int32_t>& order) {
  if (order.size() > kMostToReorder) return;
  LiveBytes given(graph, kernels);
  for (const int32_t k : order) given.run(k);
  int64_t peak = given.peak();
  for (const int64_t most : {INT64_MAX, int64_t{1}}) {
    LiveBytes other(graph, kernels);
    std::vector<int32_t> better = in_order(d, [&](const std::set<int32_t>& ready) {
      const auto next = std::ranges::min_element(ready, {}, [&](int32_t k) { return std::pair(std::min(other.change(k), most), k); });
      other.run(*next);
      return next;
    });
    if (other.peak() >= peak) continue;
    peak = other.peak();
    order = std::move(better);
  }
}

}  // namespace

std::vector<int32_t> order_kernels(const NestGraph& graph, const std::vector<Kernel>& kernels, std::vector<int32_t>& copied) {
  const Dependencies d = find_dependencies(graph, kernels);
  std::vector<int32_t> order = in_order(d, [](const std::set<int32_t>& ready) { return ready.begin(); });
  if (order.size() == kernels.size()) {
    lower_peak(graph, kernels, d, order);
    return order;
  }
  // A cycle: somebody reads a state and must also run after the store that ends it.
  const std::set<int32_t> done(order.begin(), order.end());
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const int32_t p = graph.buffers[b].previous, t = d.writer[b];
    if (p < 0 || t < 0 || done.contains(t)) continue;
    for (const int32_t r : d.readers[p])
      if (r != t && !done.contains(r)) copied.push_back(graph.buffers[p].node);
  }
  sort_unique(copied);
  WHIT_CHECK(!copied.empty(), "a cycle of {} kernels without a store", kernels.size() - order.size());
  return {};
}

namespace {

std::string kernel_name(const Kernel& kernel) {
  std::string name;
  const Nest& first = kernel.nests[0];
  name = first.has_loop ? "s" : first.has_reduce ? "r" : "e";
  const auto size = [&](const Node* r) {
    name += '_';
    name += std::to_string(range_size(r));
  };
  for (const UOp& r : first.ranges) size(r.node());
  int n_named = 0;
  for (const Node* n : toposort(roots_of(first)))
    if (n->op == Op::Range && axis_type(n) == AxisType::Reduce && ++n_named <= 4) size(n);
  if (first.ranges.empty() && n_named == 0) name += "_1";
  if (kernel.nests.size() > 1) name += "_n" + std::to_string(kernel.nests.size());
  return name;
}

}  // namespace

void finish_kernel(const NestGraph& graph, Kernel& kernel) {
  kernel.args.clear();
  if (kernel.is_copy()) {
    const Nest& nest = kernel.nests[0];
    kernel.args = {graph.buffers[nest.stores[0].buffer].memory, graph.buffers[nest.copy_from].memory};
    return;
  }
  std::vector<UOp> params;
  const auto slot_of = [&](int32_t buffer) -> UOp {
    const VirtualBuffer& b = graph.buffers[graph.buffers[buffer].memory];
    for (size_t i = 0; i < kernel.args.size(); ++i)
      if (kernel.args[i] == b.memory) return params[i];
    const int64_t n[] = {b.n_elems};
    params.push_back(param(static_cast<int64_t>(kernel.args.size()), b.dtype, n));
    kernel.args.push_back(b.memory);
    return params.back();
  };
  for (const Nest& nest : kernel.nests)
    for (const NestStore& s : nest.stores) slot_of(s.buffer);
  std::vector<UOp> ends;
  int64_t next_range = 0;
  for (const Nest& nest : kernel.nests) {
    Remade made;
    std::vector<UOp> ranges;
    const auto add_range = [&](const Node* n) {
      made.set(n, range(range_size(n), next_range++, axis_type(n)));
      return made.of(n);
    };
    for (const UOp& r : nest.ranges) ranges.push_back(add_range(r.node()));
    for (const Node* n : toposort(roots_of(nest))) {
      if (n->op == Op::Param) made.set(n, slot_of(static_cast<int32_t>(n->arg.int_at(0))));
      else if (n->op != Op::Range) made.update(n);
      else if (!made.has(n)) add_range(n);
    }
    for (const NestStore& s : nest.stores) {
      const UOp gate = s.gate ? made.of(s.gate.node()) : UOp();
      const UOp at = index(slot_of(s.buffer), made.of(s.index.node()), gate);
      ends.push_back(end(store(at, made.of(s.value.node())), ranges));
    }
  }
  kernel.sink = simplify(UOp::make(Op::Sink, DType::Void, ends, Arg::list({Arg(kernel_name(kernel))})));
}

}  // namespace whit::sched
