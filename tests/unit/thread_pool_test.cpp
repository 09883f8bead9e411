#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/flags.h"

namespace whit {
namespace {

struct Marks {
  std::vector<std::atomic<int>> hits;
  std::atomic<int> calls{0}, misaligned{0};
  explicit Marks(size_t n) : hits(n) {}
};

void mark(const void* context, void* scratch, int64_t first, int64_t last) {
  auto& marks = *static_cast<Marks*>(const_cast<void*>(context));
  marks.calls.fetch_add(1);
  if (scratch) {
    if (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) marks.misaligned.fetch_add(1);
    std::memset(scratch, static_cast<int>(first), 1000);
  }
  for (int64_t i = first; i < last; ++i) marks.hits[static_cast<size_t>(i)].fetch_add(1);
}

void expect_each_once(const Marks& marks, int64_t first, int64_t last) {
  for (int64_t i = 0; i < static_cast<int64_t>(marks.hits.size()); ++i) {
    ASSERT_EQ(marks.hits[static_cast<size_t>(i)].load(), i >= first && i < last ? 1 : 0) << i;
  }
}

TEST(ThreadPool, CoversTheRangeOnce) {
  ThreadPool pool;
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t n : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t more : {0, 3, 50}) {
        Marks marks(static_cast<size_t>(n + more) + 10);
        pool.run(std::array{n, int64_t{0}, more}, 1, 1000, mark, &marks, threads);
        expect_each_once(marks, 0, n + more);
        EXPECT_EQ(marks.misaligned.load(), 0);
      }
    }
  }
}

TEST(ThreadPool, PartsAreNotSmallerThanAsked) {
  ThreadPool pool;
  Marks marks(1000);
  pool.run(std::array{int64_t{1000}}, 300, 0, mark, &marks, 8);
  EXPECT_LE(marks.calls.load(), 3);
  expect_each_once(marks, 0, 1000);
}

TEST(ThreadPool, ThreadsGetAsManyPartsEach) {
  ThreadPool pool;
  for (const auto& [min_part, threads, calls] : {std::array{33, 2, 2}, {15, 2, 2}, {8, 2, 4}, {5, 2, 6}, {1, 2, 8}, {5, 3, 6}, {30, 3, 3}}) {
    Marks marks(100);
    pool.run(std::array{int64_t{100}}, min_part, 0, mark, &marks, threads);
    EXPECT_EQ(marks.calls.load(), calls) << min_part;
  }
}

// Long iterations before short ones: a part that took as many of both would hold most of the work.
TEST(ThreadPool, EachExtentIsCutOnItsOwn) {
  ThreadPool pool;
  static std::atomic<int64_t> most;
  most = 0;
  const auto count = [](const void*, void*, int64_t first, int64_t last) {
    const int64_t n_long = std::max<int64_t>(0, std::min<int64_t>(last, 40) - first);
    for (int64_t before = most; before < n_long && !most.compare_exchange_weak(before, n_long);) {
    }
  };
  pool.run(std::array{int64_t{40}, int64_t{1000}}, 1, 0, count, nullptr, 2);
  EXPECT_EQ(most.load(), 5);
}

TEST(ThreadPool, ManyLaunchesInARow) {
  ThreadPool pool;
  std::atomic<int64_t> sum{0};
  const auto add = [](const void* context, void*, int64_t first, int64_t last) {
    static_cast<std::atomic<int64_t>*>(const_cast<void*>(context))->fetch_add(last - first);
  };
  for (int i = 0; i < 2000; ++i) {
    pool.run(std::array{int64_t{8}}, 1, 0, add, &sum, 4);
    if (i % 500 == 499) usleep(2000);  // long enough for the workers to sleep
  }
  EXPECT_EQ(sum.load(), 16000);
}

TEST(ThreadPool, LaunchesFromSeveralThreadsAndFromInsideAKernel) {
  ThreadPool pool;
  struct Shared {
    ThreadPool* pool;
    std::atomic<int64_t> sum{0};
  } shared{&pool};
  const auto inner = [](const void* context, void*, int64_t first, int64_t last) {
    static_cast<Shared*>(const_cast<void*>(context))->sum.fetch_add(last - first);
  };
  static auto inner_body = +inner;
  const auto outer = [](const void* context, void*, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      static_cast<Shared*>(const_cast<void*>(context))->pool->run(std::array{int64_t{10}}, 1, 0, inner_body, context, 4);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) pool.run(std::array{int64_t{4}}, 1, 0, outer, &shared, 4);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.sum.load(), 4 * 50 * 4 * 10);
}

TEST(ThreadPool, WorkersHaveAllCoresButTheCallers) {
#ifdef __linux__
  struct Seen {
    pthread_t caller = pthread_self();
    std::atomic<int> n_workers{0}, n_cores{0};
  } seen;
  const auto cores = [] {
    cpu_set_t set;
    return pthread_getaffinity_np(pthread_self(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
  };
  if (cores() == 1) GTEST_SKIP() << "one core";
  static auto count = +cores;
  const auto look = [](const void* context, void*, int64_t, int64_t) {
    Seen& s = *static_cast<Seen*>(const_cast<void*>(context));
    if (pthread_equal(pthread_self(), s.caller)) return void(usleep(1000));  // leaves parts for the workers
    s.n_workers.fetch_add(1);
    s.n_cores.fetch_add(count());
  };
  ThreadPool pool;
  for (int i = 0; i < 20; ++i) {
    pool.run(std::array{int64_t{8}}, 1, 0, look, &seen, 3);
    usleep(1000);  // long enough for the workers to sleep
  }
  EXPECT_GT(seen.n_workers.load(), 0);
  EXPECT_EQ(seen.n_cores.load(), seen.n_workers.load() * (cores() - 1));
#endif
}

TEST(ThreadPool, ScratchThatCannotBeHadIsAnErrorBeforeAnythingRuns) {
  ThreadPool pool;
  Marks marks(10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  try {
    pool.run(std::array{int64_t{10}}, 1, size_t{1} << 60, mark, &marks, 2);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
  }
  EXPECT_EQ(marks.calls.load(), 0);
#endif
  pool.run(std::array{int64_t{10}}, 1, 1000, mark, &marks, 2);
  expect_each_once(marks, 0, 10);
}

TEST(ThreadPool, AForkedChildGetsItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer does not follow threads into a fork";
#endif
  Marks before(100);
  ThreadPool::get().run(std::array{int64_t{100}}, 1, 0, mark, &before, 4);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a pool that hangs ends the child
    Marks marks(100);
    ThreadPool::get().run(std::array{int64_t{100}}, 1, 0, mark, &marks, 4);
    bool ok = true;
    for (const std::atomic<int>& hit : marks.hits) ok = ok && hit.load() == 1;
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  Marks after(100);
  ThreadPool::get().run(std::array{int64_t{100}}, 1, 0, mark, &after, 4);
  expect_each_once(after, 0, 100);
}

}  // namespace
}  // namespace whit
