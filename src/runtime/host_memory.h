// Memory of the host, for the devices that compute in it.
#pragma once
#include "runtime/allocator.h"

namespace whit {

/// 64-byte aligned memory; large blocks are aligned to 2 MiB and ask for huge pages.
class HostAllocator : public LruAllocator {
 public:
  using LruAllocator::LruAllocator;
  ~HostAllocator() override { free_cache(); }
  void copyin(void* to, const void* from_host, int64_t n_bytes) override;
  void copyout(void* to_host, void* from, int64_t n_bytes) override;
  void* offset(void* handle, int64_t n_bytes, int64_t off_bytes) override;
  void transfer(void* to, void* from, int64_t n_bytes, Device& from_device) override;
  void* host_pointer(void* handle) override { return handle; }
  bool supports_transfer(Device& from_device) override;

 protected:
  void* do_alloc(int64_t n_bytes, const BufferSpec& spec) override;
  void do_free(void* handle, int64_t n_bytes, const BufferSpec& spec) override;
  // The system promises more memory than there is, so an allocation does not fail before the process is ended.
  int64_t max_kept_bytes() const override;
};

}  // namespace whit
