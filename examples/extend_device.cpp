// A device of one's own: the CPU's kernels on one thread, over memory of the C library. docs/adding-a-device.md explains it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/program.h"
#include "whit/whit.h"

namespace whit {
namespace {

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

class HeapProgram : public Program {
 public:
  explicit HeapProgram(const KernelObject& o) : Program(o.name, o.n_buffers, o.n_variables), program_(o) {}
  double run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) override {
    CpuKernel kernel = program_.kernel(size.global[0]);
    kernel.min_part = kernel.global;  // never more than this thread
    kernel.launch(buffers, variables);
    return wait ? 1e-9 : 0;
  }

 private:
  CpuProgram program_;
};

class HeapKind : public DeviceKind {
 public:
  HeapKind() : DeviceKind("HEAP", "the CPU over malloc, one thread") {}
  int count() override { return kPlainOrdinals; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget& target) override {
    return std::make_unique<PlainDevice<HeapAllocator, HeapProgram>>(device_name, target.arch);
  }
  std::vector<std::string> renderers() const override { return {"LLVM", "C"}; }
  std::shared_ptr<Compiler> make_compiler(const std::string& renderer, const std::string& arch) override {
    return renderer == "LLVM" ? make_llvm_compiler(arch) : make_c_compiler(arch);
  }
  std::string default_arch() override { return host_cpu_arch(); }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<HeapKind>()), true);

}  // namespace
}  // namespace whit

int main() {
  using namespace whit;
  const Tensor x = Tensor::from<float>({1, 2, 3, 4}).reshape({2, 2}).to("HEAP");
  for (const float v : x.matmul(x).relu().to_vector<float>()) std::printf("%.0f ", v);
  std::printf("on %s\n", x.device()->c_str());
}
