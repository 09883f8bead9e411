// How it works. A temporary lives from the first call that touches it to the last. Buffers are placed one by one,
// each at the lowest offset that overlaps no placed buffer that lives at the same time: in three orders, of which
// the best is taken. That keeps the arena close to the largest sum of live bytes (reported as
// live_bytes), which no plan can be below. It is quadratic, so thousands of buffers are placed in the order of calls
// alone, which looks only at what is alive.
//
// Before that, where most is alive, a result takes the memory of an operand that its kernel is the last to read, at the
// very places that it writes. Only there: elsewhere it would make kernels that are equal different ones, and what two
// calls write does not last from replay to replay.
#include "schedule/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "base/flags.h"
#include "ir/build.h"
#include "ir/uop.h"

namespace whit::sched {

namespace {

constexpr int64_t kAlign = 256;
int64_t round_up(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

constexpr size_t kFewBuffers = 300, kManyBuffers = 3000;

using Before = bool (*)(const Lifetime& a, const Lifetime& b);

// Orders in which buffers are placed; which packs best depends on the graph.
bool larger(const Lifetime& a, const Lifetime& b) {
  return a.n_bytes != b.n_bytes ? a.n_bytes > b.n_bytes : a.first != b.first ? a.first < b.first : a.id < b.id;
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

// The calls between which each temporary lives, by buffer; first is -1 for others.
std::vector<Lifetime> lifetimes(const Schedule& s) {
  std::vector<Lifetime> lives(s.buffers.size());
  for (size_t c = 0; c < s.calls.size(); ++c)
    for (const int32_t b : s.calls[c].args) {
      const ScheduleBuffer& buffer = s.buffers[static_cast<size_t>(b)];
      if (buffer.kind != ScheduleBuffer::Kind::Temp) continue;
      lives[static_cast<size_t>(b)].id = b;
      lives[static_cast<size_t>(b)].touch(static_cast<int64_t>(c), planned_bytes(buffer));
    }
  return lives;
}

// Is each element of PARAM `to` computed from no other element of PARAM `from` than that at its own place?
bool is_elementwise(const UOp& sink, size_t to, size_t from) {
  const auto slot = [](const Node* index) { return static_cast<size_t>(index->src()[0]->op == Op::Param ? index->src()[0]->arg.int_at(0) : -1); };
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
  std::vector<int64_t> live = live_bytes(lives);
  live.resize(s.calls.size() + 1);
  std::vector<int32_t> order(s.calls.size()), memory(s.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::iota(memory.begin(), memory.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return live[static_cast<size_t>(a)] > live[static_cast<size_t>(b)]; });
  const auto memory_of = [&](int32_t b) {
    while (memory[static_cast<size_t>(b)] != b) b = memory[static_cast<size_t>(b)];
    return b;
  };
  const auto life = [&](int32_t b) -> Lifetime& { return lives[static_cast<size_t>(memory_of(b))]; };
  int64_t peak = least_bytes;
  for (const int32_t c : order) {
    ScheduledCall& call = s.calls[static_cast<size_t>(c)];
    int64_t& here = live[static_cast<size_t>(c)];
    if (here <= peak) break;
    for (size_t to = 0; call.kernel && to < call.n_written; ++to)
      for (size_t from = call.n_written; from < call.args.size(); ++from) {
        Lifetime &result = life(call.args[to]), &operand = life(call.args[from]);
        if (result.first != c || operand.last != c) continue;
        const ScheduleBuffer &x = s.buffers[static_cast<size_t>(result.id)], &y = s.buffers[static_cast<size_t>(operand.id)];
        if (x.device != y.device || x.dtype != y.dtype || x.n_elems != y.n_elems || !is_elementwise(call.kernel, to, from)) continue;
        std::unordered_map<const Node*, UOp> map;
        for (const Node* n : toposort(call.kernel)) {
          if (n->op != Op::Param) continue;
          const auto slot = static_cast<size_t>(n->arg.int_at(0));
          const int64_t n_elems[] = {n->arg.int_at(1)};
          if (slot >= from) map.emplace(n, param(static_cast<int64_t>(slot == from ? to : slot - 1), n->dtype, n_elems));
        }
        call.kernel = substitute(call.kernel, map);
        call.updates = true;
        call.args.erase(call.args.begin() + static_cast<ptrdiff_t>(from));
        here -= result.n_bytes;
        operand.last = result.last;
        memory[static_cast<size_t>(result.id)] = operand.id;
        break;
      }
    peak = std::max(peak, here);
  }
  for (ScheduledCall& call : s.calls)
    for (int32_t& b : call.args) b = memory_of(b);
}

}  // namespace

int64_t planned_bytes(const ScheduleBuffer& b) { return round_up(b.n_elems * n_bytes(b.dtype)); }

std::vector<int64_t> live_bytes(std::span<const Lifetime> temporaries) {
  std::vector<int64_t> live(2);
  for (const Lifetime& l : temporaries) {
    if (l.first < 0) continue;
    live.resize(std::max(live.size(), static_cast<size_t>(l.last) + 2));
    live[static_cast<size_t>(l.first)] += l.n_bytes;
    live[static_cast<size_t>(l.last) + 1] -= l.n_bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  return live;
}

int64_t pack(std::vector<Lifetime*> own) {
  std::vector<Lifetime*> best;
  std::vector<Lifetime> alive;
  for (Lifetime* l : own) {
    l->n_bytes = round_up(l->n_bytes);
    alive.push_back(*l);
  }
  if (own.size() > kManyBuffers) {
    std::ranges::sort(own, [](const Lifetime* x, const Lifetime* y) { return earlier(*x, *y); });
    return place(own, true);
  }
  const int64_t least = std::ranges::max(live_bytes(alive));
  int64_t arena = INT64_MAX;
  const auto attempt = [&] {
    if (const int64_t n = place(own); n < arena) {
      arena = n;
      best = own;
    }
  };
  for (const Before before : {larger, heavier, earlier}) {
    if (arena <= least) break;
    std::ranges::sort(own, [before](const Lifetime* x, const Lifetime* y) { return before(*x, *y); });
    attempt();
    // What ended at the top had no better place: next time it is placed first.
    for (int i = 0; i < (own.size() > kFewBuffers ? 2 : 32) && arena > least; ++i) {
      const auto top = std::ranges::max_element(own, {}, [](const Lifetime* l) { return l->offset + l->n_bytes; });
      std::rotate(own.begin(), top, top + 1);
      attempt();
    }
  }
  return place(best);
}

void plan_memory(Schedule& s, int64_t least_bytes) {
  if (!flag::NO_MEMORY_PLANNER()) write_in_place(s, least_bytes);
  std::vector<Lifetime> temps = lifetimes(s);
  std::erase_if(temps, [](const Lifetime& l) { return l.first < 0; });
  for (const ScheduleBuffer& b : s.buffers)
    if (b.kind == ScheduleBuffer::Kind::Output) s.stats.output_bytes += b.n_elems * n_bytes(b.dtype);
  for (const Lifetime& l : temps) s.stats.temp_bytes += l.n_bytes;
  s.stats.live_bytes = std::ranges::max(live_bytes(temps));
  s.stats.arena_bytes = flag::NO_MEMORY_PLANNER() ? s.stats.temp_bytes : 0;
  if (flag::NO_MEMORY_PLANNER()) return;
  std::map<uint16_t, std::vector<Lifetime*>> by_device;
  for (Lifetime& l : temps) by_device[s.buffers[static_cast<size_t>(l.id)].device].push_back(&l);
  for (const auto& [device, own] : by_device) {
    s.arenas.push_back({device, pack(own)});
    s.stats.arena_bytes += s.arenas.back().n_bytes;
  }
  for (const Lifetime& l : temps) s.buffers[static_cast<size_t>(l.id)].offset = l.offset;
}

}  // namespace whit::sched
