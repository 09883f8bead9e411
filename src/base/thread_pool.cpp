#include "base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "base/os.h"
#include "base/profile.h"
#include "base/text.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace whit {
namespace {

constexpr int kMaxThreads = 256;
constexpr int64_t kSpinNs = 50'000;

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()`, at most for kSpinNs. True when it was done.
template <class Done> bool spin_until(const Done& done) {
  // The clock is read rarely: it costs as much as some pauses.
  for (int64_t deadline = 0;;) {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      cpu_relax();
    }
    const int64_t now = os::now_ns();
    if (deadline == 0) deadline = now + kSpinNs;
    if (now > deadline) return done();
  }
}

struct Scratch {
  static constexpr std::align_val_t kAlign{64};
  void* data = nullptr;
  size_t n_bytes = 0;

  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { ::operator delete(data, kAlign); }

  void* reserve(size_t n) {
    if (n <= n_bytes) [[likely]]
      return data;
    n = (n + 4095) & ~size_t{4095};
    void* const grown = ::operator new(n, kAlign, std::nothrow);
    WHIT_USER(grown, Memory, "no {} of scratch memory for a kernel", format_bytes(static_cast<int64_t>(n)));
    ::operator delete(data, kAlign);
    data = grown;
    n_bytes = n;
    return data;
  }
};

// True in a worker and in a thread that is inside run().
thread_local bool in_pool = false;
thread_local ThreadPool* own_pool = nullptr;
thread_local int64_t own_threads = 0;

struct Job {
  ThreadPool::Body body;
  const void* context;
  std::span<const int64_t> extents;
  int64_t n_parts;               // of each extent
  std::atomic<int64_t> next{0};  // the next part

  void work(void* scratch) {
    int64_t begin = 0, before = 0;  // of the extent that the part is in: its first iteration; the parts before it
    size_t i = 0;
    for (;;) {
      const int64_t part = next.fetch_add(1, std::memory_order_relaxed);
      for (; part - before >= n_parts; before += n_parts, ++i)
        if (i + 1 == extents.size()) return;
        else begin += extents[i];
      const int64_t at = part - before, from = extents[i] * at / n_parts, to = extents[i] * (at + 1) / n_parts;
      if (from == to) continue;
      const ProfileSpan span("part", "part of a kernel");
      body(context, scratch, begin + from, begin + to);
    }
  }
};

// What a worker is told. Idle -> Posted by the caller -> Running by the worker -> Idle, or Posted -> Idle by the caller
// who takes the part back.
enum State : uint32_t { kIdle, kPosted, kRunning, kStop };

struct alignas(64) Slot {
  std::atomic<uint32_t> state{kIdle};
  std::atomic<uint32_t> sleeping{0};      // the worker sleeps, or is about to
  std::atomic<uint32_t> caller_waits{0};  // the caller sleeps, or is about to
  Job* job = nullptr;
  Scratch scratch;
  std::thread thread;
  int not_on = -1;  // the caller's core, where the worker may not run
};

// Keeps the worker off the core that the caller runs on. Linux often wakes it there (in a virtual machine an idle core may
// look taken), and then both share one core for milliseconds.
void keep_apart(Slot& slot) {
#ifdef __linux__
  const int here = sched_getcpu();
  cpu_set_t others;
  if (here < 0 || here == slot.not_on || sched_getaffinity(0, sizeof(others), &others) != 0) return;
  CPU_CLR(static_cast<size_t>(here), &others);
  if (CPU_COUNT(&others) > 0 && pthread_setaffinity_np(slot.thread.native_handle(), sizeof(others), &others) == 0) slot.not_on = here;
#endif
}

void work_loop(Slot& slot) {
  in_pool = true;
  for (;;) {
    const auto posted = [&] {
      const uint32_t s = slot.state.load(std::memory_order_relaxed);
      return s == kPosted || s == kStop;
    };
    if (!spin_until(posted)) {
      slot.sleeping.store(1, std::memory_order_seq_cst);
      slot.state.wait(kIdle, std::memory_order_seq_cst);
      slot.sleeping.store(0, std::memory_order_relaxed);
    }
    uint32_t expected = kPosted;
    if (!slot.state.compare_exchange_strong(expected, kRunning, std::memory_order_acquire)) {
      if (expected == kStop) return;
      continue;  // the caller took it back
    }
    slot.job->work(slot.scratch.data);
    slot.state.store(kIdle, std::memory_order_seq_cst);
    if (slot.caller_waits.load(std::memory_order_seq_cst)) slot.state.notify_all();
  }
}

}  // namespace

struct ThreadPool::Impl {
  std::mutex mutex;  // held by the caller that uses the workers
  std::vector<std::unique_ptr<Slot>> slots;
  size_t scratch_bytes = 0;

  // Workers and their scratch memory for n threads, the caller being one of them.
  void prepare(int n_threads, size_t n_bytes) {
    const size_t n_workers = static_cast<size_t>(n_threads - 1);
    if (slots.size() >= n_workers && scratch_bytes >= n_bytes) [[likely]]
      return;
    n_bytes = std::max(scratch_bytes, n_bytes);
    for (const auto& slot : slots) slot->scratch.reserve(n_bytes);
    while (slots.size() < n_workers) {
      auto slot = std::make_unique<Slot>();
      slot->scratch.reserve(n_bytes);
      slot->thread = std::thread(work_loop, std::ref(*slot));
      slots.push_back(std::move(slot));
    }
    scratch_bytes = n_bytes;
  }
};

ThreadPool::ThreadPool() : impl_(std::make_unique<Impl>()) {}

ThreadPool::~ThreadPool() {
  for (const auto& slot : impl_->slots) {
    slot->state.store(kStop, std::memory_order_seq_cst);
    slot->state.notify_all();
    slot->thread.join();
  }
}

void ThreadPool::run(std::span<const int64_t> extents, int64_t min_part, size_t scratch_bytes, Body body, const void* context, int max_threads) {
  const int64_t extent = std::accumulate(extents.begin(), extents.end(), int64_t{0});
  if (extent <= 0) return;
  min_part = std::max<int64_t>(min_part, 1);
  int64_t n_threads = max_threads > 0 ? max_threads : own_threads > 0 ? own_threads : flag::NUM_CPU_THREADS();
  n_threads = std::clamp<int64_t>(std::min(n_threads, extent / min_part), 1, kMaxThreads);
  if (n_threads == 1 || in_pool || !impl_->mutex.try_lock()) {
    body(context, thread_scratch(scratch_bytes), 0, extent);
    return;
  }
  const std::unique_lock lock(impl_->mutex, std::adopt_lock);
  impl_->prepare(static_cast<int>(n_threads), scratch_bytes);
  void* const own_scratch = thread_scratch(scratch_bytes);
  const int n_workers = static_cast<int>(n_threads - 1);

  // Several parts a thread where the range is long: threads that get less of their core then do less of the work. As many
  // for each: of three parts on two threads one would wait for the last. (What is worth a thread need not be worth a part:
  // parts may do the same work first, as packing an operand.)
  Job job{body, context, extents, n_threads * std::clamp<int64_t>(extent / min_part / n_threads / 3, 1, 4)};
  for (int i = 0; i < n_workers; ++i) {
    Slot& slot = *impl_->slots[static_cast<size_t>(i)];
    slot.job = &job;
    keep_apart(slot);
    slot.state.store(kPosted, std::memory_order_seq_cst);
    if (slot.sleeping.load(std::memory_order_seq_cst)) slot.state.notify_one();
  }
  in_pool = true;
  job.work(own_scratch);
  in_pool = false;
  for (int i = 0; i < n_workers; ++i) {
    Slot& slot = *impl_->slots[static_cast<size_t>(i)];
    uint32_t expected = kPosted;
    if (slot.state.compare_exchange_strong(expected, kIdle, std::memory_order_acquire)) continue;
    const auto idle = [&] { return slot.state.load(std::memory_order_acquire) == kIdle; };
    if (idle() || spin_until(idle)) continue;
    slot.caller_waits.store(1, std::memory_order_seq_cst);
    while (!idle()) slot.state.wait(kRunning, std::memory_order_seq_cst);
    slot.caller_waits.store(0, std::memory_order_relaxed);
  }
}

namespace {
std::atomic<ThreadPool*> process_pool{nullptr};
std::mutex process_pool_mutex;
}  // namespace

void ThreadPool::give_share(ThreadPool& pool, int64_t n_threads) { own_pool = &pool, own_threads = n_threads; }

ThreadPool& ThreadPool::get() {
  if (own_pool) return *own_pool;
  ThreadPool* pool = process_pool.load(std::memory_order_acquire);
  if (pool) [[likely]]
    return *pool;
  const std::lock_guard lock(process_pool_mutex);
  pool = process_pool.load(std::memory_order_relaxed);
  if (!pool) {
    // Never destroyed: kernels may still run in threads that outlive the exit of main. The child of a fork has no
    // threads but its own: it forgets the pool (which cannot be destroyed there) and makes another.
    static const int registered = pthread_atfork([] { process_pool_mutex.lock(); }, [] { process_pool_mutex.unlock(); },
                                                 [] {
                                                   process_pool.store(nullptr, std::memory_order_relaxed);
                                                   process_pool_mutex.unlock();
                                                   in_pool = false;
                                                 });
    (void)registered;
    pool = new ThreadPool();
    process_pool.store(pool, std::memory_order_release);
  }
  return *pool;
}

void* thread_scratch(size_t n_bytes) {
  static thread_local Scratch scratch;
  return scratch.reserve(n_bytes);
}

}  // namespace whit
