// A device of one's own: the CPU's kernels on one thread, over memory of the C library. docs/adding-a-device.md explains it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/program.h"
#include "whit/whit.h"
using namespace whit;

class HeapAllocator : public Allocator {
 public:
  using Allocator::Allocator;
  void copyin(void* to, const void* from_host, int64_t n_bytes) override { std::memcpy(to, from_host, static_cast<size_t>(n_bytes)); }
  void copyout(void* to_host, void* from, int64_t n_bytes) override { std::memcpy(to_host, from, static_cast<size_t>(n_bytes)); }
  void* offset(void* handle, int64_t, int64_t off_bytes) override { return static_cast<char*>(handle) + off_bytes; }
  void* host_pointer(void* handle) override { return handle; }

 protected:
  void* do_alloc(int64_t n_bytes, const BufferSpec&) override { return std::aligned_alloc(64, static_cast<size_t>(n_bytes + 63) & ~size_t{63}); }
  void do_free(void* handle, int64_t, const BufferSpec&) override { std::free(handle); }
};

class HeapProgram : public CpuProgram {
 public:
  using CpuProgram::CpuProgram;
  double run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) override {
    CpuKernel one = kernel(size.global[0]);
    one.min_part = one.global;  // never more than this thread
    one.launch(buffers, variables);
    return wait ? 1e-9 : 0;
  }
};

using HeapKind = HostKind<PlainDevice<HeapAllocator, HeapProgram>>;
[[maybe_unused]] const bool registered = (register_device(std::make_unique<HeapKind>("HEAP", "the CPU over malloc, one thread")), true);

int main() {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}).reshape({2, 2}).to("HEAP");
  for (const float v : x.matmul(x).relu().to_vector<float>()) std::printf("%.0f ", v);
  std::printf("on %s\n", x.device()->c_str());
}
