#include "runtime/buffer.h"

#include "base/error.h"
#include "base/immortal.h"
#include "base/profile.h"
#include "runtime/counters.h"
#include "runtime/device.h"

namespace whit {
namespace {

// Allocations are few and slow beside a lock; one lock spares every buffer its own.
struct AllocationMutex : std::recursive_mutex {};

}  // namespace

BufferPtr Buffer::make(std::string device, int64_t n_bytes, const BufferSpec& spec) {
  WHIT_USER(n_bytes >= 0, Value, "[buffer] {} bytes on {}: expected a size that is not negative", n_bytes, device);
  BufferPtr buffer(new Buffer());
  buffer->device_name_ = std::move(device);
  buffer->n_bytes_ = n_bytes;
  buffer->spec_ = spec;
  return buffer;
}

BufferPtr Buffer::view(const BufferPtr& of, int64_t off_bytes, int64_t n_bytes) {
  WHIT_USER(off_bytes >= 0 && n_bytes >= 0 && off_bytes <= of->n_bytes_ && n_bytes <= of->n_bytes_ - off_bytes, Index,
            "[buffer] a view of {} bytes at {} reaches past the end of a buffer of {} bytes", n_bytes, off_bytes, of->n_bytes_);
  BufferPtr buffer(new Buffer());
  buffer->device_name_ = of->device_name_;
  buffer->n_bytes_ = n_bytes;
  buffer->off_bytes_ = of->off_bytes_ + off_bytes;
  buffer->spec_ = of->spec_;
  buffer->base_ = of->base_ ? of->base_ : of;
  return buffer;
}

Buffer::~Buffer() {
  try {
    deallocate();
  } catch (const std::exception&) {
    // A destructor has nobody to tell; the device reports again at its next use.
  }
}

Device& Buffer::device() const {
  Device* device = device_.load(std::memory_order_acquire);
  if (!device) device_.store(device = &Device::get(device_name_), std::memory_order_release);
  return *device;
}

void* Buffer::allocate() {
  Device& on = device();
  const std::lock_guard lock(immortal<AllocationMutex>());
  if (void* const h = handle_.load(std::memory_order_relaxed)) return h;
  void* h = nullptr;
  if (base_) {
    h = on.allocator().offset(base_->handle(), n_bytes_, off_bytes_);
  } else {
    // Kernels may be given a buffer without elements: it needs an address, not memory.
    h = on.allocator().alloc(n_bytes_ == 0 ? 1 : n_bytes_, spec_);
    if (is_counted()) counters().add_memory(n_bytes_);
  }
  handle_.store(h, std::memory_order_release);
  return h;
}

uint64_t Buffer::n_changes() {
  if (base_) return base_->n_changes();
  if (is_exposed_.load(std::memory_order_relaxed) || (spec_.external_ptr && spec_.is_shared)) count_change();
  uint64_t n = n_changes_.load(std::memory_order_relaxed);
  if (!(n & 1)) n = n_changes_.fetch_or(1, std::memory_order_relaxed) | 1, next_generation();
  return n;
}

void Buffer::deallocate() {
  count_change();
  wait_for(*this, true);
  void* const h = handle_.exchange(nullptr, std::memory_order_acq_rel);
  if (!h) return;
  if (base_) return;
  device().allocator().free(h, n_bytes_ == 0 ? 1 : n_bytes_, spec_);
  if (is_counted()) counters().add_memory(-n_bytes_);
}

void Buffer::synchronize(bool readers) {
  wait_for(*this, readers);
  if (!device().queue()) device().synchronize();
}

void* Buffer::host_pointer() {
  (base_ ? *base_ : *this).is_exposed_ = true;
  next_generation();
  synchronize(false);
  return device().allocator().host_pointer(handle());
}

void Buffer::copyin(const void* from_host, int64_t n_bytes) {
  WHIT_USER(n_bytes == n_bytes_, Value, "[copyin] {} bytes for a buffer of {}", n_bytes, n_bytes_);
  const ProfileSpan span("host copy", "copyin", device_name_);
  synchronize(true);
  count_change();
  if (n_bytes_ > 0) device().allocator().copyin(handle(), from_host, n_bytes_);
}

void Buffer::copyout(void* to_host, int64_t n_bytes) {
  WHIT_USER(n_bytes == n_bytes_, Value, "[copyout] {} bytes from a buffer of {}", n_bytes, n_bytes_);
  const ProfileSpan span("host copy", "copyout", device_name_);
  synchronize(false);
  if (n_bytes_ > 0) device().allocator().copyout(to_host, handle(), n_bytes_);
}

void Buffer::copy_from(Buffer& from) {
  WHIT_USER(n_bytes_ == from.n_bytes_, Value, "[copy] {} bytes into a buffer of {}", from.n_bytes_, n_bytes_);
  if (n_bytes_ == 0) return;
  count_change();
  Device& to_device = device();
  Device& from_device = from.device();
  Allocator& to = to_device.allocator();
  Allocator& source = from_device.allocator();
  if (source.push(to_device, handle(), from.handle(), n_bytes_)) return;
  if (to.supports_transfer(from_device)) return to.transfer(handle(), from.handle(), n_bytes_, from_device);
  from_device.synchronize();
  if (void* const host = to.host_pointer(handle())) {
    to_device.synchronize();
    return source.copyout(host, from.handle(), n_bytes_);
  }
  if (const void* const host = source.host_pointer(from.handle())) return to.copyin(handle(), host, n_bytes_);
  const std::unique_ptr<char[]> detour(new char[static_cast<size_t>(n_bytes_)]);
  source.copyout(detour.get(), from.handle(), n_bytes_);
  to.copyin(handle(), detour.get(), n_bytes_);
}

}  // namespace whit
