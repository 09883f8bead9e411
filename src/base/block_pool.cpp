#include "base/block_pool.h"

#include <mutex>
#include <new>

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

constexpr size_t kBatch = 512, kSlabBlocks = 512;

struct Block {
  Block* next;
  Block* next_batch;  // of the first block of a batch in the pool of the process
};

struct Shared {
  std::mutex mutex{};
  Block* batches = nullptr;  // each a list of kBatch blocks, or fewer from a thread that ended
};
Shared& shared() {
  static Shared* s = new Shared;  // never destroyed: blocks are released after static destruction
  return *s;
}

void give(Block* batch) {
  Shared& s = shared();
  std::lock_guard lock(s.mutex);
  batch->next_batch = s.batches;
  s.batches = batch;
}

// Two lists: the one in use, and a full batch that waits to be used or given away. So a thread that makes and drops at
// the edge of a batch does not come here each time. Trivial, since it is used after the thread's destructors have run.
struct Local {
  Block* free;
  size_t n_free;
  Block* spare;  // a full batch or null
  bool is_ending;
};
thread_local Local local;

struct AtThreadEnd {
  ~AtThreadEnd() {
    local.is_ending = true;
    if (local.free) give(local.free);
    if (local.spare) give(local.spare);
    local = {nullptr, 0, nullptr, true};
  }
};

Block* refill() {
  static thread_local AtThreadEnd at_end;
  (void)at_end;
  if (local.spare) {
    Block* batch = local.spare;
    local.spare = nullptr;
    return batch;
  }
  {
    Shared& s = shared();
    std::lock_guard lock(s.mutex);
    if (Block* batch = s.batches) {
      s.batches = batch->next_batch;
      return batch;
    }
  }
  auto* slab = static_cast<char*>(::operator new(kSlabBlocks * kBlockBytes, std::align_val_t(kBlockAlign)));
  Block* list = nullptr;
  for (size_t i = kSlabBlocks; i-- > 0;) {
    Block* b = reinterpret_cast<Block*>(slab + i * kBlockBytes);
    b->next = list;
    list = b;
  }
  return list;
}

}  // namespace

void* allocate() {
  if (!local.free) [[unlikely]] {
    local.free = refill();
    local.n_free = 0;
    for (const Block* b = local.free; b; b = b->next) ++local.n_free;
  }
  Block* b = local.free;
  local.free = b->next;
  --local.n_free;
  if (local.is_ending && local.free) [[unlikely]] {  // nothing may stay in a thread that ends
    give(local.free);
    local.free = nullptr;
  }
  return b;
}

void release(void* block) {
  Block* b = static_cast<Block*>(block);
  b->next = local.free;
  local.free = b;
  if (local.is_ending) [[unlikely]] {
    give(b);
    local.free = nullptr;
    return;
  }
  if (++local.n_free < kBatch) return;
  if (local.spare) give(local.spare);
  local.spare = local.free;
  local.free = nullptr;
  local.n_free = 0;
}

#endif

}  // namespace whit::block_pool
