// The CPU: kernels are machine code in this process, run by the thread pool in the calling thread's time. Ordinals are
// separate devices over the same cores and memory.
#include <tuple>

#include "base/error.h"
#include "base/flags.h"
#include "base/os.h"
#include "runtime/device.h"
#include "runtime/elf_loader.h"
#include "runtime/host_memory.h"
#include "runtime/program.h"
#include "runtime/queue.h"

namespace whit {

void CpuKernel::launch_parallel(void* const* buffers, const int64_t* variables) const {
  const std::tuple call(fn, buffers, variables);
  const auto body = [](const void* context, void* scratch, int64_t first, int64_t last) {
    const auto& [kernel, handles, values] = *static_cast<decltype(&call)>(context);
    const os::IeeeFloats ieee;
    kernel(handles, values, scratch, first, last);
  };
  ThreadPool::get().run(extents, min_part, scratch_bytes, body, &call);
}

CpuProgram::CpuProgram(const KernelObject& object)
    : Program(object.name, object.n_buffers, object.n_variables),
      object_(LoadedObject::load(object.library, "kernel " + object.name)),
      extents_(object.extents) {
  WHIT_USER(object.scratch_bytes >= 0, Value, "[load] kernel {} asks for {} bytes of scratch memory", object.name, object.scratch_bytes);
  kernel_.fn = reinterpret_cast<CpuKernelFn>(object_->must_find(object.name));
  kernel_.min_part = std::max<int64_t>(object.min_part, 1);
  kernel_.scratch_bytes = static_cast<size_t>(object.scratch_bytes);
  kernel_.extents = extents_;
}

CpuKernel CpuProgram::kernel(int64_t global) const {
  CpuKernel kernel = kernel_;
  kernel.global = global;
  if (extents_.empty() || flag::THREADS() == 0 || global < 2 * kernel.min_part) kernel.min_part = std::max<int64_t>(global, 1);
  return kernel;
}

double CpuProgram::run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) {
  const CpuKernel kernel = this->kernel(size.global[0]);
  if (!wait) return kernel.launch(buffers, variables), 0;
  const int64_t start_ns = os::now_ns();
  kernel.launch(buffers, variables);
  return static_cast<double>(os::now_ns() - start_ns) * 1e-9;
}

namespace {

// Devices beside another one have a queue: so they compute at the same time, each with its share of the threads. One alone
// has none, as handing a kernel over takes longer than many kernels do.
class CpuDevice final : public Device {
 public:
  CpuDevice(const std::string& name, const std::string& arch) : Device(name, arch), queue_(name) {
    allocator_ = std::make_unique<HostAllocator>(*this);
    ++n_open;
  }
  std::shared_ptr<Program> load(const KernelObject& object) override { return std::make_shared<CpuProgram>(object); }
  Queue* queue() override { return flag::ASYNC() >= 2 - (n_open > 1) && queue_.is_alive() ? &queue_ : nullptr; }
  void synchronize() override { queue_.wait(); }
  void finalize() override {
    queue_.stop();
    --n_open;
  }

 private:
  static inline std::atomic<int> n_open{0};
  Queue queue_;
};

class CpuKind : public HostKind<CpuDevice> {
 public:
  using HostKind::HostKind;
  int default_rank() const override { return 100; }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<CpuKind>("CPU", "the cores of this machine")), true);

}  // namespace
}  // namespace whit
