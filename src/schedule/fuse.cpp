// Fusion of kernels, after rangeify decided what is materialised.
//
// How it works. Nests start their ranges at 0, so nests over equal loops have the same RANGE nodes, and "reads element by
// element what the other one writes" means: loads it at the very INDEX that the other one stores to. Three passes:
//   1. a nest joins the one that reads its result at its own index; the load becomes the value, and when nobody else
//      reads the buffer its store goes too;
//   2. nests over equal loops that read the same buffer at the same index join, so that it is read once: elementwise
//      ones, and reduces over equal ranges (sums of dy and of dy*x);
//   3. small nests that depend on each other in no way share a launch (updates of parameters).
//
// Requirements: (1) no cycle: pass 1 and 2 search for a path through a third kernel, within a budget, and give up beyond
// it; pass 3 joins only kernels of one level (longest distance from the end), between which there is no path;
// (2) stores of a nest are ordered so that what overwrites memory comes after all that read its old content, and such
// reads are at the index of the store.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "ir/build.h"
#include "schedule/kernels.h"

namespace whit::sched {
namespace {

constexpr size_t kPathBudget = 512;  // kernels that a search for a path finds
// Iterations of nests that may share a launch. Temporaries that are made together live together, so only small ones are.
constexpr int64_t kSmallUpdate = 1 << 18, kSmallReduce = 1 << 15, kSmallTemp = 1 << 14;
constexpr size_t kMaxNests = 16;

class Fuser {
 public:
  Fuser(const NestGraph& graph, std::vector<Kernel>& kernels, const RangeifyLimits& limits)
      : g_(graph),
        kernels_(kernels),
        limits_(limits),
        d_(find_dependencies(graph, kernels)),
        into_(kernels.size()),
        has_next_(graph.buffers.size()),
        seen_(kernels.size()) {
    for (const VirtualBuffer& b : graph.buffers)
      if (b.previous >= 0) has_next_[b.previous] = 1;
    std::iota(into_.begin(), into_.end(), 0);
  }

  void run() {
    for (size_t k = 0; k < kernels_.size(); ++k) join_with_reader(static_cast<int32_t>(k));
    for (size_t b = 0; b < d_.readers.size(); ++b) join_readers(b);
    join_small();
    std::vector<Kernel> left;
    for (size_t k = 0; k < kernels_.size(); ++k)
      if (into_[k] == static_cast<int32_t>(k)) left.push_back(std::move(kernels_[k]));
    kernels_ = std::move(left);
  }

 private:
  Kernel& kernel(int32_t k) { return kernels_[static_cast<size_t>(k)]; }
  Nest& nest(int32_t k) { return kernel(k).nests[0]; }
  int32_t find(int32_t k) {
    while (into_[k] != k) {
      into_[k] = into_[into_[k]];
      k = into_[k];
    }
    return k;
  }
  bool plain(int32_t k) { return !kernel(k).is_copy() && kernel(k).nests.size() == 1 && !nest(k).has_loop; }

  // Is there a way from a to b that is not the direct edge? When in doubt: yes.
  bool has_detour(int32_t a, int32_t b) {
    std::vector<int32_t> work{a};
    seen_[a] = ++stamp_;
    for (size_t i = 0; i < work.size(); ++i) {
      const int32_t k = work[i];
      if (k == b || work.size() > kPathBudget + 1) return true;
      for (const int32_t s : d_.after[k])
        if (const int32_t r = find(s); seen_[r] != stamp_ && (k != a || r != b)) {
          seen_[r] = stamp_;
          work.push_back(r);
        }
    }
    return false;
  }

  static bool elementwise(const Nest& n) { return !n.has_reduce && !n.has_loop; }

  // All loads of `buffer` in `n`; false when one is elsewhere than at `index` or has a gate.
  static bool loads_at(const Nest& n, int32_t buffer, const UOp& index, std::vector<const Node*>& loads) {
    for (const Node* u : toposort(roots_of(n))) {
      if (u->op != Op::Load || u->src()[0]->src()[0]->op != Op::Param) continue;
      const Node* at = u->src()[0];
      if (at->src()[0]->arg.int_at(0) != buffer) continue;
      if (at->n_src > 2 || at->src()[1] != index.node()) return false;
      loads.push_back(u);
    }
    return true;
  }

  int64_t memory_of(int32_t buffer) const { return g_.buffers[buffer].memory; }

  // Orders the stores of a nest by requirement (2); false when that cannot be.
  bool order_stores(Nest& n) const {
    const size_t count = n.stores.size();
    std::vector<std::vector<int64_t>> reads(count);  // memory that store i's value reads
    const auto written = mapped(n.stores, [&](const NestStore& s) { return memory_of(s.buffer); });
    for (size_t i = 0; i < count; ++i) {
      const UOp roots[] = {n.stores[i].value, n.stores[i].index};
      for (const Node* u : toposort(roots)) {
        if (u->op != Op::Index || u->src()[0]->op != Op::Param) continue;
        const int64_t m = memory_of(static_cast<int32_t>(u->src()[0]->arg.int_at(0)));
        for (size_t j = 0; j < count; ++j)
          if (written[j] == m && (u->src()[1] != n.stores[j].index.node() || n.stores[j].gate)) return false;
        reads[i].push_back(m);
      }
    }
    for (size_t i = 0; i < count; ++i)
      for (size_t j = i + 1; j < count; ++j)
        if (written[i] == written[j]) return false;
    std::vector<NestStore> sorted;
    std::vector<char> done(count, 0);
    while (sorted.size() < count) {
      const size_t n_before = sorted.size();
      for (size_t j = 0; j < count; ++j) {
        if (done[j]) continue;
        bool free = true;  // nobody that is still to come reads what j overwrites
        for (size_t i = 0; i < count && free; ++i)
          free = done[i] || i == j || std::find(reads[i].begin(), reads[i].end(), written[j]) == reads[i].end();
        if (!free) continue;
        sorted.push_back(n.stores[j]);
        done[j] = 1;
      }
      if (sorted.size() == n_before) return false;
    }
    n.stores = std::move(sorted);
    return true;
  }

  void merge_into(int32_t from, int32_t to) {
    into_[from] = to;
    auto& a = d_.after[to];
    const auto& b = d_.after[from];
    a.insert(a.end(), b.begin(), b.end());
    for (int32_t& s : a) s = find(s);
    sort_unique(a);
  }

  // Kernel `to` becomes `joined`, if its stores can be ordered.
  bool merge_into(int32_t from, int32_t to, Nest joined) {
    if (!order_stores(joined)) return false;
    joined.store_node = -1;
    describe_nest(joined);
    nest(to) = std::move(joined);
    merge_into(from, to);
    return true;
  }

  // Pass 1.
  void join_with_reader(int32_t k) {
    if (into_[k] != k || !plain(k)) return;
    // Buffers are looked at by value: joining moves the nest away.
    std::vector<int32_t> buffers;
    for (const NestStore& s : nest(k).stores) {
      if (g_.buffers[s.buffer].is_barrier) return;
      buffers.push_back(s.buffer);
    }
    for (const int32_t b : buffers) {
      int tried = 0;
      for (const int32_t r : d_.readers[b]) {
        const int32_t c = find(r);
        if (c == k || !plain(c) || kernel(c).device() != kernel(k).device() || nest(c).ranges != nest(k).ranges) continue;
        if (nest(c).has_reduce && nest(k).has_reduce) continue;
        if (++tried > 4) break;
        if (try_join(k, c)) return;
      }
    }
  }

  bool try_join(int32_t k, int32_t c) {
    const Nest& a = nest(k);
    if (!fit(kernel(k).nests, nest(c))) return false;
    std::unordered_map<const Node*, UOp> map;
    for (const NestStore& s : a.stores) {
      std::vector<const Node*> loads;
      if (!loads_at(nest(c), s.buffer, s.index, loads) || (!loads.empty() && s.gate)) return false;
      for (const Node* l : loads) map.emplace(l, s.value);
    }
    if (has_detour(k, c)) return false;
    Nest joined = nest(c);
    for (NestStore& s : joined.stores) s.replace(map);
    for (const NestStore& s : a.stores) {
      const VirtualBuffer& v = g_.buffers[s.buffer];
      const bool others = std::ranges::any_of(d_.readers[s.buffer], [&](int32_t r) { return find(r) != c && find(r) != k; });
      if (v.kind == VirtualBuffer::Kind::Temp && !has_next_[s.buffer] && !others) continue;
      joined.stores.push_back(s);
    }
    return merge_into(k, c, std::move(joined));
  }

  // Does a load of `buffer` stand in both, at the same index, under all loops of a reduce?
  static bool share_reduced_load(const Nest& a, const Nest& b, int32_t buffer) {
    const auto loads = [&](const Nest& n) {
      std::vector<const Node*> found;
      for (const Node* u : toposort(mapped(n.stores, &NestStore::value)))
        if (u->op == Op::Index && u->src()[0]->op == Op::Param && u->src()[0]->arg.int_at(0) == buffer) found.push_back(u);
      return found;
    };
    const auto la = loads(a), lb = loads(b);
    for (const Node* u : la) {
      if (std::find(lb.begin(), lb.end(), u) == lb.end() || !u->range_set) continue;
      __int128 n = 1;
      for (const Node* r : u->range_set->nodes) n *= range_size(r);
      if (n == a.n_iterations && n == b.n_iterations) return true;
    }
    return false;
  }

  // Pass 2.
  void join_readers(size_t buffer) {
    int32_t last = -1;
    std::vector<int32_t> readers = mapped(d_.readers[buffer], [&](int32_t r) { return find(r); });
    sort_unique(readers);
    if (readers.size() > 64) return;
    for (const int32_t k : readers) {
      if (!plain(k) || nest(k).has_contraction) continue;
      if (last >= 0 && nest(last).has_reduce == nest(k).has_reduce &&
          (!nest(k).has_reduce || share_reduced_load(nest(last), nest(k), static_cast<int32_t>(buffer))) && nest(last).ranges == nest(k).ranges &&
          kernel(last).device() == kernel(k).device() && fit(kernel(last).nests, nest(k)) && !has_detour(last, k) && !has_detour(k, last) &&
          !direct(last, k) && !direct(k, last)) {
        Nest joined = nest(k);
        const Nest& a = nest(last);
        joined.stores.insert(joined.stores.end(), a.stores.begin(), a.stores.end());
        merge_into(last, k, std::move(joined));
      }
      last = k;
    }
  }
  bool direct(int32_t a, int32_t b) {
    return std::ranges::any_of(d_.after[a], [&](int32_t s) { return find(s) == b; });
  }

  // Pass 3.
  void join_small() {
    Numbered<int32_t> level(kernels_.size(), 0), n_left(kernels_.size(), 0), work;
    Numbered<std::vector<int32_t>> before(kernels_.size());
    for (size_t k = 0; k < kernels_.size(); ++k) {
      if (into_[k] != static_cast<int32_t>(k)) continue;
      for (const int32_t s : d_.after[k]) {
        const int32_t r = find(s);
        if (r == static_cast<int32_t>(k)) continue;
        before[r].push_back(static_cast<int32_t>(k));
        ++n_left[k];
      }
      if (n_left[k] == 0) work.push_back(static_cast<int32_t>(k));
    }
    for (size_t i = 0; i < work.size(); ++i) {
      const int32_t k = work[i];
      for (const int32_t p : before[k]) {
        int32_t& l = level[p];
        l = std::max(l, level[k] + 1);
        if (--n_left[p] == 0) work.push_back(p);
      }
    }
    // Level, device and whether it waits for nothing -> the kernel that is being filled. What waits for nothing may be needed early.
    std::unordered_map<int64_t, int32_t> open;
    for (size_t i = kernels_.size(); i-- > 0;) {
      const int32_t k = static_cast<int32_t>(i);
      if (into_[i] != k || kernel(k).is_copy()) continue;
      const auto is_temp = [&](const NestStore& s) { return g_.buffers[memory_of(s.buffer)].kind == VirtualBuffer::Kind::Temp; };
      const bool makes_temp = std::ranges::any_of(nest(k).stores, is_temp);
      const int64_t most = makes_temp ? kSmallTemp : nest(k).has_reduce ? kSmallReduce : kSmallUpdate;
      if (nest(k).has_loop || nest(k).n_iterations > most) continue;
      const int64_t key = (static_cast<int64_t>(level[i]) << 1 | before[i].empty()) << 16 | kernel(k).device();
      const auto [it, fresh] = open.try_emplace(key, k);
      if (fresh) continue;
      Kernel& to = kernel(it->second);
      if (to.nests.size() >= kMaxNests || !fit(to.nests, nest(k))) {
        it->second = k;
        continue;
      }
      to.nests.push_back(nest(k));
      merge_into(k, it->second);
    }
  }
  // Few enough nodes and buffers for one kernel?
  bool fit(std::span<const Nest> some, const Nest& more) const {
    std::vector<int64_t> memory;
    int32_t n_nodes = 0;
    const auto add = [&](const Nest& n) {
      for (const int32_t r : n.reads) memory.push_back(memory_of(r));
      for (const NestStore& s : n.stores) memory.push_back(memory_of(s.buffer));
      n_nodes += n.n_nodes;
    };
    add(more);
    for (const Nest& n : some) add(n);
    sort_unique(memory);
    return n_nodes <= limits_.max_nodes && std::ssize(memory) <= limits_.max_buffers;
  }

  const NestGraph& g_;
  std::vector<Kernel>& kernels_;
  const RangeifyLimits& limits_;
  Dependencies d_;
  Numbered<int32_t> into_;
  Numbered<char> has_next_;
  Numbered<uint32_t> seen_;  // by kernel: the search that met it last
  uint32_t stamp_ = 0;
};

}  // namespace

void fuse_kernels(const NestGraph& graph, std::vector<Kernel>& kernels, const RangeifyLimits& limits) { Fuser(graph, kernels, limits).run(); }

}  // namespace whit::sched
