// NULL: has no memory and runs nothing. It measures everything before the machine: building, scheduling, code
// generation; with an arch in DEV ("NULL:LLVM:x86_64,znver4") kernels are compiled too.
#include <cstring>

#include "base/error.h"
#include "base/flags.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/pass_through_compiler.h"
#include "runtime/program.h"

namespace whit {
namespace {

class NullAllocator : public Allocator {
 public:
  using Allocator::Allocator;
  void copyin(void*, const void*, int64_t) override {}
  void copyout(void* to_host, void*, int64_t n_bytes) override {
    WHIT_USER(flag::NULL_ALLOW_COPYOUT() != 0, Runtime, "[copyout] {} holds no data; NULL_ALLOW_COPYOUT=1 reads zeros instead", device_.name());
    std::memset(to_host, 0, static_cast<size_t>(n_bytes));
  }
  void* offset(void* handle, int64_t, int64_t off_bytes) override { return static_cast<char*>(handle) + off_bytes; }
  void transfer(void*, void*, int64_t, Device&) override {}
  bool supports_transfer(Device& from_device) override { return from_device.kind() == "NULL"; }

 protected:
  // Addresses that nobody may read, one after another, so that different buffers differ.
  void* do_alloc(int64_t n_bytes, const BufferSpec&) override {
    const int64_t step = (n_bytes + 63) & ~int64_t{63};
    return reinterpret_cast<void*>(next_.fetch_add(static_cast<uintptr_t>(step), std::memory_order_relaxed));
  }
  void do_free(void*, int64_t, const BufferSpec&) override {}

 private:
  std::atomic<uintptr_t> next_{4096};
};

class NullProgram : public Program {
 public:
  explicit NullProgram(const KernelObject& object) : Program(object.name, object.n_buffers, object.n_variables) {}
  double run(void* const*, const int64_t*, const LaunchSize&, bool wait) override { return wait ? 1e-9 : 0; }
};

class NullKind : public HostKind<PlainDevice<NullAllocator, NullProgram>> {
 public:
  using HostKind::HostKind;
  std::shared_ptr<Compiler> make_compiler(const std::string& renderer, const std::string& arch) override {
    return arch.empty() ? std::make_shared<PassThroughCompiler>("null") : HostKind::make_compiler(renderer, arch);
  }
  std::string default_arch() override { return ""; }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<NullKind>("NULL", "no memory, runs nothing")), true);

}  // namespace
}  // namespace whit
