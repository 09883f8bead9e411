// How it works. A temporary lives from the first call that touches it to the last. Buffers are placed one by one,
// each at the lowest offset that overlaps no placed buffer that lives at the same time: in four orders (largest first,
// longest first ..), of which the best is taken. That keeps the arena close to the largest sum of live bytes (reported as
// live_bytes), which no plan can be below. It is quadratic, so thousands of buffers are placed in the order of calls
// alone, which looks only at what is alive.
//
// Before that, where most is alive, a result takes the memory of an operand that its kernel is the last to read, at the
// very places that it writes. Only there: elsewhere it would make kernels that are equal different ones, and what two
// calls write does not last from replay to replay.
#include "schedule/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/flags.h"
#include "ir/build.h"
#include "ir/uop.h"

namespace whit::sched {

constexpr int64_t kAlign = 256;
int64_t planned_bytes(const ScheduleBuffer& b) { return (b.n_elems * n_bytes(b.dtype) + kAlign - 1) / kAlign * kAlign; }

namespace {

struct Lifetime {
  int32_t buffer;
  int64_t first = -1, last = -1, n_bytes = 0, offset = -1;
};

constexpr size_t kFewBuffers = 300, kManyBuffers = 3000;

using Before = bool (*)(const Lifetime& a, const Lifetime& b);

// Orders in which buffers are placed; which packs best depends on the graph.
bool larger(const Lifetime& a, const Lifetime& b) {
  return a.n_bytes != b.n_bytes ? a.n_bytes > b.n_bytes : a.first != b.first ? a.first < b.first : a.buffer < b.buffer;
}
bool longer(const Lifetime& a, const Lifetime& b) {
  const int64_t x = a.last - a.first, y = b.last - b.first;
  return x != y ? x > y : larger(a, b);
}
bool heavier(const Lifetime& a, const Lifetime& b) {  // bytes times calls
  const __int128 x = static_cast<__int128>(a.n_bytes) * (a.last - a.first + 1);
  const __int128 y = static_cast<__int128>(b.n_bytes) * (b.last - b.first + 1);
  return x != y ? x > y : larger(a, b);
}
bool earlier(const Lifetime& a, const Lifetime& b) { return a.first != b.first ? a.first < b.first : larger(a, b); }

// Each at the lowest offset that is free while it lives, in the order given. In the order of calls what has ended is forgotten.
int64_t place(const std::vector<Lifetime*>& temps, bool in_order_of_calls = false) {
  std::vector<Lifetime*> placed;  // ascending by offset
  int64_t arena = 0;
  for (Lifetime* l : temps) {
    if (in_order_of_calls) std::erase_if(placed, [&](const Lifetime* p) { return p->last < l->first; });
    int64_t offset = 0;
    for (const Lifetime* p : placed) {
      if (p->last < l->first || l->last < p->first) continue;
      if (offset + l->n_bytes <= p->offset) break;
      offset = std::max(offset, p->offset + p->n_bytes);
    }
    l->offset = offset;
    arena = std::max(arena, offset + l->n_bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), l, [](const Lifetime* a, const Lifetime* b) { return a->offset < b->offset; }), l);
  }
  return arena;
}

// The calls between which each buffer lives; first is -1 for one that no call touches.
std::vector<Lifetime> lifetimes(const Schedule& s) {
  std::vector<Lifetime> lives(s.buffers.size());
  for (size_t b = 0; b < lives.size(); ++b) lives[b].buffer = static_cast<int32_t>(b), lives[b].n_bytes = planned_bytes(s.buffers[b]);
  for (size_t c = 0; c < s.calls.size(); ++c)
    for (const int32_t b : s.calls[c].args) {
      Lifetime& l = lives[static_cast<size_t>(b)];
      if (l.first < 0) l.first = static_cast<int64_t>(c);
      l.last = static_cast<int64_t>(c);
    }
  return lives;
}

// The bytes of temporaries that are alive at each call.
std::vector<int64_t> live_bytes(const Schedule& s, const std::vector<Lifetime>& lives) {
  std::vector<int64_t> live(s.calls.size() + 1, 0);
  for (const Lifetime& l : lives) {
    if (l.first < 0 || s.buffers[static_cast<size_t>(l.buffer)].kind != ScheduleBuffer::Kind::Temp) continue;
    live[static_cast<size_t>(l.first)] += l.n_bytes;
    live[static_cast<size_t>(l.last) + 1] -= l.n_bytes;
  }
  for (size_t c = 1; c < live.size(); ++c) live[c] += live[c - 1];
  return live;
}

// Is each element of PARAM `to` computed from no other element of PARAM `from` than that at its own place?
bool is_elementwise(const UOp& sink, int64_t to, int64_t from) {
  const auto slot = [](const Node* index) { return index->src()[0]->op == Op::Param ? index->src()[0]->arg.int_at(0) : -1; };
  const Node* written = nullptr;
  for (const UOp& e : sink.srcs()) {
    const Node* index = e.src(0).src(0).node();
    if (slot(index) != to) continue;
    int64_t n_places = 1;
    for (size_t i = 1; i < e.n_src(); ++i) n_places *= e.src(i).op() == Op::Range ? range_size(e.src(i).node()) : 0;
    if (written || index->n_src > 2 || n_places != index->src()[0]->arg.int_at(1)) return false;
    written = index;
  }
  for (const UOp& e : sink.srcs()) {
    const bool is_reader = e.src(0).src(0).node() == written;
    for (const Node* n : toposort(e.src(0)))
      if (n->op == Op::Index && slot(n) == from && (!is_reader || n->src()[1] != written->src()[1])) return false;
  }
  return written;
}

void write_in_place(Schedule& s, int64_t least_bytes) {
  std::vector<Lifetime> lives = lifetimes(s);
  std::vector<int64_t> live = live_bytes(s, lives);
  std::vector<int32_t> order(s.calls.size()), memory(s.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::iota(memory.begin(), memory.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return live[static_cast<size_t>(a)] > live[static_cast<size_t>(b)]; });
  const auto life = [&](int32_t b) -> Lifetime& {
    while (memory[static_cast<size_t>(b)] != b) b = memory[static_cast<size_t>(b)];
    return lives[static_cast<size_t>(b)];
  };
  int64_t peak = least_bytes;
  for (const int32_t c : order) {
    ScheduledCall& call = s.calls[static_cast<size_t>(c)];
    int64_t& here = live[static_cast<size_t>(c)];
    if (here <= peak) break;
    for (size_t to = 0; call.kernel && to < call.n_written; ++to)
      for (size_t from = call.n_written; from < call.args.size(); ++from) {
        Lifetime &result = life(call.args[to]), &operand = life(call.args[from]);
        const ScheduleBuffer &x = s.buffers[static_cast<size_t>(result.buffer)], &y = s.buffers[static_cast<size_t>(operand.buffer)];
        if (x.kind != ScheduleBuffer::Kind::Temp || y.kind != x.kind || x.device != y.device || x.dtype != y.dtype || x.n_elems != y.n_elems)
          continue;
        if (result.first != c || operand.last != c || !is_elementwise(call.kernel, static_cast<int64_t>(to), static_cast<int64_t>(from))) continue;
        std::unordered_map<const Node*, UOp> map;
        for (const Node* n : toposort(call.kernel)) {
          if (n->op != Op::Param || n->arg.int_at(0) < static_cast<int64_t>(from)) continue;
          const int64_t n_elems[] = {n->arg.int_at(1)}, slot = n->arg.int_at(0);
          map.emplace(n, param(slot == static_cast<int64_t>(from) ? static_cast<int64_t>(to) : slot - 1, n->dtype, n_elems));
        }
        call.kernel = substitute(call.kernel, map);
        call.updates = true;
        call.args.erase(call.args.begin() + static_cast<ptrdiff_t>(from));
        here -= result.n_bytes;
        operand.last = result.last;
        memory[static_cast<size_t>(result.buffer)] = operand.buffer;
        break;
      }
    peak = std::max(peak, here);
  }
  for (ScheduledCall& call : s.calls)
    for (int32_t& b : call.args) b = life(b).buffer;
}

}  // namespace

void plan_memory(Schedule& s, int64_t least_bytes) {
  if (!flag::NO_MEMORY_PLANNER()) write_in_place(s, least_bytes);
  const std::vector<Lifetime> lives = lifetimes(s);
  std::vector<Lifetime> temps;
  for (const Lifetime& l : lives) {
    const ScheduleBuffer& buffer = s.buffers[static_cast<size_t>(l.buffer)];
    if (buffer.kind == ScheduleBuffer::Kind::Output) s.stats.output_bytes += buffer.n_elems * n_bytes(buffer.dtype);
    if (buffer.kind != ScheduleBuffer::Kind::Temp || l.first < 0) continue;
    s.stats.temp_bytes += l.n_bytes;
    temps.push_back(l);
  }
  s.stats.live_bytes = std::ranges::max(live_bytes(s, lives));
  if (flag::NO_MEMORY_PLANNER()) {
    s.stats.arena_bytes = s.stats.temp_bytes;
    return;
  }
  std::vector<uint16_t> devices;
  for (const Lifetime& l : temps) {
    const uint16_t d = s.buffers[static_cast<size_t>(l.buffer)].device;
    if (std::find(devices.begin(), devices.end(), d) == devices.end()) devices.push_back(d);
  }
  for (const uint16_t device : devices) {
    std::vector<Lifetime*> own;
    for (Lifetime& l : temps)
      if (s.buffers[static_cast<size_t>(l.buffer)].device == device) own.push_back(&l);
    int64_t arena = INT64_MAX;
    if (own.size() > kManyBuffers) {
      std::sort(own.begin(), own.end(), [](const Lifetime* x, const Lifetime* y) { return earlier(*x, *y); });
      arena = place(own, true);
    } else {
      std::vector<Lifetime*> best;
      const auto attempt = [&](const std::vector<Lifetime*>& in_order) {
        if (const int64_t n = place(in_order); n < arena) {
          arena = n;
          best = in_order;
        }
      };
      for (const Before before : {larger, heavier, longer, earlier}) {
        std::sort(own.begin(), own.end(), [before](const Lifetime* x, const Lifetime* y) { return before(*x, *y); });
        attempt(own);
        // What ended at the top had no better place: next time it is placed first.
        for (int i = 0; i < (own.size() > kFewBuffers ? 2 : 32) && arena > s.stats.live_bytes; ++i) {
          const auto top = std::max_element(own.begin(), own.end(),
                                            [](const Lifetime* x, const Lifetime* y) { return x->offset + x->n_bytes < y->offset + y->n_bytes; });
          std::rotate(own.begin(), top, top + 1);
          attempt(own);
        }
      }
      place(best);
    }
    for (const Lifetime* l : own) s.buffers[static_cast<size_t>(l->buffer)].offset = l->offset;
    s.arenas.push_back({device, arena});
    s.stats.arena_bytes += arena;
  }
}

}  // namespace whit::sched
