// Memory of devices. A handle (void*) is what the device calls an address: on the CPU a pointer.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace whit {

class Device;

/// How memory is to be allocated.
struct BufferSpec {
  bool nolru = false;            ///< never kept for reuse
  bool zero = false;             ///< all bytes are zero at first
  void* external_ptr = nullptr;  ///< memory of somebody else, used and never freed
  bool is_shared = true;         ///< that of external_ptr: others may write to it at any time

  auto operator<=>(const BufferSpec&) const = default;
};

/// Of the copy that this thread does: call number (low half) of a schedule (the key's high digits); 0 outside of any.
uint64_t& copy_origin();

class Allocator {
 public:
  explicit Allocator(Device& device) : device_(device) {}
  virtual ~Allocator();
  Allocator& operator=(Allocator&&) = delete;  // nor is it copied

  /// errors: Value for n_bytes <= 0; Memory "Allocation of X failed on D. Used: Y"
  void* alloc(int64_t n_bytes, const BufferSpec& spec = {});
  void free(void* handle, int64_t n_bytes, const BufferSpec& spec = {});

  virtual void copyin(void* /*to*/, const void* /*from_host*/, int64_t /*n_bytes*/) { no_hook("copyin"); }
  virtual void copyout(void* /*to_host*/, void* /*from*/, int64_t /*n_bytes*/) { no_hook("copyout"); }
  /// The handle of the bytes at `off_bytes` of an allocation.
  virtual void* offset(void* /*handle*/, int64_t /*n_bytes*/, int64_t /*off_bytes*/) { no_hook("offset"); }
  /// Copies from another device without the host. Only where supports_transfer().
  virtual void transfer(void* /*to*/, void* /*from*/, int64_t /*n_bytes*/, Device& /*from_device*/) { no_hook("transfer"); }
  /// Copies to another device in a way of its own; false when it has none. copy_origin() says what the copy belongs to.
  virtual bool push(Device& /*to_device*/, void* /*to*/, void* /*from*/, int64_t /*n_bytes*/) { return false; }
  /// A pointer for the host to the bytes of a handle, or null where the host cannot reach them.
  virtual void* host_pointer(void* /*handle*/) { return nullptr; }
  virtual bool supports_transfer(Device& /*from_device*/) { return false; }
  /// Gives back what is kept for reuse.
  virtual void free_cache() {}

 protected:
  /// Null when there is no memory. `spec.external_ptr` was handled before.
  virtual void* do_alloc(int64_t n_bytes, const BufferSpec& spec) = 0;
  virtual void do_free(void* handle, int64_t n_bytes, const BufferSpec& spec) = 0;
  [[noreturn]] void no_hook(const char* hook) const;

  // How alloc and free reach the device: the allocator that keeps memory steps between.
  virtual void* take(int64_t n_bytes, const BufferSpec& spec) { return do_alloc(n_bytes, spec); }
  virtual void give(void* handle, int64_t n_bytes, const BufferSpec& spec) { do_free(handle, n_bytes, spec); }

  Device& device_;
};

/// Keeps freed memory for the next allocation of the same size and spec, at most as much as was in use before beyond what is
/// in use now, and 64 MiB. A failing allocation frees all that is kept
/// and is tried once more.
class LruAllocator : public Allocator {
 public:
  using Allocator::Allocator;
  void free_cache() override;
  int64_t kept_bytes();

 protected:
  void* take(int64_t n_bytes, const BufferSpec& spec) override;
  void give(void* handle, int64_t n_bytes, const BufferSpec& spec) override;

  /// The most that is kept: what is freed beyond it frees all that is kept first.
  virtual int64_t max_kept_bytes() const { return INT64_MAX; }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, BufferSpec>, std::vector<void*>> kept_;
  int64_t kept_bytes_ = 0, most_used_ = 0;
};

}  // namespace whit
