// The pool that runs one kernel on all cores.
//
// A launch cuts its range into parts; the caller runs parts too. A part is posted to a worker's own slot, so a
// launch touches only the workers it needs. A worker spins for some tens of microseconds before it sleeps, hence a
// chain of small kernels pays no system call. Requirements:
//  1. run() returns when every part is done. A part that no worker has started is taken back by the caller, so a core
//     that is busy with something else costs time, never progress.
//  2. A launch from inside a kernel, or while another thread uses the pool, runs in the calling thread.
//  3. After fork the child gets a pool of its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace whit {

class ThreadPool {
 public:
  /// Works on [first, last); `scratch` is private to the call.
  using Body = void (*)(const void* context, void* scratch, int64_t first, int64_t last);

  /// The pool of this process, or this thread's own.
  static ThreadPool& get();
  /// From now on this thread uses a pool of its own, with so many threads where run() is told none.
  static void give_share(ThreadPool& pool, int64_t n_threads);

  /// Runs `body` over [0, sum of extents) on at most `max_threads` threads (0: the flag NUM_CPU_THREADS). The iterations of
  /// one extent take about as long as each other, so each extent is cut into parts on its own, at most as many as
  /// there are times `min_part` in the sum. `scratch_bytes` of 64-byte aligned memory is handed to each call; its content is arbitrary.
  /// errors: Memory when there is no scratch memory; nothing has run then
  void run(std::span<const int64_t> extents, int64_t min_part, size_t scratch_bytes, Body body, const void* context, int max_threads = 0);

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// Waits for its threads to end. (The pool of the process is never destroyed.)
  ~ThreadPool();
  ThreadPool();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Scratch memory of the calling thread, 64-byte aligned, kept until the thread ends or asks for more.
/// errors: Memory
void* thread_scratch(size_t n_bytes);

}  // namespace whit
