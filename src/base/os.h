// What whit asks of the operating system, beyond the C++ library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace whit::os {

/// Cores this process may use: the affinity mask, cut by the quota of its cgroup. At least 1.
int cpu_count();
/// Bytes of memory this process may fill: the machine's, cut by the limit of its cgroup.
int64_t memory_bytes();
/// A monotonic clock in nanoseconds.
int64_t now_ns();
/// The folder for caches of this user: $XDG_CACHE_HOME, else ~/.cache; "" where neither is known.
std::string cache_dir();

/// Zeroed pages. `huge` asks for 2 MiB alignment and huge pages where the system has them. Null when there are none.
void* map_pages(size_t n_bytes, bool huge);
void unmap_pages(void* pages, size_t n_bytes);
/// Changes pages from writable to read-only, or to executable and read-only. False on failure.
bool protect_pages(void* pages, size_t n_bytes, bool executable);
size_t page_size();

}  // namespace whit::os
