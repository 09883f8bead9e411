#include "runtime/host_memory.h"

#include <cstring>
#include <new>

#include "base/error.h"
#include "base/os.h"
#include "runtime/device.h"

namespace whit {
namespace {

constexpr std::align_val_t kAlign{64};
// From here on whole pages are taken: the system hands them out zeroed and takes them back.
constexpr int64_t kPagesFrom = int64_t{1} << 20;
constexpr int64_t kHugeFrom = int64_t{4} << 20;

}  // namespace

void* HostAllocator::do_alloc(int64_t n_bytes, const BufferSpec& spec) {
  const auto n = static_cast<size_t>(n_bytes);
  // Address spaces are 47 bits wide here; what is larger is refused before arithmetic on it can wrap.
  if (n_bytes >= int64_t{1} << 46) return nullptr;
  if (n_bytes >= kPagesFrom) return os::map_pages(n, n_bytes >= kHugeFrom);
  void* const memory = ::operator new(n, kAlign, std::nothrow);
  if (memory && spec.zero) std::memset(memory, 0, n);
  return memory;
}

void HostAllocator::do_free(void* handle, int64_t n_bytes, const BufferSpec&) {
  if (n_bytes >= kPagesFrom) return os::unmap_pages(handle, static_cast<size_t>(n_bytes));
  ::operator delete(handle, kAlign);
}

int64_t HostAllocator::max_kept_bytes() const { return os::memory_bytes() / 4; }

void HostAllocator::copyin(void* to, const void* from_host, int64_t n_bytes) { std::memcpy(to, from_host, static_cast<size_t>(n_bytes)); }
void HostAllocator::copyout(void* to_host, void* from, int64_t n_bytes) { std::memcpy(to_host, from, static_cast<size_t>(n_bytes)); }
void* HostAllocator::offset(void* handle, int64_t, int64_t off_bytes) { return static_cast<char*>(handle) + off_bytes; }

bool HostAllocator::supports_transfer(Device& from_device) { return dynamic_cast<HostAllocator*>(&from_device.allocator()) != nullptr; }
void HostAllocator::transfer(void* to, void* from, int64_t n_bytes, Device& from_device) {
  WHIT_USER(supports_transfer(from_device), Device, "[copy] {} takes no transfer from {}", device_.name(), from_device.name());
  std::memmove(to, from, static_cast<size_t>(n_bytes));
}

}  // namespace whit
