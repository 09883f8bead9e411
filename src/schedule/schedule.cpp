// How it works. The graph is prepared (graph.h) and its structure is hashed with BUFFERs numbered in order of their
// first use: that is the cache key. On a miss: nests (rangeify.h), kernels (kernels.h), order, memory plan. Two things
// are found out only at the end, and then the decision is made again with more in memory: a store whose value reads its
// own target at other places, and a state that is read after its memory had to be overwritten.
#include "schedule/schedule.h"

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/flags.h"
#include "base/immortal.h"
#include "base/lists.h"
#include "ir/build.h"
#include "ir/verify.h"
#include "rewrite/passes.h"
#include "schedule/graph.h"
#include "schedule/kernels.h"
#include "schedule/memory_plan.h"
#include "schedule/recompute.h"

namespace whit {
namespace {

using namespace sched;

constexpr int kMaxAttempts = 64;
constexpr int kDefaultMaxBuffers = 31;
constexpr size_t kMaxCached = 2048;
constexpr double kBytesANs = 400;  // results are written in place where more is alive than so many bytes a ns of a launch

std::atomic<double> launch_cost{RangeifyLimits().launch_ns};

RangeifyLimits limits() {
  RangeifyLimits l;
  l.launch_ns = launch_cost.load();
  l.max_buffers = flag::MAX_KERNEL_BUFFERS() > 0 ? static_cast<int>(flag::MAX_KERNEL_BUFFERS()) : kDefaultMaxBuffers;
  l.stored_scores = flag::STORED_SCORES();
  return l;
}

Key128 structure_key(const Graph& g, uint16_t default_device, int64_t memory_budget) {
  std::string bytes;
  bytes.reserve(g.size() * 24);
  const auto number = [&](int64_t v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof v); };
  const auto small = [&](int32_t v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof v); };
  number(flag::MAX_KERNEL_BUFFERS());
  number(flag::NO_MEMORY_PLANNER());
  number(static_cast<int64_t>(passes_key()));
  number(flag::STORED_SCORES());
  number(static_cast<int64_t>(launch_cost.load()));
  number(memory_budget);
  bytes += device_name(default_device);
  for (size_t i = 0; i < g.size(); ++i) {
    const Node* n = g.nodes[i];
    bytes.push_back(static_cast<char>(n->op));
    bytes.push_back(static_cast<char>(n->dtype));
    if (n->op == Op::Buffer) {
      number(n->arg.int_at(2));
      bytes += device_name(n->device);
      bytes.push_back('\0');
      continue;
    }
    if (n->arg) n->arg.append_bytes(bytes);
    small(static_cast<int32_t>(n->n_src));
    for (const int32_t s : g.src_of(i)) small(s);
  }
  for (const UOp& r : g.roots) small(g.index.find(r.node()));
  bytes.append(g.hinted.begin(), g.hinted.end());
  return hash128(bytes);
}

// What memory the kernels use, numbered: inputs first.
void number_buffers(const NestGraph& nests, const std::vector<Kernel>& kernels, const std::vector<int32_t>& order, Schedule& s,
                    std::vector<int32_t>& node_of) {
  Numbered<int32_t> number(nests.buffers.size(), -1);
  const auto add = [&](int32_t memory) {
    int32_t& n = number[memory];
    if (n >= 0) return n;
    const VirtualBuffer& v = nests.buffers[memory];
    ScheduleBuffer b{ScheduleBuffer::Kind::Temp, v.dtype, v.device, -1, v.n_elems};
    if (v.kind == VirtualBuffer::Kind::Input) b.kind = ScheduleBuffer::Kind::Input, b.slot = s.n_inputs++;
    if (v.kind == VirtualBuffer::Kind::Output) b.kind = ScheduleBuffer::Kind::Output, b.slot = s.n_outputs++;
    n = static_cast<int32_t>(s.buffers.size());
    s.buffers.push_back(b);
    node_of.push_back(v.node);
    return n;
  };
  for (size_t b = 0; b < nests.buffers.size(); ++b)
    if (nests.buffers[b].kind == VirtualBuffer::Kind::Input) add(static_cast<int32_t>(b));
  for (const int32_t b : nests.root_buffer) s.roots.push_back(add(nests.buffers[b].memory));
  for (const int32_t k : order) {
    const Kernel& kernel = kernels[static_cast<size_t>(k)];
    ScheduledCall call;
    call.kernel = kernel.sink;
    call.device = kernel.device();
    for (const int32_t a : kernel.args) call.args.push_back(add(a));
    const auto place = [&](int32_t b) { return static_cast<size_t>(std::ranges::find(call.args, b) - call.args.begin()); };
    for (const Nest& nest : kernel.nests) {
      for (const NestStore& st : nest.stores) {
        const int32_t b = add(nests.buffers[st.buffer].memory);
        s.buffers[static_cast<size_t>(b)].is_written = true;
        call.n_written = std::max(call.n_written, place(b) + 1);
      }
      call.n_iterations += nest.n_iterations;
      s.stats.n_kernel_nodes += nest.n_nodes;
    }
    for (const Nest& nest : kernel.nests)
      for (const int32_t r : nest.reads) {
        const int32_t b = add(nests.buffers[r].memory);
        s.buffers[static_cast<size_t>(b)].is_read = true;
        call.updates |= place(b) < call.n_written;
      }
    ++(kernel.is_copy() ? s.stats.n_copies : s.stats.n_kernels);
    s.calls.push_back(std::move(call));
  }
}

// Recomputes until the plan of the memory, which can be larger than what is live, meets the budget.
void plan_within(Schedule& s, std::span<const char> hinted, int64_t budget) {
  constexpr int kMaxTries = 8;
  const bool has_hints = std::find(hinted.begin(), hinted.end(), 1) != hinted.end();
  const auto least_bytes = static_cast<int64_t>(launch_cost.load() * kBytesANs);
  if (budget <= 0 && !has_hints) return plan_memory(s, least_bytes);
  const Schedule given = s;
  int64_t target = budget, least = INT64_MAX;
  for (int i = 0; i < kMaxTries; ++i) {
    s = given;
    const int64_t peak = recompute(s, hinted, target);
    plan_memory(s, least_bytes);
    least = std::min(least, s.stats.arena_bytes);
    if (budget <= 0 || s.stats.arena_bytes <= budget) return;
    if (peak > target) break;
    target -= s.stats.arena_bytes - budget;
  }
  raise(ErrorKind::Memory, fmt::format("[schedule] memory_budget {}: temporaries need at least {} bytes however much is recomputed", budget, least));
}

std::shared_ptr<Schedule> build(const Graph& g, uint16_t default_device, int64_t memory_budget) {
  auto s = std::make_shared<Schedule>();
  Forced forced(g.size());
  std::vector<int32_t> node_of;  // by buffer
  const RangeifyLimits lim = limits();
  for (int attempt = 1;; ++attempt) {
    WHIT_CHECK(attempt < kMaxAttempts, "scheduling {} nodes does not settle", g.size());
    NestGraph nests = rangeify(g, forced, lim, default_device);
    const auto add = [&](Numbered<char>& set, const std::vector<int32_t>& nodes) {
      bool fresh = false;
      for (const int32_t n : nodes) fresh |= !std::exchange(set[n], 1);
      WHIT_CHECK(fresh, "a store cannot be separated from what it reads");
    };
    if (const auto hazards = find_hazards(nests); !hazards.empty()) {
      // A stored value that is a state itself is read from a copy of it.
      std::vector<int32_t> states, values;
      for (const int32_t n : hazards) {
        const Op op = g.nodes[static_cast<size_t>(n)]->op;
        (op == Op::After || op == Op::Buffer ? states : values).push_back(n);
      }
      if (!states.empty()) add(forced.copied, states);
      if (!values.empty()) add(forced.materialised, values);
      continue;
    }
    std::vector<Kernel> kernels = single_kernels(nests);
    std::vector<int32_t> copied;
    if (order_kernels(nests, kernels, copied).empty() && !kernels.empty()) {
      add(forced.copied, copied);
      continue;
    }
    fuse_kernels(nests, kernels, lim);
    const std::vector<int32_t> order = order_kernels(nests, kernels, copied);
    for (const int32_t k : order) finish_kernel(nests, kernels[static_cast<size_t>(k)]);
    number_buffers(nests, kernels, order, *s, node_of);
    break;
  }
  s->stats.n_tensor_nodes = static_cast<int64_t>(g.size());
  plan_within(*s, mapped(node_of, [&](int32_t n) { return g.hinted[static_cast<size_t>(n)]; }), memory_budget);
  return s;
}

struct Cache {
  std::mutex mutex;
  std::unordered_map<Key128, std::shared_ptr<const Schedule>, Key128Hash> map{};
};
constexpr auto cache = immortal<Cache>;

}  // namespace

BoundSchedule make_schedule(std::span<const UOp> roots, uint16_t default_device, int64_t memory_budget) {
  for (const UOp& root : roots) verify_if_asked(root, Level::Tensor, "building");
  std::vector<UOp> to_recompute;
  const UOp sink = run_passes(PassStage::Tensor, UOp::make(Op::Sink, DType::Void, prepare(roots, true, &to_recompute)));
  const Graph g(sink.srcs(), to_recompute);
  for (const UOp& root : g.roots) verify_if_asked(root, Level::Tensor, "preparing");
  BoundSchedule bound;
  for (const Node* n : g.nodes)
    if (n->op == Op::Buffer) bound.inputs.emplace_back(n);
  bound.key = structure_key(g, default_device, memory_budget);
  const bool use_cache = flag::SCACHE() != 0;
  if (use_cache) {
    std::lock_guard lock(cache().mutex);
    const auto it = cache().map.find(bound.key);
    if (it != cache().map.end()) {
      bound.schedule = it->second;
      bound.cache_hit = true;
      return bound;
    }
  }
  bound.schedule = build(g, default_device, memory_budget);
  if (use_cache) {
    std::lock_guard lock(cache().mutex);
    if (cache().map.size() >= kMaxCached) cache().map.clear();
    cache().map.emplace(bound.key, bound.schedule);
  }
  return bound;
}

void set_launch_cost(double ns) { launch_cost.store(ns); }

void clear_schedule_cache() {
  std::lock_guard lock(cache().mutex);
  cache().map.clear();
}

int64_t schedule_cache_size() {
  std::lock_guard lock(cache().mutex);
  return static_cast<int64_t>(cache().map.size());
}

UOp Schedule::to_linear() const {
  std::vector<UOp> memory, list;
  for (const ScheduleBuffer& b : buffers) memory.push_back(buffer(b.dtype, b.n_elems, device_name(b.device)));
  for (const ScheduledCall& c : calls) {
    std::vector<UOp> src;
    if (c.kernel) {
      src.push_back(c.kernel);
    } else {
      const UOp& from = memory[static_cast<size_t>(c.args[1])];
      src.push_back(UOp::make(Op::Copy, from.dtype(), {from}, device_name(c.device)));
    }
    for (const int32_t a : c.args) src.push_back(memory[static_cast<size_t>(a)]);
    list.push_back(UOp::make(Op::Call, DType::Void, src));
  }
  return UOp::make(Op::Linear, DType::Void, list);
}

}  // namespace whit
