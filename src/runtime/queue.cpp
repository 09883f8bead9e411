#include "runtime/queue.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "base/immortal.h"
#include "base/os.h"
#include "base/thread_pool.h"
#include "runtime/buffer.h"
#include "runtime/device.h"

namespace whit {
namespace {

// Work that must be done before. With `is_read` its failure is the failure of what follows.
struct Before {
  Queue* queue;
  uint64_t number;
  bool is_read;
};
struct Work {
  std::vector<Before> after{};
  std::string name{};
  std::function<void()> run{};
};
struct Failure {
  uint64_t number;
  std::string text;
  ErrorKind kind;
};
thread_local bool is_worker = false;  // the thread of a queue
std::atomic<int> n_threads{0};        // of queues, which share the cores

// Work is given by one thread at a time: so the order in which it touches a buffer is known.
struct OrderMutex : std::mutex {};
constexpr auto order_mutex = immortal<OrderMutex>;

QueuedUse bytes_of(const BufferUse& u, Queue* queue = nullptr, uint64_t number = 0) {
  const int64_t first = u.buffer->off_bytes() + u.offset;
  return {queue, number, u.is_written, first, first + (u.n_bytes < 0 ? u.buffer->n_bytes() - u.offset : u.n_bytes)};
}
bool overlap(const QueuedUse& a, const QueuedUse& b) { return a.first < b.last && b.first < a.last; }

}  // namespace

struct Queue::Impl {
  const std::string device;
  pid_t pid = getpid();
  std::mutex mutex{};
  std::condition_variable changed{};
  std::deque<Work> work{};
  uint64_t n_given = 0, n_done = 0;
  bool is_stopping = false;
  std::vector<Failure> failures{};
  size_t n_raised = 0;  // failures that the host has heard of
  ThreadPool pool{};
  std::thread thread{};

  explicit Impl(std::string name) : device(std::move(name)) {}

  // A fork waits until nothing is under way, as the child would wait for ever. The lock of the order is held.
  void wait_before_forks() {
    static auto& queues = *new std::vector<Impl*>();
    const auto unlock = [] { order_mutex().unlock(); };
    const auto wait_for_all = [] {
      order_mutex().lock();
      for (Impl* q : queues) q->wait(q->n_given);
    };
    if (queues.empty()) pthread_atfork(wait_for_all, unlock, unlock);
    if (std::ranges::find(queues, this) == queues.end()) queues.push_back(this);
  }

  uint64_t give(Work w) {
    const std::lock_guard lock(mutex);
    if (!thread.joinable()) {
      wait_before_forks();
      ++n_threads;
      next_generation();
      is_stopping = false;
      thread = std::thread([this] { loop(); });
    }
    work.push_back(std::move(w));
    changed.notify_all();
    return ++n_given;
  }

  std::optional<Failure> wait(uint64_t number) {
    std::unique_lock lock(mutex);
    while (n_done < number) {
      changed.wait_for(lock, std::chrono::milliseconds(20));
      if (is_worker) continue;
      lock.unlock();
      os::poll_interrupt();
      lock.lock();
    }
    const auto at = std::ranges::find(failures, number, &Failure::number);
    return at == failures.end() ? std::nullopt : std::optional(*at);
  }
  [[noreturn]] void tell(const Failure& f) {
    n_raised = failures.size();
    raise(f.kind, "{}", f.text);
  }

  void loop() {
    is_worker = true;
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return !work.empty() || is_stopping; });
      if (work.empty()) return;
      Work w = std::move(work.front());
      work.pop_front();
      lock.unlock();
      std::optional<Failure> failure;
      for (const Before& b : w.after) {
        const auto earlier = b.queue->impl().wait(b.number);
        if (earlier && b.is_read && !failure) failure = earlier;
      }
      const auto fail = [&](const char* why, ErrorKind kind) { failure = {0, fmt::format("{} on {}: {}", w.name, device, why), kind}; };
      ThreadPool::give_share(pool, std::max<int64_t>(1, flag::NUM_CPU_THREADS() / n_threads.load()));
      try {
        if (!failure) w.run();
      } catch (const Error& e) {
        fail(e.what(), e.kind());
      } catch (const std::exception& e) {
        fail(e.what(), ErrorKind::Runtime);
      }
      w = {};  // memory is free before anybody hears that the work is done
      lock.lock();
      ++n_done;
      if (failure) failures.push_back({n_done, std::move(failure->text), failure->kind});
      changed.notify_all();
    }
  }
};

Queue::Queue(std::string device) : impl_(std::make_unique<Impl>(std::move(device))) {}
Queue::~Queue() { stop(); }

bool Queue::is_alive() const { return impl_->pid == getpid(); }

void Queue::wait() {
  if (is_worker || !is_alive()) return;  // work may not wait for itself
  Impl& q = *impl_;
  q.wait(q.n_given);
  const std::lock_guard lock(q.mutex);
  if (q.n_raised < q.failures.size()) q.tell(q.failures[q.n_raised]);
}

void Queue::stop() {
  Impl& q = *impl_;
  if (!is_alive() || !q.thread.joinable()) return;
  {
    const std::lock_guard lock(q.mutex);
    q.is_stopping = true;
    q.changed.notify_all();
  }
  q.thread.join();
  --n_threads;
}

bool has_queues() { return n_threads.load(std::memory_order_relaxed) > 0; }

void enqueue(Device& device, std::span<const BufferUse> uses, const std::string& name, std::function<void()> work) {
  std::unique_lock lock(order_mutex());
  Queue* const queue = device.queue();
  Work w{{}, name, std::move(work)};
  for (const BufferUse& use : uses)
    for (const QueuedUse& earlier : use.buffer->queued_uses())
      if (earlier.queue->is_alive() && (use.is_written || earlier.is_write) && overlap(earlier, bytes_of(use)))
        w.after.push_back({earlier.queue, earlier.number, !use.is_written && earlier.is_write});
  if (!queue) {
    lock.unlock();
    for (const Before& b : w.after)
      if (const auto failure = b.queue->impl().wait(b.number); failure && b.is_read) b.queue->impl().tell(*failure);
    return w.run();
  }
  const uint64_t number = queue->impl().give(std::move(w));
  for (const BufferUse& use : uses) {
    std::vector<QueuedUse>& all = use.buffer->queued_uses();
    const QueuedUse now = bytes_of(use, queue, number);
    // Who comes after this waits for what this waits for.
    std::erase_if(all, [&](const QueuedUse& u) {
      return now.first <= u.first && u.last <= now.last && (now.is_write ? u.number != number || u.queue != queue : !u.is_write && u.queue == queue);
    });
    all.push_back(now);
  }
}

void wait_for(Buffer& buffer, bool readers) {
  if (is_worker || !has_queues()) return;
  std::unique_lock lock(order_mutex());
  std::vector<QueuedUse> uses = buffer.queued_uses();
  const auto elsewhere = [&](const QueuedUse& u) { return !overlap(u, bytes_of({&buffer, readers})); };
  std::erase_if(uses, elsewhere);
  if (readers) std::erase_if(buffer.queued_uses(), std::not_fn(elsewhere));
  lock.unlock();
  for (const QueuedUse& use : uses) {
    if (!use.queue->is_alive() || !(readers || use.is_write)) continue;
    if (const auto failure = use.queue->impl().wait(use.number); failure && !readers) use.queue->impl().tell(*failure);
  }
}

}  // namespace whit
