#include "engine/realize.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/flags.h"
#include "base/immortal.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/os.h"
#include "base/profile.h"
#include "engine/buffers.h"
#include "engine/capture.h"
#include "engine/compile.h"
#include "engine/ranges.h"
#include "engine/run.h"
#include "engine/stores.h"
#include "ir/build.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "schedule/graph.h"
#include "schedule/multi.h"

namespace whit::engine {
namespace {

struct EngineMutex : std::recursive_mutex {};
constexpr auto engine_mutex = immortal<EngineMutex>;

thread_local int64_t memory_budget = 0;

const Node* skip_identities(const Node* n) {
  while (n->op == Op::Detach || n->op == Op::ContiguousBackward) n = n->src()[0];
  return n;
}

// The view of memory that an AFTER, a recorded node or a view of such shows, with BUFFERs replaced; null when something
// is below that is no memory yet.
UOp memory_view(const UOp& u, const std::unordered_map<const Node*, UOp>& replaced) {
  SmallVec<const Node*, 8> chain;
  UOp at = u;
  while (at.op() != Op::Buffer) {
    if (const UOp where = realized(at)) {
      at = where;
      continue;
    }
    const bool moves = is_movement(at.op()) && at.op() != Op::Stack;
    if (!moves && at.op() != Op::After && at.op() != Op::Detach) return {};
    if (moves) chain.push_back(at.node());
    at = at.src(0);
  }
  if (const auto it = replaced.find(at.node()); it != replaced.end()) at = it->second;
  for (size_t i = chain.size(); i-- > 0;) at = chain[i]->op == Op::Reshape ? reshape(at, chain[i]->shape) : with_first_src(chain[i], at);
  return at;
}

// What is in memory already, or null.
UOp in_memory(const UOp& u) {
  const UOp v(skip_identities(u.node()));
  if (is_buffer_view(v)) return v;
  const UOp where = realized(v);
  return where && is_buffer_view(where) ? where : UOp();
}

// The graph with VARIABLEs in the place of BINDs, whose values go to `values`: schedules and kernels are made once for
// all values.
std::vector<UOp> unbound(std::span<const UOp> roots, VariableValues& values) {
  std::unordered_map<const Node*, UOp> map;
  for (const Node* n : toposort(roots, [](const Node* k) { return !is_realized(k); })) {
    if (n->op == Op::Bind) {
      map.emplace(n, n->src()[0]);
      const auto [it, fresh] = values.emplace(n->src()[0]->arg.at(0).as_str(), n->arg.as_int());
      WHIT_USER(fresh || it->second == n->arg.as_int(), Runtime, "[realize] bind mismatch: '{}' is {} and {}", it->first, it->second,
                n->arg.as_int());
    } else if (is_realized(n)) {  // its own shape and view speak of BINDs too; what is below it is not looked at
      map.emplace(n, n->shape.is_symbolic() ? unbound(std::vector{realized(UOp(n))}, values)[0] : UOp(n));
    }
  }
  return substitute(UOp::make(Op::Sink, DType::Void, roots), map).srcs();
}

// Graphs of one device each, for graphs that may be on several.
struct Spread {
  std::vector<UOp> roots{};     // of the schedule
  std::vector<size_t> first{};  // by given root: number of its first one; one past the last at the end
  std::vector<int64_t> axis{};  // by given root, of Shards
};

Spread spread(std::span<const UOp> given, bool is_moved) {
  Spread s;
  std::vector<Shards> all = is_moved ? split_devices(given) : mapped(given, [](const UOp& u) { return Shards{{u}}; });
  std::vector<NodeList> bases(given.size());
  std::unordered_map<const Node*, size_t> owner_of;
  for (size_t i = 0; i < given.size(); ++i) {
    bases[i] = mapped(all[i].parts, [](const UOp& p) { return memory_of(p.node()); });
    const auto first = owner_of.find(bases[i][0]);
    const bool same = first != owner_of.end() && bases[first->second] == bases[i];
    s.first.push_back(s.roots.size());
    s.axis.push_back(all[i].axis);
    for (size_t k = 0; k < bases[i].size(); ++k) {
      const Node* const n = bases[i][k];
      const size_t j = owner_of.try_emplace(n, i).first->second;
      UOp& p = all[i].parts[k];
      // Memory that only a part of another value lies in, or that was there before, is not to be shared.
      const bool shared = j != i && !same && (bases[i].size() > 1 || bases[j].size() > 1);
      if (n->op != Op::After && (shared || (n->op == Op::Buffer && p != given[i]))) p = UOp::make(Op::Contiguous, p.dtype(), {p});
      s.roots.push_back(p);
    }
  }
  s.first.push_back(s.roots.size());
  return s;
}

void print_schedule(const BoundSchedule& bound, double ms) {
  const Schedule& s = *bound.schedule;
  if (flag::DEBUG() < 1 || (s.calls.size() < 2 && flag::DEBUG() < 3)) return;
  log_line(
      fmt::format("scheduled {:5} kernels in {:8.2f} ms | cache {} {} | {} nodes, {} in kernels | temporaries {} "
                  "in {} (at least {}), {} recomputed",
                  s.calls.size(), ms, bound.cache_hit ? "hit " : "MISS", bound.key.hex().substr(0, 8), s.stats.n_tensor_nodes, s.stats.n_kernel_nodes,
                  s.stats.temp_bytes, s.stats.arena_bytes, s.stats.live_bytes, s.stats.n_recomputed));
  if (flag::DEBUG() >= 3) log_line(describe(s));
}

// Binds memory and runs. Gives the output buffers by slot.
std::vector<BufferPtr> execute(const BoundSchedule& bound, std::span<const UOp> wanted, const Spread& roots, const VariableValues& variables) {
  const Schedule& s = *bound.schedule;
  Recorder* const recorder = current_recorder;
  std::vector<CompileJob> jobs;
  for (const ScheduledCall& c : s.calls)
    if (c.kernel) jobs.push_back({c.kernel, std::string(device_name(c.device))});
  std::vector<ExecutablePtr> programs = compile_all(jobs, recorder && flag::JITBEAM() >= 0 ? flag::JITBEAM() : flag::BEAM());

  std::unordered_map<uint16_t, BufferPtr> arenas;
  for (const Arena& a : s.arenas)
    if (a.n_bytes > 0) arenas[a.device] = Buffer::make(std::string(device_name(a.device)), a.n_bytes);
  std::vector<BufferPtr> outputs(static_cast<size_t>(s.n_outputs));
  std::vector<BoundArg> args(s.buffers.size());
  std::vector<char> is_state(s.buffers.size(), 0);
  for (size_t i = 0; i < wanted.size(); ++i)
    for (size_t r = roots.first[i]; wanted[i].op() == Op::After && r < roots.first[i + 1]; ++r) is_state[static_cast<size_t>(s.roots[r])] = 1;
  for (size_t i = 0; i < s.buffers.size(); ++i) {
    const ScheduleBuffer& b = s.buffers[i];
    BoundArg& a = args[i];
    a.n_bytes = b.n_elems * n_bytes(b.dtype);
    a.number = static_cast<int32_t>(i);
    if (b.kind == ScheduleBuffer::Kind::Input) {
      a.buffer = buffer_of(bound.inputs[static_cast<size_t>(b.slot)]);
    } else if (b.kind == ScheduleBuffer::Kind::Temp && b.offset >= 0) {
      a.buffer = arenas.at(b.device);
      a.offset = b.offset;
    } else {
      a.buffer = make_buffer(b.dtype, b.n_elems, device_name(b.device));
      if (b.kind == ScheduleBuffer::Kind::Output) outputs[static_cast<size_t>(b.slot)] = a.buffer;
      if (recorder) recorder->record_output(a.buffer, is_state[i] != 0);
    }
  }
  size_t next = 0;
  const bool is_several = std::ranges::any_of(s.calls, [&](const ScheduledCall& c) { return !c.kernel || c.device != s.calls[0].device; });
  for (const ScheduledCall& c : s.calls) {
    BoundCall call;
    call.origin = (bound.key.hi >> 32 << 32) + static_cast<uint64_t>(&c - s.calls.data());
    if (c.kernel) {
      call.program = std::move(programs[next++]);
      call.program->load();
      for (const std::string& v : call.program->variables) {
        const auto it = variables.find(v);
        WHIT_USER(it != variables.end(), Runtime, "[realize] variable {} has no value", v);
        call.values.push_back(it->second);
      }
    }
    for (const int32_t b : c.args) {
      call.args.push_back(args[static_cast<size_t>(b)]);
      call.args.back().is_written = call.args.size() <= c.n_written;
    }
    run_call(call, false, is_several);
    if (recorder) recorder->record(call);
  }
  return outputs;
}

}  // namespace

MemoryBudget::MemoryBudget(int64_t n_bytes) : before_(std::exchange(memory_budget, n_bytes)) {}
MemoryBudget::~MemoryBudget() { memory_budget = before_; }

uint16_t default_device_id() { return device_id(whit::default_device()); }

BoundSchedule schedule(std::span<const UOp> roots) {
  std::lock_guard lock(engine_mutex());
  std::vector<UOp> pending;
  for (const UOp& r : roots)
    if (!in_memory(r)) pending.push_back(r);
  VariableValues values;
  return make_schedule(copy_ranges(spread(copy_ranges(unbound(pending, values)), true).roots), default_device_id(), memory_budget);
}

std::vector<UOp> realize(std::span<const UOp> roots, const VariableValues& given) {
  std::lock_guard lock(engine_mutex());
  const os::IeeeFloats ieee;  // constants are folded as kernels compute
  std::vector<UOp> pending;
  for (const UOp& r : roots) {
    WHIT_CHECK(!is_weak(r.dtype()), "realize of {}", r.dtype());
    if (!in_memory(r)) pending.push_back(r);
  }
  if (pending.empty()) return mapped(roots, in_memory);
  const int64_t start = os::now_ns();
  const ProfileSpan whole("realize", "realize");
  std::optional<ProfileSpan> span(std::in_place, "schedule", "schedule");

  // Old readers; then handles may be made.
  StorePlan plan = plan_stores(pending);
  for (; !plan.alone.empty(); plan = plan_stores(pending)) {
    // Arguments first: then the call reads memory only, and calls of equal bodies have one schedule.
    const UOp call = plan.alone[0].src(0);
    std::vector<UOp> args;
    for (size_t i = 1; i < call.n_src(); ++i)
      if (call.src(i)->device) args.push_back(call.src(i));
    realize(args, given);
    realize(plan.alone, given);
  }
  if (flag::DEBUG() >= 3)
    log_line(fmt::format("stores: {} states, {} old values computed first, {} buffers kept in {:.2f} ms", plan.states.size(), plan.extra_roots.size(),
                         plan.kept.size(), static_cast<double>(os::now_ns() - start) * 1e-6));
  std::vector<UOp> wanted = pending;  // nodes of the given graph, by root of the schedule
  wanted.insert(wanted.end(), plan.extra_roots.begin(), plan.extra_roots.end());
  std::vector<UOp> to_schedule;
  for (size_t i = 0; i < wanted.size(); ++i) {
    // A state that a later store ends, or a view of one, is memory that will be overwritten: its content needs memory of
    // its own. So does that of an extra root.
    const UOp& w = wanted[i];
    const Node* base = w.node();
    while (is_view(base)) base = base->src()[0];
    const bool ended = std::ranges::find(plan.ended, UOp(base)) != plan.ended.end();
    UOp value = base->op == Op::After && (ended || i >= pending.size()) ? UOp::make(Op::Contiguous, w.dtype(), {w}) : w;
    if (is_weak(value.dtype())) value = cast(value, value.dtype() == DType::WeakInt ? DType::Int64 : DType::Float64);
    to_schedule.push_back(std::move(value));
  }
  std::unordered_map<const Node*, UOp> replaced;
  std::vector<KeptCopy> copies;
  for (const UOp& b : plan.kept) replaced.emplace(b.node(), keep_old_content(b, copies));
  if (!replaced.empty()) {
    std::unordered_map<const Node*, UOp> map = replaced;
    for (const Node* n : toposort(to_schedule))
      if (n->op != Op::Buffer && realized(UOp(n)))
        if (const UOp view = memory_view(UOp(n), replaced)) map.emplace(n, view);
    for (UOp& u : to_schedule) u = substitute(u, map);
  }
  BoundSchedule bound;
  Spread spread_roots;
  VariableValues variables = given;
  try {
    if (plan.has_bind) to_schedule = unbound(to_schedule, variables);
    if (plan.is_moved) to_schedule = copy_ranges(to_schedule);
    spread_roots = spread(to_schedule, plan.is_moved);
    to_schedule = plan.is_moved ? copy_ranges(spread_roots.roots) : spread_roots.roots;
    bound = make_schedule(to_schedule, default_device_id(), memory_budget);
  } catch (...) {
    for (const KeptCopy& c : copies) set_payload(c.node, c.from);
    throw;
  }
  span.reset();
  print_schedule(bound, static_cast<double>(os::now_ns() - start) * 1e-6);
  for (const KeptCopy& c : copies) {
    BoundCall copy;
    copy.args = {{c.to, -1, c.to->n_bytes(), true}, {c.from, -1, c.from->n_bytes(), false}};
    run_call(copy);
    if (Recorder* r = current_recorder) {
      r->record_output(c.to, false);
      r->record(copy);
    }
  }
  const std::vector<BufferPtr> outputs = execute(bound, wanted, spread_roots, variables);

  // Memory that was overwritten gets a new node: the old one stands for the old content, and a later store of the same
  // expression must not find the node of this one.
  for (const UOp& state : plan.states) {
    UOp b = state;
    while (b.op() != Op::Buffer) {
      const UOp where = realized(b);
      if (!where && b.op() != Op::After && !is_view(b.node())) break;
      b = where ? where : b.src(0);
    }
    if (b.op() != Op::Buffer) continue;
    if (!replaced.contains(b.node())) replaced.emplace(b.node(), same_memory(b));
    if (Recorder* r = current_recorder) r->record_written(replaced.at(b.node()), b);
  }
  // Where the values are. Last states first: older ones are about to be recorded as what was copied from them.
  for (const UOp& state : plan.states)
    if (!realized(state))
      if (const UOp view = memory_view(state, replaced)) set_realized(state, view);
  const Schedule& s = *bound.schedule;
  std::vector<UOp> output_nodes(outputs.size()), views;
  std::unordered_map<const Node*, UOp> joined;  // by the first part
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<UOp> parts;
    bool is_input = true;
    for (size_t r = spread_roots.first[i]; r < spread_roots.first[i + 1]; ++r) {
      const ScheduleBuffer& b = s.buffers[static_cast<size_t>(s.roots[r])];
      is_input &= b.kind == ScheduleBuffer::Kind::Input;
      if (b.kind == ScheduleBuffer::Kind::Input) {
        parts.push_back(bound.inputs[static_cast<size_t>(b.slot)]);
        continue;
      }
      UOp& node = output_nodes[static_cast<size_t>(b.slot)];
      if (!node) node = buffer_node(b.dtype, b.n_elems, outputs[static_cast<size_t>(b.slot)]);
      parts.push_back(node);
    }
    // Through a state, which is recorded by now, what was stored; else what the memory held before.
    UOp view = is_input ? memory_view(wanted[i], {}) : UOp();
    if (!view || !is_buffer_view(view)) {
      UOp& all = joined[parts[0].node()];
      if (!all) all = join_buffers(parts);
      view = view_of_parts(all, wanted[i].shape(), spread_roots.axis[i]);
    }
    if (view.dtype() != wanted[i].dtype()) view = cast(view, wanted[i].dtype());
    views.push_back(view);
    // A view of memory is where stores through it go, wherever its elements were copied.
    const Node* base = wanted[i].node();
    while (is_view(base) && !realized(UOp(base))) base = base->src()[0];
    if (base->op == Op::Buffer) continue;
    // Not only the root: whoever is built on what lies below its RESHAPEs reads the buffer too.
    UOp at = wanted[i];
    for (;;) {
      set_realized(at, is_buffer_view(view) ? reshape(view, at.shape()) : view);
      const bool transparent = at.op() == Op::Reshape || at.op() == Op::Detach || at.op() == Op::ContiguousBackward;
      if (!transparent || !is_buffer_view(view) || at.src(0).op() == Op::Buffer || realized(at.src(0))) break;
      at = at.src(0);
    }
  }
  return mapped(roots, [&](const UOp& root) {
    UOp value = in_memory(root);
    if (!value) value = realized(UOp(skip_identities(root.node())));
    if (!value) value = views[static_cast<size_t>(std::ranges::find(pending, root) - pending.begin())];
    WHIT_CHECK(value, "a root has no value after its run");
    return value;
  });
}

UOp realize(const UOp& root, const VariableValues& variables) { return realize(std::span(&root, 1), variables)[0]; }

std::string describe(const Schedule& s) {
  std::string out;
  for (size_t i = 0; i < s.calls.size(); ++i) {
    const ScheduledCall& c = s.calls[i];
    out += fmt::format("{:4} {:<8} {:<40}", i, device_name(c.device), c.kernel ? std::string(c.kernel.arg().at(0).as_str()) : "copy");
    for (const int32_t a : c.args) {
      const ScheduleBuffer& b = s.buffers[static_cast<size_t>(a)];
      out += fmt::format(" {}{}:{}x{}", "iot"[static_cast<size_t>(b.kind)], a, b.dtype, b.n_elems);
    }
    out += '\n';
  }
  return out;
}

}  // namespace whit::engine
