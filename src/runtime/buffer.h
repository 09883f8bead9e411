// Buffer: memory of a device, allocated when it is first needed, or a view of another buffer.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/generation.h"
#include "runtime/allocator.h"
#include "runtime/queue.h"

namespace whit {

class Buffer;
using BufferPtr = std::shared_ptr<Buffer>;

class Buffer {
 public:
  /// A buffer that is allocated at the first call of handle(), copyin() or copyout(). Opens no device.
  /// errors: Value for n_bytes < 0; Value when an external pointer is null
  static BufferPtr make(std::string device, int64_t n_bytes, const BufferSpec& spec = {});
  /// `n_bytes` at `off_bytes` of a buffer, which stays alive as long as its views. A view of a view is one of its base.
  /// errors: Index when it reaches past the end
  static BufferPtr view(const BufferPtr& of, int64_t off_bytes, int64_t n_bytes);
  ~Buffer();
  Buffer& operator=(Buffer&&) = delete;  // nor is it copied

  const std::string& device_name() const { return device_name_; }
  Device& device() const;
  int64_t n_bytes() const { return n_bytes_; }
  int64_t off_bytes() const { return off_bytes_; }
  const BufferPtr& base() const { return base_; }  ///< null for a buffer that is its own base
  const BufferSpec& spec() const { return spec_; }
  bool is_allocated() const { return handle_.load(std::memory_order_acquire) != nullptr; }

  /// What kernels of its device are given. Allocates at the first call. An empty buffer has a handle too.
  /// errors: Memory, and what opening the device raises
  void* handle() {
    void* const h = handle_.load(std::memory_order_acquire);
    return h ? h : allocate();
  }
  /// The bytes for the host, after the device has finished with them; null where the host cannot reach them.
  void* host_pointer();

  /// Whole-buffer copies. Reading waits for what wrote the buffer. errors: Value when n_bytes is not the buffer's
  void copyin(const void* from_host, int64_t n_bytes);
  void copyout(void* to_host, int64_t n_bytes);
  /// Copies all of a buffer of the same size, on any device: by transfer, through host memory, or with a detour.
  void copy_from(Buffer& from);
  /// Has grown since the last call if the memory, which a view has in common with its base, has changed. Kernels are counted by
  /// who launches them; memory that somebody else can write to always looks changed.
  uint64_t n_changes();
  void count_change() {
    std::atomic<uint64_t>& n = (base_ ? *base_ : *this).n_changes_;
    if (n.load(std::memory_order_relaxed) & 1) n.fetch_add(1, std::memory_order_relaxed), next_generation();
  }
  /// Work in queues that uses the memory of this buffer or of its base, guarded by the lock of enqueue().
  std::vector<QueuedUse>& queued_uses() { return base_ ? base_->queued_uses_ : queued_uses_; }
  /// Ids of the memory that the content was computed from, for whoever set them; at most a few thousand.
  std::vector<int64_t> made_from;

  /// Gives the memory back now; the next use allocates again, with any content. Its views must not be in use.
  void deallocate();

 private:
  // A file is no memory.
  bool is_counted() const { return !spec_.external_ptr && !device_name_.starts_with("DISK"); }

  Buffer() = default;
  void* allocate();
  void synchronize(bool readers);  // before the host touches it

  std::string device_name_;
  int64_t n_bytes_ = 0, off_bytes_ = 0;
  BufferSpec spec_;
  BufferPtr base_;
  std::atomic<void*> handle_{nullptr};
  mutable std::atomic<Device*> device_{nullptr};
  std::atomic<uint64_t> n_changes_{1};  // odd: somebody knows the number, so the next change counts
  std::atomic<bool> is_exposed_{false};
  std::vector<QueuedUse> queued_uses_;
};

}  // namespace whit
