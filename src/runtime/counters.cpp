#include "runtime/counters.h"

#include "base/os.h"
#include "base/profile.h"

namespace whit {

namespace {
struct Slot {
  ThreadSum::Parts parts{};
  std::atomic<bool> is_taken{true};
  Slot* next = nullptr;
};
std::atomic<Slot*> slots{nullptr};  // of all threads; one that has ended leaves its slot, with what it counted, to another
}  // namespace

ThreadSum::Parts& ThreadSum::take() {
  struct Owner {
    Slot* slot;
    ~Owner() { slot->is_taken.store(false, std::memory_order_release); }
  };
  Slot* s = slots.load(std::memory_order_acquire);
  while (s && s->is_taken.exchange(true, std::memory_order_acq_rel)) s = s->next;
  if (!s) {
    s = new Slot{.next = slots.load(std::memory_order_relaxed)};
    while (!slots.compare_exchange_weak(s->next, s, std::memory_order_acq_rel)) continue;
  }
  static thread_local const Owner owner{s};
  return *(own_ = &owner.slot->parts);
}

int64_t ThreadSum::load() const {
  int64_t sum = -before_.load();
  for (const Slot* s = slots.load(std::memory_order_acquire); s; s = s->next) sum = add(sum, s->parts[part_].load(std::memory_order_relaxed));
  return sum;
}

GlobalCounters& counters() {
  static auto& all = *new GlobalCounters();  // buffers of static objects still count at exit
  return all;
}

void GlobalCounters::reset() {
  for (ThreadSum* s : {&kernel_count, &global_ops, &global_mem, &time_sum_ns}) s->reset();
}

void GlobalCounters::add_memory(int64_t n_bytes) {
  const int64_t used = mem_used.fetch_add(n_bytes) + n_bytes;
  int64_t peak = mem_peak.load();
  while (used > peak && !mem_peak.compare_exchange_weak(peak, used)) {
  }
  if (is_profiling()) {
    const int64_t now = os::now_ns();
    add_to_timeline({"memory", "memory in use", "", 0, now, now, used});
  }
}

}  // namespace whit
