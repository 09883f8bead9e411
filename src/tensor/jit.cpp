#include "whit/jit.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/flags.h"
#include "engine/buffers.h"
#include "engine/jit.h"
#include "engine/realize.h"
#include "schedule/multi.h"
#include "tensor/impl.h"
#include "whit/transform.h"

namespace whit {
namespace {

// What must stay the same from call to call.
struct Signature {
  Shape shape;
  DType dtype;
  uint16_t device;
  std::string str() const { return fmt::format("{} of {} on {}", dtype, shape, device_name(device)); }
};
Signature signature_of(const Tensor& t) { return {t.shape(), t.dtype(), t.impl()->state()->device}; }

using Bindings = std::map<std::string, UOp, std::less<>>;  // BINDs by the names of their VARIABLEs

std::string_view variable_of(const Node* bind) { return bind->src()[0]->arg.at(0).as_str(); }

// Adds the BINDs below u; true when there are any.
bool collect_bindings(const UOp& u, Bindings& b) {
  bool any = false;
  for (const Node* n : toposort(u, [](const Node* m) { return m->device == 0 || m->shape.is_symbolic(); })) {
    if (n->op != Op::Bind) continue;
    any = true;
    const auto [it, fresh] = b.emplace(variable_of(n), UOp(n));
    WHIT_USER(fresh || it->second.node() == n, Jit, "[jit] bind mismatch: '{}' is {} and {}", it->first, it->second.arg().as_int(), n->arg.as_int());
  }
  return any;
}

// u with the values of these for their variables.
UOp rebound(const UOp& u, const Bindings& b) {
  if (b.empty()) return u;
  std::unordered_map<const Node*, UOp> map;
  for (const Node* n : toposort(u))
    if (n->op == Op::Bind)
      if (const auto it = b.find(variable_of(n)); it != b.end()) map.emplace(n, it->second);
  return substitute(u, map);
}

// Is `shape` what was captured, whatever its variables are bound to?
bool same_sizes(const Shape& shape, const Shape& captured, const Bindings& b) {
  if (b.empty()) return shape == captured;
  bool same = shape.size() == captured.size();
  for (size_t i = 0; same && i < shape.size(); ++i) same = size_of(shape, i) == Sint(rebound(size_of(captured, i).uop(), b));
  return same;
}

// Where the inputs lie. An input on several devices has a place on each.
struct Placed {
  SmallVec<UOp, 4> memory;                // by place: BUFFER below RESHAPEs
  SmallVec<size_t, 4> input;              // by place: number of the input
  SmallVec<const Buffer*, 4> allocation;  // by place
  SmallVec<const Buffer*, 4> shown;       // by place: the memory that it is a view of, when `memory` is a copy of that view
  SmallVec<UOp, 4> whole;                 // by input: null, or the view of all places when there are several
  SmallVec<char, 4> is_copied;            // by input
  bool any_copied = false;
};

UOp base_of(const UOp& u) { return UOp(engine::memory_of(u.node())); }

SmallVec<UOp, 1> places_of(UOp view) {
  if (is_multi(view->device)) return SmallVec<UOp, 1>(std::span<const UOp>(split_devices(std::span(&view, 1))[0].parts));
  return SmallVec<UOp, 1>(std::move_iterator(&view), std::move_iterator(&view + 1));
}

template <class Fn> bool any_memory(const UOp& buffer_node, Fn&& fn) {
  return buffer_node.op() == Op::Buffer &&
         std::ranges::any_of(buffer_parts(buffer_node), [&](const UOp& part) { return fn(engine::buffer_at(part)); });
}

const Buffer* allocation_of(const UOp& buffer_node) {
  const Buffer* const b = engine::buffer_at(buffer_node);
  return b->base() ? b->base().get() : b;
}

// A realised tensor as a whole BUFFER. A view of part of one is copied; a tensor without elements has none to run for.
UOp whole_buffer(const Tensor& t) {
  const UOp u = t.uop();
  if (t.shape().is_symbolic()) {  // its memory, which is for the largest size
    const UOp view = engine::is_buffer_view(u) ? u : t.contiguous().realize().uop();
    return view_of_parts(base_of(view), Shape(std::span<const int64_t>(t.shape())), shard_axis(view));
  }
  if (engine::is_buffer_view(u) && std::ranges::all_of(places_of(u), engine::is_buffer_view)) return u;
  if (t.numel() == 0) return shaped(detail::fresh_buffer(t.dtype(), 0, *t.device()), t.shape());
  return t.contiguous().realize().uop();
}

// Gives t memory of its own where another tensor, computed alike, lies in the same: a store into t must not reach that.
void unshare(const Tensor& t) {
  const std::shared_ptr<Storage>& storage = t.impl()->storage;
  if (!storage || storage->state().op() != Op::Buffer) return;
  const bool shared = std::ranges::any_of(detail::live_tensors(), [&](const Tensor& o) {
    if (const auto& other = o.impl()->storage) return other != storage && other->state() == storage->state();
    const UOp where = realized(o.impl()->value);
    return where && engine::buffer_below(where) == storage->state();
  });
  if (shared) storage->settle(detail::memory_tensor(storage->state()).clone().realize().impl()->storage->state());
}

Placed in_memory(std::span<const Tensor> inputs, bool alone = false) {
  if (inputs.empty()) return {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    WHIT_USER(t.defined() && t.impl()->state()->device && !is_weak(t.dtype()), Jit,
              "[jit] input {} is a constant without memory; pass a tensor on a device (clone() makes one)", i);
  }
  Tensor::realize_all(inputs);
  if (alone) std::ranges::for_each(inputs, unshare);
  Placed out;
  for (const Tensor& t : inputs) {
    const Node* n = t.impl()->value.node();
    while (n->op == Op::Reshape) n = n->src_begin()[0];
    // No view has to be made of the whole of a memory.
    const UOp& memory = t.impl()->state();
    UOp u = n->op == Op::Param && memory.op() == Op::Buffer && !is_multi(memory->device) ? memory : UOp();
    for (size_t p = 0; p < out.input.size() && out.any_copied && !u; ++p)  // an input that is this tensor, which has one copy
      if (const size_t i = out.input[p]; inputs[i].is_same(t)) u = out.whole[i] ? out.whole[i] : out.memory[p];
    if (!u) u = whole_buffer(t);
    const bool copied = engine::memory_of(u.node()) != engine::memory_of(memory.node()) && t.numel() != 0;
    out.any_copied |= copied;
    out.is_copied.push_back(copied);
    out.whole.push_back(is_multi(u->device) ? u : UOp());
    auto places = places_of(std::move(u));
    for (size_t k = 0; k < places.size(); ++k) {
      out.input.push_back(out.whole.size() - 1);
      out.shown.push_back(copied ? allocation_of(buffer_parts(t.impl()->storage->state())[k]) : nullptr);
      out.allocation.push_back(allocation_of(base_of(places[k])));
      out.memory.push_back(std::move(places[k]));
    }
  }
  return out;
}

// A copy serves a graph that neither writes it nor what it is a copy of.
void check_copies(const engine::CapturedGraph& g, const Placed& in) {
  if (!in.any_copied) return;
  const auto fixed = g.fixed_memory();
  for (size_t i = 0; i < in.shown.size(); ++i) {
    if (!in.shown[i]) continue;
    bool written = g.writes_input(i);
    for (const auto& f : fixed) written |= f.is_written && (f.memory->base() ? f.memory->base() : f.memory).get() == in.shown[i];
    for (size_t j = 0; j < in.shown.size(); ++j) written |= g.writes_input(j) && in.allocation[j] == in.shown[i];
    WHIT_USER(!written, Jit,
              "[jit] input {} is a view of part of a memory that the captured function writes; pass the whole of it, or a "
              "clone()",
              in.input[i]);
  }
}

// Lets inputs that are views of part of a memory be their copies while the function is captured.
class Stand {
 public:
  Stand(std::span<const Tensor> inputs, const Placed& in) {
    for (size_t p = 0; p < in.memory.size(); ++p) {
      const size_t i = in.input[p];
      if (!in.is_copied[i] || (p > 0 && in.input[p - 1] == i)) continue;
      Tensor::Impl& t = *inputs[i].impl();
      if (std::ranges::any_of(saved_, [&](const Saved& s) { return s.owner.get() == &t; })) continue;
      const Tensor stand = detail::memory_tensor(in.whole[i] ? in.whole[i] : in.memory[p]);
      saved_.push_back({inputs[i].impl(), t.value, t.storage, stand.impl()->storage});
      t.value = stand.impl()->value;
      t.storage = stand.impl()->storage;
    }
  }
  ~Stand() {
    for (Saved& s : saved_) {
      if (s.owner->storage != s.stand) continue;  // the function gave the tensor another value
      s.owner->value = std::move(s.value);
      s.owner->storage = std::move(s.storage);
    }
  }
  Stand(const Stand&) = delete;
  Stand& operator=(const Stand&) = delete;

 private:
  struct Saved {
    std::shared_ptr<Tensor::Impl> owner;
    UOp value;
    std::shared_ptr<Storage> storage, stand;
  };
  std::vector<Saved> saved_;
};

bool is_pending(const Tensor::Impl& t) {
  const UOp& u = t.state();
  return u.op() != Op::Buffer && u->device && !is_weak(u.dtype()) && u.shape().numel() != 0;
}
bool has_pending_store(const Tensor::Impl& t) { return t.storage && is_pending(t); }
bool is_waiting_value(const Tensor::Impl& t) { return !t.storage && is_pending(t); }

// The tensors whose graphs reach a BUFFER, or a draw of random words, that `is_it` says yes to.
template <class Fn> std::vector<Tensor> that_reach(std::vector<Tensor> tensors, Fn&& is_it, bool (*enter)(const Node*)) {
  std::vector<UOp> roots;
  for (const Tensor& t : tensors) roots.push_back(t.impl()->state());
  std::unordered_map<const Node*, char> reaches;
  for (const Node* n : toposort(roots, enter)) {
    char r = (n->op == Op::Buffer || n->op == Op::Threefry) && is_it(n);
    if (const UOp where = r || n->op == Op::Buffer ? UOp() : realized(UOp(n))) {
      const UOp b = engine::buffer_below(where);
      r |= b && is_it(b.node());
    }
    for (const Node* s : n->src())
      if (const auto it = reaches.find(s); it != reaches.end()) r |= it->second;
    reaches[n] = r;
  }
  std::vector<Tensor> out;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (reaches[roots[i].node()]) out.push_back(std::move(tensors[i]));
  return out;
}
bool not_realised(const Node* n) { return n->op == Op::Buffer || !realized(UOp(n)); }

template <class Fn> std::vector<Tensor> live_if(Fn&& wanted) {
  std::vector<Tensor> out;
  for (Tensor& t : detail::live_tensors())
    if (wanted(*t.impl())) out.push_back(std::move(t));
  return out;
}

// Tensors whose gradients the open capture has left out.
thread_local std::vector<std::weak_ptr<Tensor::Impl>> left_out;

void leave_out(const std::shared_ptr<Tensor::Impl>& owner) {
  owner->grad = {};
  owner->grad_use = Tensor::Impl::GradUse::LeftOut;
  if (engine::is_capturing()) left_out.push_back(owner);
}

}  // namespace

void detail::leave_out_gradients(std::span<const UOp> roots) {
  std::vector<Tensor> owners = live_if([](const Tensor::Impl& t) { return t.grad_use == Tensor::Impl::GradUse::Unread; }), grads;
  if (owners.empty()) return;
  std::unordered_set<const Node*> overwritten;
  for (const Node* n : toposort(roots, not_realised)) {
    if (n->op != Op::After || realized(UOp(n))) continue;
    while (n->op == Op::After || engine::is_view(n)) n = n->src()[0];
    overwritten.insert(n);
  }
  for (const Tensor& t : owners) grads.push_back(t.impl()->grad);
  grads = that_reach(std::move(grads), [&](const Node* n) { return overwritten.contains(n); }, not_realised);
  for (const Tensor& t : owners) {
    const Tensor::Impl& grad = *t.impl()->grad.impl();
    const bool is_root = grad.storage && std::ranges::find(roots, grad.storage->state()) != roots.end();
    if (!is_root && std::ranges::any_of(grads, [&](const Tensor& g) { return g.is_same(t.impl()->grad); })) leave_out(t.impl());
  }
}

struct TinyJit::Captured {
  std::unique_ptr<engine::CapturedGraph> graph;
  std::vector<Signature> inputs;
  std::vector<Shape> parts;  // shapes of the inputs' places, which say how they were cut

  // Memory that the graph uses in place, with the counts that tell whether somebody came who is interested in it. A
  // reader of memory that the graph overwrites is computed before a replay, so that it shows what it was made from; a
  // store that waits is done before a replay that reads the memory.
  struct Watch {
    UOp node, part;  // one of several devices, or the node again
    std::shared_ptr<Storage> storage;
    BufferPtr memory;
    uint32_t n_refs;
    int64_t n_uses;
  };
  std::vector<Watch> watches;
  bool is_sure = true;                             // each memory has one storage only, so counts cannot stay the same by chance
  std::unordered_map<const Buffer*, bool> memory;  // used in place; is written
  struct Result {
    UOp chain{};  // over the PARAM of a storage
    size_t n_places = 1;
    // Tensors from before the capture, or inputs, are these again.
    UOp same_chain{};
    std::weak_ptr<Storage> storage{};
    UOp node{};  // of the state, when it is on several devices
    int64_t input = -1;
  };
  std::vector<Result> results;
  std::vector<std::weak_ptr<Tensor::Impl>> left_out;  // tensors whose gradients a replay does not compute,
  std::vector<size_t> left_out_inputs;                // and inputs: they are others than in the capture
  Bindings bindings;
  bool writes_inputs = false;
  uint64_t known_generation = 0;  // in which the last replay found nothing to do before it

  void start_watch();
  bool writes_waited_for(const Placed& in) const;
  bool has_changed() const;
  void settle(const Placed& in);
  Tensor result(size_t number, const std::shared_ptr<Storage>& storage, std::span<const UOp> places, const Bindings& bound) const;
};

Tensor TinyJit::Captured::result(size_t number, const std::shared_ptr<Storage>& storage, std::span<const UOp> places, const Bindings& bound) const {
  const Result& r = results[number];
  if (storage && r.same_chain && shown_elems(r.same_chain) == storage->state().shape().numel())
    return Tensor(std::make_shared<Tensor::Impl>(rebound(r.same_chain, bound), storage));
  SmallVec<UOp, 4> memories;
  for (const UOp& p : places) memories.push_back(base_of(p));
  const UOp node = r.node && std::ranges::equal(buffer_parts(r.node), memories) ? r.node : join_buffers(memories);
  return Tensor(std::make_shared<Tensor::Impl>(rebound(r.chain, bound), std::make_shared<Storage>(node)));
}

void TinyJit::Captured::start_watch() {
  watches.clear();
  is_sure = true;
  if (memory.empty()) {
    for (const auto& f : graph->fixed_memory()) memory[f.memory.get()] = f.is_written;
    for (size_t i = 0; i < graph->n_inputs(); ++i) writes_inputs |= graph->writes_input(i);
  }
  {
    std::unordered_map<const Storage*, char> seen;
    for (const Tensor& t : detail::live_tensors()) {
      const auto& s = t.impl()->storage;
      if (!s || s->state().op() != Op::Buffer || !seen.try_emplace(s.get(), 1).second) continue;
      for (const UOp& part : buffer_parts(s->state())) {
        const BufferPtr b = engine::buffer_of(part);
        if (!memory.contains(b.get())) continue;
        const auto it = std::ranges::find_if(watches, [&](const Watch& w) { return w.memory == b; });
        if (it == watches.end()) {
          watches.push_back({s->state(), part, s, b, 0, 0});
        } else {
          is_sure = false;
        }
      }
    }
  }
  for (Watch& w : watches) {
    w.n_refs = w.node->refs.load(std::memory_order_relaxed);
    w.n_uses = w.memory.use_count();
  }
}

// Does a value that waits, maybe, read an input that the graph writes?
bool TinyJit::Captured::writes_waited_for(const Placed& in) const {
  for (size_t i = 0; writes_inputs && i < in.memory.size(); ++i) {
    if (!graph->writes_input(i)) continue;
    // Known are `in` and the tensor's storage, with views between that are here for `in` alone.
    const UOp& whole = in.whole[in.input[i]];
    const Node* n = (whole ? whole : in.memory[i]).node();
    for (; n->op == Op::Reshape || n->op == Op::Unshard; n = n->src()[0])
      if (n->refs.load(std::memory_order_relaxed) > 1) return true;
    if (n->refs.load(std::memory_order_relaxed) > 2) return true;
  }
  return false;
}

bool TinyJit::Captured::has_changed() const {
  bool changed = !is_sure;  // all are looked at: that takes less time than branches
  for (const Watch& w : watches) {
    changed |= w.storage->state() != w.node;
    changed |= payload_address(w.part) != w.memory.get();
    changed |= w.node->refs.load(std::memory_order_relaxed) != w.n_refs;
    changed |= w.memory.use_count() != w.n_uses;
  }
  return changed;
}

void TinyJit::Captured::settle(const Placed& in) {
  std::unordered_map<const Buffer*, char> overwritten;
  for (const auto& [b, is_written] : memory)
    if (is_written) overwritten[b] = 1;
  for (size_t i = 0; i < in.memory.size(); ++i)
    if (graph->writes_input(i)) overwritten[engine::buffer_at(base_of(in.memory[i]))] = 1;
  // A value that is the memory itself, which nobody would compute.
  for (const Tensor& t : live_if([](const Tensor::Impl& i) { return !i.storage && engine::is_buffer_view(i.value); }))
    if (any_memory(base_of(t.uop()), [&](const Buffer* b) { return overwritten.contains(b); })) t.impl()->take(*t.clone().realize().impl());
  const auto compute = [](bool (*which)(const Tensor::Impl&), bool (*enter)(const Node*), auto&& is_it) {
    Tensor::realize_all(that_reach(live_if(which), [&](const Node* n) { return any_memory(UOp(n), is_it); }, enter));
  };
  // Also what reaches it through computed nodes: those would be found again, with their old values, by who makes them anew.
  compute(is_waiting_value, nullptr, [&](const Buffer* b) { return overwritten.contains(b); });
  compute(has_pending_store, not_realised, [&](const Buffer* b) { return memory.contains(b) || overwritten.contains(b); });
  start_watch();
}

namespace {

// JIT_CHECK=1: what the function itself makes of a call, which is then undone.
class Beside {
 public:
  Beside(std::vector<BufferPtr> state, const engine::CapturedGraph& graph, std::span<const Tensor> inputs, std::span<const Tensor> given,
         const TinyJit::Body& body)
      : memory_(std::move(state)) {
    {
      Tensor::realize_all(live_if(has_pending_store));
      const Placed in = in_memory(inputs, true);  // later it would look like a reader of what the function overwrites
      check_copies(graph, in);
      for (size_t i = 0; i < in.memory.size(); ++i)
        if (graph.writes_input(i)) memory_.push_back(engine::buffer_of(base_of(in.memory[i])));
    }
    const auto before = contents();
    std::vector<Tensor> results = body(given), all = results;
    for (Tensor& t : live_if(has_pending_store)) all.push_back(std::move(t));
    Tensor::realize_all(all);
    results_ = bytes_of(results);
    stored_ = contents();
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i]->copyin(before[i].data(), memory_[i]->n_bytes());
  }
  void compare(std::span<const Tensor> replayed) const {
    WHIT_USER(replayed.size() == results_.size(), Jit, "[jit] JIT_CHECK: the function gives {} tensors now, {} were captured", results_.size(),
              replayed.size());
    same("result", bytes_of(replayed), results_);
    same("stored tensor", contents(), stored_);
  }

 private:
  using Contents = std::vector<std::vector<std::byte>>;
  static Contents bytes_of(std::span<const Tensor> tensors) {
    Contents out;
    for (const Tensor& t : tensors) out.push_back(t.bytes());
    return out;
  }
  Contents contents() const {
    Contents out;
    for (const BufferPtr& b : memory_) b->copyout(out.emplace_back(static_cast<size_t>(b->n_bytes())).data(), b->n_bytes());
    return out;
  }
  static void same(const char* what, const Contents& got, const Contents& want) {
    for (size_t i = 0; i < got.size(); ++i) {
      const auto at = std::mismatch(got[i].begin(), got[i].end(), want[i].begin(), want[i].end()).first;
      WHIT_USER(got[i] == want[i], Jit,
                "[jit] JIT_CHECK: {} {} of the replay is not what the function gives now, from byte {} of {} on: it depends "
                "on something that is no tensor among its arguments or its state",
                what, i, at - got[i].begin(), want[i].size());
    }
  }
  std::vector<BufferPtr> memory_{};  // that the call writes
  Contents results_{}, stored_{};
};

}  // namespace

TinyJit::TinyJit(Body body, int64_t memory_budget) : body_(std::move(body)), memory_budget_(memory_budget) {
  WHIT_USER(memory_budget >= 0, Value, "[jit] memory_budget is {} bytes; expected none below 0", memory_budget);
}
TinyJit::~TinyJit() = default;

void TinyJit::reset() {
  captured_.reset();
  cnt_ = 0;
  settles_values_ = false;
}

int64_t TinyJit::n_kernels() const { return captured_ ? captured_->graph->n_kernels() : 0; }
int64_t TinyJit::arena_bytes() const { return captured_ ? captured_->graph->arena_bytes() : 0; }
int64_t TinyJit::lasting_bytes() const { return captured_ ? captured_->graph->lasting_bytes() : 0; }

std::vector<Tensor> TinyJit::call(std::span<const Tensor> given, const Body& body) {
  if (detail::n_traces > 0) return body(given);
  const uint64_t now = generation.load(std::memory_order_acquire);
  if (!captured_ || !given.empty() || !captured_->results.empty() || captured_->known_generation != now || !captured_->graph->launch())
    return checked_call(given, body, now);
  ++cnt_;
  return {};
}

std::vector<Tensor> TinyJit::checked_call(std::span<const Tensor> given, const Body& body, uint64_t now) {
  const engine::MemoryBudget budget(memory_budget_);
  // Sizes that are bound for this call are values, not memory.
  Bindings bound;
  SmallVec<Tensor, 8> inputs;
  for (const Tensor& t : given) {
    const bool is_size = t.defined() && t.shape().empty() && t.dtype() == DType::WeakInt;
    const bool any = (is_size || (t.defined() && t.shape().is_symbolic())) && collect_bindings(t.impl()->value, bound);
    if (!is_size || !any) inputs.push_back(t);
  }
  if (captured_ && flag::JIT()) {
    const auto& want = captured_->inputs;
    WHIT_USER(inputs.size() == want.size(), Jit, "[jit] {} input tensors; captured with {}", inputs.size(), want.size());
    VariableValues values;
    for (const auto& [name, v] : captured_->bindings) {
      const auto it = bound.find(name);
      WHIT_USER(it != bound.end() && it->second.src(0) == v.src(0), Jit,
                "[jit] the variable '{}' from {} to {} is not among the inputs; it was when captured", name, v.vmin(), v.vmax());
      values[name] = it->second.arg().as_int();
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      WHIT_USER(inputs[i].defined(), Jit, "[jit] input {} is undefined", i);
      const Tensor::Impl& t = *inputs[i].impl();
      WHIT_USER(same_sizes(t.value.shape(), want[i].shape, bound) && t.value.dtype() == want[i].dtype && t.state()->device == want[i].device, Jit,
                "[jit] input {} is {}; captured with {}", i, signature_of(inputs[i]).str(), want[i].str());
    }
    std::optional<Beside> beside;
    if (flag::JIT_CHECK() && !engine::is_capturing()) {
      std::vector<BufferPtr> state;
      for (const auto& w : captured_->watches)
        if (captured_->memory.at(w.memory.get())) state.push_back(w.memory);
      beside.emplace(std::move(state), *captured_->graph, inputs, given, body);
    }
    Placed in = in_memory(inputs);
    for (size_t i = 0; i < in.memory.size(); ++i)
      WHIT_USER(!in.whole[in.input[i]] || in.memory[i].shape() == captured_->parts[i], Jit,
                "[jit] input {} is in parts of {}; captured with parts of {}", in.input[i], in.memory[i].shape(), captured_->parts[i]);
    check_copies(*captured_->graph, in);
    if (captured_->writes_waited_for(in) || (captured_->known_generation != now && captured_->has_changed())) {
      captured_->settle(in);
      if (captured_->writes_inputs) in = in_memory(inputs, true);
    }
    const std::vector<UOp> done = captured_->graph->replay(in.memory, values);
    if (captured_->left_out.empty()) captured_->known_generation = now;
    for (const auto& t : captured_->left_out)
      if (const auto owner = t.lock()) leave_out(owner);
    for (const size_t i : captured_->left_out_inputs) leave_out(inputs[i].impl());
    std::vector<Tensor> out;
    out.reserve(captured_->results.size());
    size_t place = 0;
    for (const Captured::Result& r : captured_->results) {
      const auto i = static_cast<size_t>(r.input);
      const auto storage = r.input < 0 ? r.storage.lock() : in.is_copied[i] ? nullptr : inputs[i].impl()->storage;
      out.push_back(captured_->result(out.size(), storage, std::span(done).subspan(place, r.n_places), bound));
      place += r.n_places;
    }
    if (beside) beside->compare(out);
    ++cnt_;
    return out;
  }
  if (cnt_ == 0 || !flag::JIT()) {
    std::vector<Tensor> out = body(given);
    Tensor::realize_all(out);
    ++cnt_;
    return out;
  }
  WHIT_USER(!engine::is_capturing(), Runtime, "[jit] a function with a jit of its own was called while another one is captured");
  auto fresh = std::make_unique<Captured>();
  Placed in = in_memory(inputs, true);
  std::ranges::transform(inputs, std::back_inserter(fresh->inputs), signature_of);
  for (const UOp& p : in.memory) fresh->parts.push_back(p.shape());
  fresh->bindings = bound;

  // What waits to be stored belongs to the time before; values that wait may read what the function overwrites.
  Tensor::realize_all(live_if(has_pending_store));
  if (settles_values_) Tensor::realize_all(that_reach(live_if(is_waiting_value), [](const Node*) { return true; }, not_realised));
  // Weights that nobody has computed yet would be drawn by each replay.
  Tensor::realize_all(that_reach(live_if(is_waiting_value), [](const Node* n) { return n->op == Op::Threefry; }, not_realised));
  std::vector<Tensor> out;
  {
    const Stand stand(inputs, in);
    engine::Capture capture(in.memory);
    left_out.clear();
    in.memory.clear();  // a reference would look like a reader of what the function overwrites
    in.whole.clear();
    std::vector<std::tuple<std::weak_ptr<Tensor::Impl>, const Storage*, const Node*>> before;
    std::unordered_map<const Storage*, std::weak_ptr<Storage>> storages;
    for (const Tensor& t : detail::live_tensors()) {
      const auto& s = t.impl()->storage;
      if (s) storages.emplace(s.get(), s);
      before.emplace_back(t.impl(), s.get(), t.impl()->value.node());
    }
    std::vector<char> had_grad;  // by input
    for (const Tensor& t : inputs) had_grad.push_back(t.impl()->grad.defined());
    out = body(given);
    std::vector<Tensor> all = out;
    for (Tensor& t : live_if(has_pending_store)) {
      const auto it = storages.find(t.impl()->storage.get());
      if (it != storages.end() && it->second.lock() == t.impl()->storage) all.push_back(std::move(t));
    }
    Tensor::realize_all(all);
    all.clear();
    std::vector<UOp> results;
    for (const Tensor& t : out) {
      WHIT_USER(t.device() && !is_weak(t.dtype()), Jit, "[jit] a result is a constant without memory; return tensors that are computed on a device");
      const UOp whole = whole_buffer(t);
      Captured::Result& r = fresh->results.emplace_back();
      const Tensor in_place = detail::memory_tensor(sized(whole, t.shape()));
      r.chain = in_place.impl()->value;
      const auto places = places_of(whole);
      results.insert(results.end(), places.begin(), places.end());
      r.n_places = places.size();
      const auto& storage = t.impl()->storage;
      if (!storage || !storages.contains(storage.get())) {  // what is held is what replays take turns with, no view of a temporary
        t.impl()->value = r.chain;
        t.impl()->storage = in_place.impl()->storage;
        continue;
      }
      for (size_t i = 0; i < inputs.size() && r.input < 0; ++i)
        if (inputs[i].impl()->storage == storage) r.input = static_cast<int64_t>(i);
      r.same_chain = t.impl()->value;
      r.storage = storage;
      if (r.n_places > 1) r.node = base_of(whole);
    }
    fresh->left_out = std::move(left_out);
    for (size_t i = 0; i < inputs.size(); ++i)
      if ((!had_grad[i] && inputs[i].impl()->grad.defined()) ||
          std::ranges::any_of(fresh->left_out, [&](const auto& t) { return t.lock() == inputs[i].impl(); }))
        fresh->left_out_inputs.push_back(i);
    fresh->graph = memory_budget_ ? capture.finish(results, 0) : capture.finish(results);
    check_copies(*fresh->graph, in);
    // Values from before that read overwritten memory, were computed in the capture, or became others (a gradient that is added
    // to), would be computed again by each replay, from what the memory holds then. This call was right; the next one captures,
    // once they are computed.
    std::vector<Tensor> still;
    Tensor replaced;
    bool again = false;
    for (const auto& [tensor, storage, value] : before) {
      const auto t = tensor.lock();
      if (!t) continue;
      const bool was_computed = !storage && t->storage;
      again |= was_computed;
      if (!was_computed && (t->storage.get() != storage || (!storage && t->value.node() != value))) replaced = Tensor(t);
      if (is_waiting_value(*t)) still.emplace_back(t);
    }
    const auto lost = capture.overwritten();
    const auto is_lost = [&](const Node* n) { return std::ranges::any_of(lost, [&](const UOp& b) { return b.node() == n; }); };
    again |= replaced.defined() || !that_reach(std::move(still), is_lost, nullptr).empty();
    if (again && !settles_values_) {
      settles_values_ = true;
      ++cnt_;
      return out;
    }
    WHIT_USER(!replaced.defined(), Jit,
              "[jit] the function replaced the value of a tensor from before it, of shape {}, which a replay cannot; assign() to one that is in "
              "memory, as clone() makes it",
              replaced.shape());
  }
  captured_ = std::move(fresh);
  captured_->start_watch();
  ++cnt_;
  return out;
}

}  // namespace whit
