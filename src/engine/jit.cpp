#include "engine/jit.h"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "base/flags.h"
#include "base/log.h"
#include "engine/buffers.h"
#include "engine/capture.h"
#include "ir/build.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/queue.h"
#include "schedule/memory_plan.h"
#include "schedule/multi.h"

namespace whit::engine {
namespace {

// Bytes [first, last) of an allocation.
struct Extent {
  Buffer* base;
  int64_t first, last;
  auto operator<=>(const Extent&) const = default;
  bool overlaps(const Extent& o) const { return base == o.base && first < o.last && o.first < last; }
};
Extent extent_of(Buffer& b) { return {b.base() ? b.base().get() : &b, b.off_bytes(), b.off_bytes() + b.n_bytes()}; }

// What an argument of a recorded call is.
struct Slot {
  enum class Kind : uint8_t { Fixed, Arena, Input, Output } kind;
  uint16_t device = 0;  // Arena
  int32_t number = 0;   // Input, Output; Fixed: in the list of buffers
  int64_t offset = 0, n_bytes = 0;
  bool is_written = false;
};

struct Output {
  enum class Kind : uint8_t { Fixed, Input, Made } kind;
  int32_t number = -1;  // Input: which; Made: which of made
  UOp node{};           // Fixed: what lies below what is returned; a view of it would hide other readers of that view
  Shape shape{};
};

// Memory of a result, a few of which take turns. A store into the result may have given `node` other memory, where
// its old content is kept.
struct Turn {
  UOp node{}, view{};
  BufferPtr buffer{};
  bool held_by_others() const {
    const uint32_t own = view == node ? 2 : 1;
    return buffer_at(node) != buffer.get() || view->refs.load(std::memory_order_acquire) > own ||
           (view != node && node->refs.load(std::memory_order_acquire) > 2) || buffer.use_count() > 2;
  }
};

struct Made {
  DType dtype;
  int64_t n_elems;
  Shape shape{};
  std::vector<Turn> turns{};
  size_t current = 0;
  std::vector<uint32_t> places{};  // in handles
  const Turn& turn() const { return turns[current]; }
};
constexpr size_t kMaxTurns = 3;

UOp view_of(const UOp& u) {
  if (is_buffer_view(u)) return u;
  const UOp where = realized(u);
  return where && is_buffer_view(where) ? where : UOp();
}

// Finds the calls that compute temporaries from nothing but memory that no call writes and no input brings (weights that are
// packed, transformed, folded), and gives these temporaries memory of their own, `room` bytes at most, so that they last from
// replay to replay.
std::vector<char> settle(std::vector<BoundCall>& calls, std::span<const Buffer* const> inputs, int64_t room) {
  std::unordered_set<const Buffer*> changing(inputs.begin(), inputs.end());
  std::map<std::pair<Buffer*, int32_t>, std::pair<int, BufferPtr>> temporaries;  // how often they are written; their own memory
  const auto temporary = [&](const BoundArg& a) { return &temporaries[{a.buffer.get(), a.number}]; };
  for (const BoundCall& c : calls)
    for (const BoundArg& a : c.args)
      if (c.program && !a.is_written) continue;
      else if (a.offset >= 0) ++temporary(a)->first;
      else changing.insert(extent_of(*a.buffer).base);
  std::vector<char> settled;
  for (BoundCall& c : calls) {
    bool is_settled = c.program && c.values.empty();
    int64_t n_bytes = 0;
    for (BoundArg& a : c.args) {
      n_bytes += a.is_written ? a.n_bytes : 0;
      if (a.offset < 0) is_settled = is_settled && !changing.contains(a.buffer.get()) && !changing.contains(extent_of(*a.buffer).base);
      else if (const auto& [n_writes, own] = *temporary(a); a.is_written) is_settled = is_settled && n_writes == 1;
      else if (own) a = {own, -1, a.n_bytes};
      else is_settled = false;
    }
    is_settled = is_settled && n_bytes <= room;
    room -= is_settled ? n_bytes : 0;
    for (BoundArg& a : c.args)
      if (is_settled && a.is_written) {
        BufferPtr& own = temporary(a)->second = Buffer::make(a.buffer->device_name(), a.n_bytes);
        a = {own, -1, a.n_bytes, true};
      }
    settled.push_back(is_settled);
  }
  return settled;
}

// Plans temporaries again, without those that last.
void plan_again(std::vector<BoundCall>& calls) {
  std::map<Buffer*, std::map<int32_t, sched::Lifetime>> arenas;
  for (size_t c = 0; c < calls.size(); ++c)
    for (const BoundArg& a : calls[c].args)
      if (a.offset >= 0) arenas[a.buffer.get()][a.number].touch(static_cast<int64_t>(c), a.n_bytes);
  for (auto& [arena, lives] : arenas) {
    std::vector<sched::Lifetime*> own;
    for (auto& [number, l] : lives) own.push_back(&l);
    sched::pack(std::move(own));
  }
  for (BoundCall& c : calls)
    for (BoundArg& a : c.args)
      if (a.offset >= 0) a.offset = arenas[a.buffer.get()][a.number].offset;
}

}  // namespace

void Recorder::record(const BoundCall& call) {
  for (Recorder* r = this; r; r = r->outer) r->calls.push_back(call);
}
void Recorder::record_output(const BufferPtr& b, bool is_state) {
  for (Recorder* r = this; r; r = r->outer) r->made.push_back({b, is_state});
}
void Recorder::record_written(const UOp& node, const UOp& before) {
  for (Recorder* r = this; r; r = r->outer) {
    if (std::ranges::find(r->written, node) == r->written.end()) r->written.push_back(node);
    r->overwritten.push_back(before);
  }
}
bool Recorder::is_input(const Buffer& b) const { return std::ranges::find(inputs, &b) != inputs.end() || (outer && outer->is_input(b)); }

struct Capture::Impl : Recorder {
  bool open = true;

  // The first with this memory; -1 for none.
  int32_t number_of_input(const Buffer* b) const {
    const auto at = std::ranges::find(inputs, b);
    return at == inputs.end() ? -1 : static_cast<int32_t>(at - inputs.begin());
  }
  bool was_made(const Buffer* b) const {
    return std::ranges::any_of(made, [&](const Made& m) { return m.buffer.get() == b; });
  }
  void close() {
    if (open) current_recorder = outer;
    open = false;
  }
  ~Impl() { close(); }
};

struct CapturedGraph::Impl {
  struct Call {
    CpuKernel cpu{};
    ExecutablePtr program{};  // null: a copy
    uint32_t first_handle = 0, first_value = 0, n_handles = 0;
    uint32_t first_slot = 0;
    uint64_t origin = 0;
  };
  std::vector<Call> calls{};
  std::vector<Call> settled{};        // run when what they read has changed
  std::vector<BufferPtr> read{};      // that
  uint64_t n_changes = ~uint64_t{0};  // of it, when they ran last
  uint64_t known_generation = 0;      // generation in which nothing had changed
  bool is_list = false;               // of kernels, which the last replay has called one after the other
  std::vector<void*> handles{};
  std::vector<int64_t> values{};
  std::vector<Slot> slots{};
  std::vector<BufferPtr> fixed{};
  std::unordered_map<uint16_t, BufferPtr> arenas{};

  std::vector<int32_t> same_as{};     // by input: the first input with the same memory in the capture
  std::vector<char> input_written{};  // by input
  bool any_input_written = false;
  std::vector<std::vector<uint32_t>> input_places{};
  std::vector<Made> made{};
  std::vector<Output> outputs{};
  std::vector<Extent> written{};  // fixed memory that is written, by base
  std::vector<UOp> states{};      // BUFFERs from before the capture that are written

  struct VariablePlace {
    std::string name;
    std::vector<uint32_t> places{};
  };
  std::vector<VariablePlace> variables{};
  int64_t n_ops = 0, n_bytes = 0, n_kernels = 0, lasting_bytes = 0;
  bool has_copies = false, is_several = false;  // is_several: devices
  std::string device{};                         // of the first program; "" is the default one
  Device* opened = nullptr;                     // that device, from the first run on

  void bind(std::span<const UOp> inputs, const VariableValues& named);
  BoundArg bound_arg(const Slot& s, std::span<const UOp> inputs) const;
  BoundCall bound_call(const Call& c, std::span<const UOp> inputs) const;
};

bool is_capturing() { return current_recorder != nullptr; }

Capture::Capture(std::span<const UOp> inputs) : impl_(std::make_unique<Impl>()) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const UOp view = view_of(inputs[i]);
    WHIT_USER(view, Jit, "[jit] input {} is not realised", i);
    // The node itself is not kept: a reference would look like a reader of its state.
    impl_->inputs.push_back(buffer_at(buffer_below(view)));
  }
  impl_->outer = current_recorder;
  current_recorder = impl_.get();
}

Capture::~Capture() = default;

std::unique_ptr<CapturedGraph> Capture::finish(std::span<const UOp> outputs, int64_t lasting_bytes) {
  const ProfileSpan span("capture", "finish a capture");
  impl_->close();
  WHIT_USER(!impl_->calls.empty(), Jit, "[jit] nothing was run in the capture, so there is nothing to replay");
  auto g = std::make_unique<CapturedGraph::Impl>();
  for (const Buffer* b : impl_->inputs) g->same_as.push_back(impl_->number_of_input(b));
  g->input_written.assign(impl_->inputs.size(), 0);
  g->input_places.resize(impl_->inputs.size());

  // Results.
  std::unordered_map<const Buffer*, int32_t> made_number;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const UOp view = view_of(outputs[i]);
    WHIT_USER(view, Jit, "[jit] output {} is not realised", i);
    const UOp node = buffer_below(view);
    const BufferPtr memory = buffer_of(node);
    Output o{Output::Kind::Fixed, impl_->number_of_input(memory.get()), {}, outputs[i].shape()};
    if (o.number >= 0) {
      o.kind = Output::Kind::Input;
    } else if (impl_->was_made(memory.get())) {
      o.kind = Output::Kind::Made;
      const auto [it, fresh] = made_number.try_emplace(memory.get(), static_cast<int32_t>(g->made.size()));
      if (fresh) {
        Made m{node.dtype(), node.shape()[0], o.shape, {}, 0, {}};
        m.turns.push_back({node, reshape(node, o.shape), memory});
        g->made.push_back(std::move(m));
      }
      o.number = it->second;
    } else {
      o.node = node;
    }
    g->outputs.push_back(std::move(o));
  }
  for (const Recorder::Made& m : impl_->made) {
    if (!m.is_state || made_number.contains(m.buffer.get())) continue;
    // Held by `made`, by the calls, and by the payload of a BUFFER as long as that lives.
    int64_t own = 1;
    for (const BoundCall& c : impl_->calls)
      for (const BoundArg& a : c.args) own += a.buffer == m.buffer;
    WHIT_USER(m.buffer.use_count() <= own, Jit,
              "[jit] the captured function stores into a tensor that it made itself and that is still used: each replay "
              "would start over; realize() that tensor before the capture");
  }

  // Calls.
  std::unordered_map<const Buffer*, int32_t> fixed_number;
  std::unordered_map<uint16_t, int64_t> arena_bytes;
  const std::vector<char> settled = settle(impl_->calls, impl_->inputs, lasting_bytes);
  if (std::ranges::find(settled, 1) != settled.end()) plan_again(impl_->calls);
  for (size_t i = 0; i < impl_->calls.size(); ++i) {
    const BoundCall& c = impl_->calls[i];
    CapturedGraph::Impl::Call call;
    call.first_slot = static_cast<uint32_t>(g->slots.size());
    call.first_handle = static_cast<uint32_t>(g->handles.size());
    call.first_value = static_cast<uint32_t>(g->values.size());
    call.n_handles = static_cast<uint32_t>(c.args.size());
    call.origin = c.origin;
    if (c.program) {
      call.program = c.program;
      call.cpu = c.program->cpu_kernel();
      if (g->device.empty()) g->device = c.program->device;
      g->is_several |= g->device != c.program->device;
      if (!settled[i]) {
        g->n_ops += c.program->n_ops;
        g->n_bytes += c.program->n_bytes;
        ++g->n_kernels;
      }
      for (size_t v = 0; v < c.values.size(); ++v) {
        const std::string& n = c.program->variables[v];
        auto it = std::ranges::find_if(g->variables, [&](const auto& p) { return p.name == n; });
        if (it == g->variables.end()) it = g->variables.insert(it, {n});
        it->places.push_back(static_cast<uint32_t>(g->values.size()));
        g->values.push_back(c.values[v]);
      }
    } else {
      g->has_copies = g->is_several = true;
    }
    for (const BoundArg& a : c.args) {
      Slot s{Slot::Kind::Fixed, 0, impl_->number_of_input(a.buffer.get()), a.offset, a.n_bytes, a.is_written};
      const uint32_t place = static_cast<uint32_t>(g->handles.size());
      const auto out = made_number.find(a.buffer.get());
      if (a.offset >= 0) {
        s.kind = Slot::Kind::Arena;
        s.device = device_id(a.buffer->device_name());
        int64_t& n = arena_bytes[s.device];
        n = std::max(n, a.offset + a.n_bytes);
      } else if (s.number >= 0) {
        s.kind = Slot::Kind::Input;
        g->input_places[static_cast<size_t>(s.number)].push_back(place);
        if (a.is_written) g->input_written[static_cast<size_t>(s.number)] = 1;
        g->any_input_written |= a.is_written;
      } else if (out != made_number.end()) {
        s.kind = Slot::Kind::Output;
        s.number = out->second;
        g->made[static_cast<size_t>(s.number)].places.push_back(place);
      } else {
        const auto [it, fresh] = fixed_number.try_emplace(a.buffer.get(), static_cast<int32_t>(g->fixed.size()));
        if (fresh) g->fixed.push_back(a.buffer);
        s.number = it->second;
        if (a.is_written && !settled[i]) g->written.push_back(extent_of(*a.buffer));
        if (settled[i] && !a.is_written) g->read.push_back(a.buffer);
        if (settled[i] && a.is_written) g->lasting_bytes += a.n_bytes;
      }
      g->slots.push_back(s);
      g->handles.push_back(nullptr);
    }
    (settled[i] ? g->settled : g->calls).push_back(call);
  }
  std::ranges::sort(g->written);
  g->written.erase(std::unique(g->written.begin(), g->written.end()), g->written.end());
  for (const UOp& node : impl_->written) {
    const BufferPtr memory = buffer_of(buffer_parts(node)[0]);
    if (fixed_number.contains(memory.get()) && !impl_->was_made(memory.get())) g->states.push_back(node);
  }
  impl_->written.clear();
  // What was queued gives its temporaries back before the graph takes memory for its own.
  for (const BoundCall& c : impl_->calls)
    for (const BoundArg& a : c.args)
      if (a.offset >= 0) wait_for(*a.buffer, true);
  impl_->calls.clear();
  impl_->made.clear();
  for (const auto& [device, n] : arena_bytes)
    if (n > 0) g->arenas[device] = Buffer::make(std::string(device_name(device)), n);
  for (size_t i = 0; i < g->slots.size(); ++i) {
    const Slot& s = g->slots[i];
    if (s.kind == Slot::Kind::Input || (s.kind == Slot::Kind::Arena && s.n_bytes == 0)) continue;
    g->handles[i] = g->bound_arg(s, {}).handle();
  }
  std::unique_ptr<CapturedGraph> graph(new CapturedGraph(std::move(g)));
  if (flag::DEBUG() >= 1)
    log_line(fmt::format("captured {} kernels, {} inputs, {} outputs, {} bytes of temporaries, {} that last", graph->n_kernels(), graph->n_inputs(),
                         graph->impl_->outputs.size(), graph->arena_bytes(), graph->lasting_bytes()));
  return graph;
}

CapturedGraph::CapturedGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CapturedGraph::~CapturedGraph() = default;

void CapturedGraph::Impl::bind(std::span<const UOp> inputs, const VariableValues& named) {
  SmallVec<Buffer*, 8> memory;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node* n = inputs[i].node();
    while (n->op == Op::Reshape) n = n->src()[0];
    WHIT_USER(n->op == Op::Buffer, Jit, "[jit] input {} is not realised", i);
    memory.push_back(buffer_at(UOp(n)));
    const auto first = static_cast<size_t>(same_as[i]);
    WHIT_USER(memory[i] == memory[first], Jit, "[jit] inputs {} and {} were the same memory when captured, and are not now", first, i);
    const Extent e = extent_of(*memory[i]);
    auto w = std::ranges::lower_bound(written, e.base, {}, &Extent::base);
    for (; w != written.end() && w->base == e.base; ++w)
      WHIT_USER(!w->overlaps(e), Jit, "[jit] input {} is memory that the captured function writes", i);
    for (size_t j = 0; j < i && any_input_written; ++j)
      WHIT_USER(!(input_written[i] || input_written[j]) || same_as[j] == same_as[i] || !extent_of(*memory[j]).overlaps(e), Jit,
                "[jit] inputs {} and {} share memory, and the captured function writes it", j, i);
    for (const uint32_t p : input_places[i]) handles[p] = memory[i]->handle();
  }
  for (VariablePlace& v : variables) {
    // What the function binds itself stays as it was captured.
    const auto it = named.find(v.name);
    for (const uint32_t p : v.places) values[p] = it != named.end() ? it->second : values[p];
  }
  for (Made& m : made) {
    if (!m.turn().held_by_others()) continue;
    // A queue may be all that holds them: a loop is at most so many calls ahead of its device.
    if (m.turns.size() == kMaxTurns) wait_for(*m.turns[(m.current + 1) % kMaxTurns].buffer, false);
    auto free = static_cast<size_t>(std::ranges::find_if_not(m.turns, &Turn::held_by_others) - m.turns.begin());
    if (free == m.turns.size()) {
      if (m.turns.size() == kMaxTurns) {
        m.turns.erase(m.turns.begin());
        --free;
      }
      const BufferPtr fresh = Buffer::make(m.turns[0].buffer->device_name(), m.n_elems * whit::n_bytes(m.dtype));
      fresh->made_from = m.turns[0].buffer->made_from;
      const UOp node = buffer_node(m.dtype, m.n_elems, fresh);
      m.turns.push_back({node, reshape(node, m.shape), fresh});
    }
    m.current = free;
    void* const h = m.turn().buffer->handle();
    for (const uint32_t p : m.places) handles[p] = h;
  }
}

BoundArg CapturedGraph::Impl::bound_arg(const Slot& s, std::span<const UOp> inputs) const {
  switch (s.kind) {
    case Slot::Kind::Arena: return {arenas.at(s.device), s.offset, s.n_bytes};
    case Slot::Kind::Input: return {buffer_of(buffer_below(inputs[static_cast<size_t>(s.number)])), -1, s.n_bytes};
    case Slot::Kind::Output: return {made[static_cast<size_t>(s.number)].turn().buffer, -1, s.n_bytes};
    default: return {fixed[static_cast<size_t>(s.number)], -1, s.n_bytes};
  }
}

BoundCall CapturedGraph::Impl::bound_call(const Call& c, std::span<const UOp> inputs) const {
  BoundCall call;
  call.program = c.program;
  call.origin = c.origin;
  for (uint32_t a = 0; a < c.n_handles; ++a) {
    call.args.push_back(bound_arg(slots[c.first_slot + a], inputs));
    call.args.back().is_written = slots[c.first_slot + a].is_written;
  }
  if (c.program)
    call.values.assign(values.begin() + c.first_value, values.begin() + c.first_value + static_cast<ptrdiff_t>(c.program->variables.size()));
  return call;
}

bool CapturedGraph::launch() {
  const Impl& g = *impl_;
  if (!g.is_list || current_recorder) return false;
  for (const Impl::Call& c : g.calls) {
    void* const* const h = g.handles.data() + c.first_handle;
    const int64_t* const v = g.values.data() + c.first_value;
    if (c.cpu.fn) c.cpu.launch(h, v);
    else c.program->run(h, v);
  }
  GlobalCounters::add_kernels(g.n_kernels, g.n_ops, g.n_bytes, 0);
  return true;
}

std::vector<UOp> CapturedGraph::replay(std::span<const UOp> inputs, const VariableValues& variables) {
  const ProfileSpan span("replay", "replay");
  Impl& g = *impl_;
  WHIT_CHECK(inputs.size() == g.same_as.size(), "{} inputs of a graph with {}", inputs.size(), g.same_as.size());
  if (!inputs.empty() || !variables.empty() || !g.made.empty()) g.bind(inputs, variables);
  const uint64_t now = generation.load(std::memory_order_acquire);
  const auto changes = [&] {
    return std::accumulate(g.read.begin(), g.read.end(), uint64_t{0}, [](uint64_t n, const BufferPtr& b) { return n + b->n_changes(); });
  };
  if (!g.settled.empty() && now != g.known_generation && changes() != g.n_changes) {
    for (const Impl::Call& c : g.settled) run_call(g.bound_call(c, inputs), true);
    g.n_changes = changes();
  }
  g.known_generation = now;
  for (const Extent& w : g.written) w.base->count_change();
  for (size_t i = 0; g.any_input_written && i < inputs.size(); ++i)
    if (g.input_written[i]) buffer_at(buffer_below(inputs[i]))->count_change();
  for (const Made& m : g.made) m.turn().buffer->count_change();
  if (!g.opened) g.opened = &Device::get(g.device);
  g.is_list = !is_queued(*g.opened) && !g.has_copies && !is_timed();
  if (!launch())
    for (const Impl::Call& c : g.calls) run_call(g.bound_call(c, inputs), true, g.is_several);
  if (Recorder* r = current_recorder) {
    // Inside of another capture: these calls belong to it.
    for (const Made& m : g.made) r->record_output(m.turn().buffer, false);
    for (const UOp& s : g.states) r->record_written(s, s);
    for (const auto* calls : {&g.settled, &g.calls})
      for (const Impl::Call& c : *calls) r->record(g.bound_call(c, inputs));
  }
  std::vector<UOp> out;
  out.reserve(g.outputs.size());
  for (const Output& o : g.outputs) {
    switch (o.kind) {
      case Output::Kind::Fixed: out.push_back(reshape(o.node, o.shape)); break;
      case Output::Kind::Input: out.push_back(reshape(buffer_below(inputs[static_cast<size_t>(o.number)]), o.shape)); break;
      case Output::Kind::Made: {
        const Made& m = g.made[static_cast<size_t>(o.number)];
        out.push_back(o.shape == m.shape ? m.turn().view : reshape(m.turn().node, o.shape));
        break;
      }
    }
  }
  return out;
}

std::span<const UOp> Capture::overwritten() const { return impl_->overwritten; }

std::vector<CapturedGraph::FixedMemory> CapturedGraph::fixed_memory() const {
  std::vector<FixedMemory> out;
  for (const BufferPtr& b : impl_->fixed) {
    const Extent e = extent_of(*b);
    out.push_back({b, std::ranges::any_of(impl_->written, [&](const Extent& w) { return w.overlaps(e); })});
  }
  return out;
}
size_t CapturedGraph::n_inputs() const { return impl_->same_as.size(); }
bool CapturedGraph::writes_input(size_t number) const { return impl_->input_written[number] != 0; }

int64_t CapturedGraph::n_kernels() const { return impl_->n_kernels; }
int64_t CapturedGraph::arena_bytes() const {
  int64_t n = 0;
  for (const auto& a : impl_->arenas) n += a.second->n_bytes();
  return n;
}
int64_t CapturedGraph::lasting_bytes() const { return impl_->lasting_bytes; }

}  // namespace whit::engine
