// Devices: kinds are registered, a device is opened at its first use, remembered, and finalised once at exit.
//
// Requirements:
//  1. Building, scheduling and compiling graphs open no device: code_path() gives the renderer and the compiler of a
//  kind
//     without a device. ALLOW_DEVICE_USAGE=0 makes opening one an error, which proves it.
//  2. A device is finalised exactly once: by finalize_devices() or at exit, also when exit follows an exception.
//  3. All functions here may be called from several threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/compiler.h"
#include "runtime/target.h"

namespace whit {

class Allocator;
class Program;
class Queue;

class Device {
 public:
  Device(std::string name, std::string arch);
  virtual ~Device();
  Device& operator=(Device&&) = delete;  // nor is it copied

  /// The device of a name, opened at its first use. "" is the default device.
  /// errors: Device for an unknown name (with the likely one), an ordinal past count() (with the count), a device that
  /// does not open; Assertion when ALLOW_DEVICE_USAGE=0
  static Device& get(std::string_view name);

  const std::string& name() const { return name_; }  ///< canonical: "CPU", "CPU:1"
  const std::string& kind() const { return kind_; }  ///< "CPU"
  int ordinal() const { return ordinal_; }
  const std::string& arch() const { return arch_; }
  Allocator& allocator() { return *allocator_; }

  /// Makes a kernel callable. errors: Device for a broken object or a device without programs
  virtual std::shared_ptr<Program> load(const KernelObject& object);
  /// Where kernels and copies of this device wait for their turn; null: they are done at once.
  virtual Queue* queue() { return nullptr; }
  /// Returns when all earlier work is done. errors: what that work raised; Device with the kernel on a time-out
  virtual void synchronize() {}
  /// True when its memory is another process's: here nothing can be read from it, and its programs do nothing.
  virtual bool is_elsewhere() const { return false; }
  /// Waits, then gives back what the interface holds. Called once. The device is not used afterwards.
  virtual void finalize() {}

  /// Bytes allocated on this device, those kept for reuse not counted.
  std::atomic<int64_t> mem_used{0};

 protected:
  std::unique_ptr<Allocator> allocator_;

 private:
  std::string name_, kind_, arch_;
  int ordinal_;
};

/// A device without a state of its own: its memory is an Allocator of that class, its programs are of the other one.
template <class Memory, class Code> class PlainDevice final : public Device {
 public:
  PlainDevice(const std::string& name, const std::string& arch) : Device(name, arch) { allocator_ = std::make_unique<Memory>(*this); }
  std::shared_ptr<Program> load(const KernelObject& object) override { return std::make_shared<Code>(object); }
};
/// A kind of device, as plug-ins add it.
class DeviceKind {
 public:
  DeviceKind(std::string kind_name, std::string about) : name(std::move(kind_name)), summary(std::move(about)) {}
  virtual ~DeviceKind() = default;
  DeviceKind& operator=(DeviceKind&&) = delete;  // nor is it copied

  /// Devices there are: ordinals are 0..count()-1. Must not fail and opens nothing for good.
  virtual int count() = 0;
  /// errors: any, with the reason
  virtual std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget& target) = 0;
  /// Renderers that write its kernels, in upper case, best first. Empty: the kind runs no kernels.
  virtual std::vector<std::string> renderers() const { return {}; }
  /// The compiler behind a renderer. errors: any, with the reason why it does not work here
  virtual std::shared_ptr<Compiler> make_compiler(const std::string& renderer, const std::string& arch);
  /// The arch when DEV names none. May probe.
  virtual std::string default_arch() { return ""; }
  /// Kinds with a lower rank are tried first when DEV names no device; a negative one never.
  virtual int default_rank() const { return -1; }
  /// Opened even when ALLOW_DEVICE_USAGE=0 (files, the evaluator).
  virtual bool always_allowed() const { return false; }

  const std::string name, summary;
};

/// A kind of which D(name, arch) opens a device; its ordinals are separate devices over the cores of this machine, and what
/// compiles kernels is what the CPU has: LLVM's compiler for the renderer LLVM, that of C for any other.
template <class D> class HostKind : public DeviceKind {
 public:
  explicit HostKind(std::string kind_name, std::string about, std::vector<std::string> renderers = {"LLVM", "C"})
      : DeviceKind(std::move(kind_name), std::move(about)), renderers_(std::move(renderers)) {}
  int count() override { return 64; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget& target) override {
    return std::make_unique<D>(device_name, target.arch.empty() ? default_arch() : target.arch);
  }
  std::vector<std::string> renderers() const override { return renderers_; }
  std::shared_ptr<Compiler> make_compiler(const std::string& renderer, const std::string& arch) override {
    return renderer == "LLVM" ? make_llvm_compiler(arch) : make_c_compiler(arch);
  }
  std::string default_arch() override { return host_cpu_arch(); }

 private:
  const std::vector<std::string> renderers_;
};

/// Adds a kind; one of the same name is replaced if none of its devices is open.
void register_device(std::unique_ptr<DeviceKind> kind);
/// The registered names, sorted.
std::vector<std::string> device_kinds();
/// errors: Device, with the likely name
DeviceKind& must_find_kind(std::string_view kind);
/// Does a device, by its name, hold data only? Opens nothing. errors: Device, for an unknown kind
bool is_storage_only(std::string_view device);
/// Is it a file? Its bytes outlive the program and are written by assignment alone.
bool is_file(std::string_view device);

/// Which renderer and compiler serve a device, by the flag DEV.
struct CodePath {
  std::string kind, renderer, arch;
  std::shared_ptr<Compiler> compiler;
};
/// Opens no device. The first renderer that initialises is taken; a fallback is said once; results are remembered.
/// errors: Device for an unknown renderer (with those there are), when none initialises ("no compiler for D", reasons)
const CodePath& code_path(std::string_view device);

/// The device of DEV, or else the best kind that has a device. Opens none.
/// errors: Device when there is none; Value for a deprecated form such as CPU=1 in the environment
std::string default_device();

/// Devices that are open, in order of opening.
std::vector<Device*> open_devices();
/// Finalises every open device. Later calls do nothing until a device is opened again.
void finalize_devices();

}  // namespace whit
