// MPI:0 .. MPI:n-1: one device a process of the job. Each process runs the whole program; the device of its own rank
// computes as the CPU does, those of the others have no memory here and run nothing. A copy between two of them is a send
// in one process, a receive in the other, and nothing in the rest; a copy to any other device goes to every process.
#include <atomic>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "runtime/device.h"
#include "runtime/host_memory.h"
#include "runtime/mpi/transport.h"
#include "runtime/program.h"

namespace whit {
namespace {

constexpr const char* kKind = "MPI";

void pass_on(Device& from_device, void* from, Device& to_device, void* to, int64_t n_bytes) {
  Transport& t = *transport();
  const int owner = from_device.ordinal();
  if (to_device.kind() == kKind) {
    if (t.rank() == owner) t.send(to_device.ordinal(), from, n_bytes, copy_origin());
    if (t.rank() == to_device.ordinal()) t.receive(owner, to, n_bytes, copy_origin());
    return;
  }
  void* host = to_device.allocator().host_pointer(to);
  std::unique_ptr<char[]> detour;
  if (!host) detour.reset(new char[static_cast<size_t>(n_bytes)]);
  if (detour) host = detour.get();
  if (t.rank() == owner) std::memcpy(host, from, static_cast<size_t>(n_bytes));
  t.broadcast(owner, host, n_bytes, copy_origin());
  if (detour) to_device.allocator().copyin(to, host, n_bytes);
}

class HereAllocator final : public HostAllocator {
 public:
  using HostAllocator::HostAllocator;
  bool push(Device& to_device, void* to, void* from, int64_t n_bytes) override { return pass_on(device_, from, to_device, to, n_bytes), true; }
};

class ElsewhereAllocator final : public Allocator {
 public:
  using Allocator::Allocator;
  void copyin(void*, const void*, int64_t) override {}
  void copyout(void*, void*, int64_t) override {
    raise(ErrorKind::Runtime, "[copyout] {} is process {} of this job, and this is process {}; copy the tensor to CPU in all of them", device_.name(),
          device_.ordinal(), transport()->rank());
  }
  void* offset(void* handle, int64_t, int64_t off_bytes) override { return static_cast<char*>(handle) + off_bytes; }
  void transfer(void*, void*, int64_t, Device&) override {}
  bool supports_transfer(Device&) override { return true; }
  bool push(Device& to_device, void* to, void* from, int64_t n_bytes) override { return pass_on(device_, from, to_device, to, n_bytes), true; }

 protected:
  // Addresses that nobody may read, one after another, so that different buffers differ.
  void* do_alloc(int64_t n_bytes, const BufferSpec&) override {
    return reinterpret_cast<void*>(next_.fetch_add(static_cast<uintptr_t>((n_bytes + 63) & ~int64_t{63}), std::memory_order_relaxed));
  }
  void do_free(void*, int64_t, const BufferSpec&) override {}

 private:
  std::atomic<uintptr_t> next_{4096};
};

class ElsewhereProgram final : public Program {
 public:
  explicit ElsewhereProgram(const KernelObject& object) : Program(object.name, object.n_buffers, object.n_variables) {}
  double run(void* const*, const int64_t*, const LaunchSize&, bool) override { return 0; }
};

class MpiDevice final : public Device {
 public:
  MpiDevice(const std::string& name, const std::string& arch) : Device(name, arch), is_here_(ordinal() == transport()->rank()) {
    if (is_here_) {
      allocator_ = std::make_unique<HereAllocator>(*this);
    } else {
      allocator_ = std::make_unique<ElsewhereAllocator>(*this);
    }
  }
  std::shared_ptr<Program> load(const KernelObject& object) override {
    if (is_here_) return std::make_shared<CpuProgram>(object);
    return std::make_shared<ElsewhereProgram>(object);
  }
  bool is_elsewhere() const override { return !is_here_; }

 private:
  bool is_here_;
};

class MpiKind final : public HostKind<MpiDevice> {
 public:
  using HostKind::HostKind;
  int count() override { return transport() ? transport()->size() : 0; }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<MpiKind>(kKind, "the processes of a job that mpirun started")), true);

}  // namespace
}  // namespace whit
