#include "base/os.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sched.h>
#endif

namespace whit::os {
namespace {

// The numbers that a file begins with, 0 for each that is not there.
std::pair<long long, long long> numbers_in(const char* path) {
  std::pair<long long, long long> found{};
  if (FILE* f = std::fopen(path, "re")) {
    if (std::fscanf(f, "%lld %lld", &found.first, &found.second) < 1) found = {};
    std::fclose(f);
  }
  return found;
}

// Cores by the quota of the cgroup (version 2, then 1), or 0 where there is no quota.
int cgroup_cores() {
  auto [quota, period] = numbers_in("/sys/fs/cgroup/cpu.max");  // "max 100000" without a quota
  if (quota == 0) quota = numbers_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").first;
  if (period == 0) period = numbers_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us").first;
  return quota > 0 && period > 0 ? static_cast<int>((quota + period - 1) / period) : 0;
}

int count_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  if (const int quota = cgroup_cores(); quota > 0) cores = std::min(cores, quota);
#endif
  return std::max(cores, 1);
}

}  // namespace

int cpu_count() {
  static const int cores = count_cores();
  return cores;
}

int64_t memory_bytes() {
  static const int64_t n_bytes = [] {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const int64_t all = pages > 0 ? static_cast<int64_t>(pages) * static_cast<int64_t>(page_size()) : int64_t{1} << 30;
    const int64_t limit = numbers_in("/sys/fs/cgroup/memory.max").first;
    return limit > 0 ? std::min(all, limit) : all;
  }();
  return n_bytes;
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

std::string cache_dir() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return xdg;
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache";
  return "";
}

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

void* map_pages(size_t n_bytes, bool huge) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t slack = huge ? kHuge : 0;
  void* const raw = mmap(nullptr, n_bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  if (!huge) return raw;
  // Cut what lies before the first 2 MiB boundary and what is left behind the end.
  const auto begin = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (begin + kHuge - 1) & ~(kHuge - 1);
  const size_t page = page_size();
  const uintptr_t end = (aligned + n_bytes + page - 1) & ~(page - 1);
  const uintptr_t raw_end = (begin + n_bytes + slack + page - 1) & ~(page - 1);
  if (aligned > begin) munmap(raw, aligned - begin);
  if (raw_end > end) munmap(reinterpret_cast<void*>(end), raw_end - end);
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(aligned), n_bytes, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<void*>(aligned);
}

void unmap_pages(void* pages, size_t n_bytes) { munmap(pages, n_bytes); }

bool protect_pages(void* pages, size_t n_bytes, bool executable) {
  return mprotect(pages, n_bytes, executable ? PROT_READ | PROT_EXEC : PROT_READ) == 0;
}

}  // namespace whit::os
