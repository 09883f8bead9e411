// How it works. A temporary lives from the first call that touches it to the last. Buffers are placed one by one,
// each at the lowest offset that overlaps no placed buffer that lives at the same time: in four orders (largest first,
// longest first ..), of which the best is taken. That keeps the arena close to the largest sum of live bytes (reported as
// live_bytes), which no plan can be below. It is quadratic, so thousands of buffers are placed in the order of calls
// alone, which looks only at what is alive.
#include "schedule/memory_plan.h"

#include <algorithm>

#include "base/flags.h"

namespace whit::sched {
namespace {

constexpr int64_t kAlign = 256;
int64_t round_up(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

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

}  // namespace

int64_t planned_bytes(const ScheduleBuffer& b) { return round_up(b.n_elems * n_bytes(b.dtype)); }

void plan_memory(Schedule& s) {
  std::vector<Lifetime> lives(s.buffers.size());
  for (size_t c = 0; c < s.calls.size(); ++c)
    for (const int32_t b : s.calls[c].args) {
      Lifetime& l = lives[static_cast<size_t>(b)];
      if (l.first < 0) l.first = static_cast<int64_t>(c);
      l.last = static_cast<int64_t>(c);
    }
  std::vector<Lifetime> temps;
  for (size_t b = 0; b < lives.size(); ++b) {
    const ScheduleBuffer& buffer = s.buffers[b];
    const int64_t n_bytes = buffer.n_elems * whit::n_bytes(buffer.dtype);
    if (buffer.kind == ScheduleBuffer::Kind::Output) s.stats.output_bytes += n_bytes;
    if (buffer.kind != ScheduleBuffer::Kind::Temp || lives[b].first < 0) continue;
    lives[b].buffer = static_cast<int32_t>(b);
    lives[b].n_bytes = planned_bytes(buffer);
    s.stats.temp_bytes += lives[b].n_bytes;
    temps.push_back(lives[b]);
  }
  // The bound: live bytes before and after each call.
  std::vector<int64_t> change(s.calls.size() + 2, 0);
  for (const Lifetime& l : temps) {
    change[static_cast<size_t>(l.first)] += l.n_bytes;
    change[static_cast<size_t>(l.last) + 1] -= l.n_bytes;
  }
  int64_t live = 0;
  for (const int64_t c : change) s.stats.live_bytes = std::max(s.stats.live_bytes, live += c);
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
