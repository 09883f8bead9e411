#include "runtime/allocator.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/device.h"

namespace whit {

constexpr int64_t kSlack = int64_t{64} << 20;

Allocator::~Allocator() = default;

void* Allocator::alloc(int64_t n_bytes, const BufferSpec& spec) {
  WHIT_USER(n_bytes > 0, Value, "[alloc] {} bytes on {}: expected a positive size", n_bytes, device_.name());
  if (spec.external_ptr) return spec.external_ptr;
  void* const handle = take(n_bytes, spec);
  WHIT_USER(handle, Memory, "Allocation of {} failed on {}. Used: {}", format_bytes(n_bytes), device_.name(), format_bytes(device_.mem_used.load()));
  device_.mem_used.fetch_add(n_bytes, std::memory_order_relaxed);
  if (flag::DEBUG() >= 7) log_line(fmt::format("{}: allocate {}", device_.name(), format_bytes(n_bytes)));
  return handle;
}

void Allocator::free(void* handle, int64_t n_bytes, const BufferSpec& spec) {
  if (!handle || spec.external_ptr) return;
  if (flag::DEBUG() >= 7) log_line(fmt::format("{}: free {}", device_.name(), format_bytes(n_bytes)));
  device_.mem_used.fetch_sub(n_bytes, std::memory_order_relaxed);
  give(handle, n_bytes, spec);
}

void Allocator::no_hook(const char* hook) const {
  raise(ErrorKind::NotImplemented, "[device] the allocator of {} has no '{}'", device_.name(), hook);
}

uint64_t& copy_origin() {
  thread_local uint64_t origin = 0;
  return origin;
}

void* LruAllocator::take(int64_t n_bytes, const BufferSpec& spec) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find({n_bytes, spec});
    if (found != kept_.end() && !found->second.empty()) {
      void* const handle = found->second.back();
      found->second.pop_back();
      kept_bytes_ -= n_bytes;
      return handle;
    }
    // What is kept for sizes that do not come again makes room: used and kept memory together stay near the most that was used.
    const int64_t used = device_.mem_used.load(std::memory_order_relaxed) + n_bytes;
    while (kept_bytes_ > 0 && used + kept_bytes_ > std::max(most_used_, used) + kSlack) {
      const auto largest = std::prev(kept_.end());
      for (void* const handle : largest->second) do_free(handle, largest->first.first, largest->first.second);
      kept_bytes_ -= largest->first.first * static_cast<int64_t>(largest->second.size());
      kept_.erase(largest);
    }
  }
  if (void* const handle = do_alloc(n_bytes, spec)) return handle;
  free_cache();
  return do_alloc(n_bytes, spec);
}

void LruAllocator::give(void* handle, int64_t n_bytes, const BufferSpec& spec) {
  if (flag::LRU() == 0 || spec.nolru || spec.zero || n_bytes > max_kept_bytes()) return do_free(handle, n_bytes, spec);
  if (kept_bytes() > max_kept_bytes() - n_bytes) free_cache();
  const std::lock_guard lock(mutex_);
  most_used_ = std::max(most_used_, device_.mem_used.load(std::memory_order_relaxed) + n_bytes);  // the most is used before a free
  kept_[{n_bytes, spec}].push_back(handle);
  kept_bytes_ += n_bytes;
}

void LruAllocator::free_cache() {
  const std::lock_guard lock(mutex_);
  for (const auto& [size_and_spec, handles] : kept_) {
    for (void* const handle : handles) do_free(handle, size_and_spec.first, size_and_spec.second);
  }
  kept_.clear();
  kept_bytes_ = 0;
}

int64_t LruAllocator::kept_bytes() {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace whit
