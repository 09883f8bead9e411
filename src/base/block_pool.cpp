#include "base/block_pool.h"

#include <mutex>
#include <new>
#include <utility>

#include "base/immortal.h"

#if defined(__SANITIZE_ADDRESS__)
#define WHIT_POOL_OFF 1  // the address sanitizer must see every object by itself
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WHIT_POOL_OFF 1
#endif
#endif

namespace whit::block_pool {

#ifdef WHIT_POOL_OFF

void* allocate() { return ::operator new(kBlockBytes, std::align_val_t(kBlockAlign)); }
void release(void* block) { ::operator delete(block, std::align_val_t(kBlockAlign)); }

#else

namespace {

constexpr size_t kBatch = 512;

struct Block {
  Block* next;
  Block* next_batch;  // of the first block of a batch in the pool of the process
};

struct Shared {
  std::mutex mutex{};
  Block* batches = nullptr;  // each a list of kBatch blocks, or fewer from a thread that ended
};
constexpr auto shared = immortal<Shared>;

void give(Block* batch) {
  if (!batch) return;
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  batch->next_batch = s.batches;
  s.batches = batch;
}

Block* take() {
  Shared& s = shared();
  {
    std::lock_guard lock(s.mutex);
    if (Block* batch = s.batches) {
      s.batches = batch->next_batch;
      return batch;
    }
  }
  auto* slab = static_cast<char*>(::operator new(kBatch * kBlockBytes, std::align_val_t(kBlockAlign)));
  Block* list = nullptr;
  for (size_t i = kBatch; i-- > 0;) list = new (slab + i * kBlockBytes) Block{list, nullptr};
  return list;
}

// The free blocks of this thread. Trivial, since it is used after the thread's destructors have run.
struct Local {
  Block* free;
  size_t n_free;  // at most a batch more than counted
  bool is_ending;
};
thread_local Local local;

// Keeps the first n blocks.
void give_all_but(size_t n) {
  Block** end = &local.free;
  for (size_t i = 0; i < n && *end; ++i) end = &(*end)->next;
  give(std::exchange(*end, nullptr));
  local.n_free = n;
}

struct AtThreadEnd {
  ~AtThreadEnd() {
    local.is_ending = true;  // from now on nothing may stay
    give_all_but(0);
  }
};
void watch_thread() {
  static thread_local AtThreadEnd at_end;
  (void)at_end;
}

}  // namespace

void* allocate() {
  if (!local.free) [[unlikely]] {
    watch_thread();
    local.free = take();
    local.n_free = kBatch;
  }
  Block* b = local.free;
  local.free = b->next;
  local.n_free -= local.n_free > 0;
  if (local.is_ending) [[unlikely]]
    give_all_but(0);
  return b;
}

void release(void* block) {
  if (!local.free) [[unlikely]]
    watch_thread();
  local.free = new (block) Block{local.free, nullptr};
  if (++local.n_free >= 2 * kBatch || local.is_ending) [[unlikely]]
    give_all_but(local.is_ending ? 0 : kBatch);
}

#endif

}  // namespace whit::block_pool
