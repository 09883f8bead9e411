#include "runtime/ref/ref_device.h"

#include <atomic>

#include "base/error.h"
#include "base/os.h"
#include "runtime/device.h"
#include "runtime/host_memory.h"
#include "runtime/pass_through_compiler.h"

namespace whit {
namespace {

std::atomic<RefRunner> ref_runner{nullptr};
class RefProgram : public Program {
 public:
  explicit RefProgram(const KernelObject& object) : Program(object.name, object.n_buffers, object.n_variables), object_(object) {}
  double run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) override {
    const RefRunner runner = ref_runner.load();
    WHIT_USER(runner, Device, "[device] REF cannot run {}: no evaluator is linked into this program", name);
    const int64_t start_ns = os::now_ns();
    runner(object_, buffers, variables, size);
    return wait ? static_cast<double>(os::now_ns() - start_ns) * 1e-9 : 0;
  }

 private:
  KernelObject object_;
};

class RefKind : public DeviceKind {
 public:
  RefKind() : DeviceKind("REF", "the reference evaluator") {}
  int count() override { return kPlainOrdinals; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget& target) override {
    return std::make_unique<PlainDevice<HostAllocator, RefProgram>>(device_name, target.arch);
  }
  std::vector<std::string> renderers() const override { return {"REF"}; }
  std::shared_ptr<Compiler> make_compiler(const std::string&, const std::string&) override { return std::make_shared<PassThroughCompiler>("ref"); }
  bool always_allowed() const override { return true; }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<RefKind>()), true);

}  // namespace

void set_ref_runner(RefRunner runner) { ref_runner.store(runner); }

}  // namespace whit
