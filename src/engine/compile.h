// Kernels to callable programs, and the cache of them.
//
// Requirements: (1) compiling opens no device; (2) equal kernels for one code path are compiled once in a process; what
// is missing compiles in parallel (flag PARALLEL); (3) the cache refers to kernels, which hold PARAMs only: no BUFFER.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/interpret.h"
#include "ir/target.h"
#include "ir/uop.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace whit::engine {

struct CompileJob {
  UOp sink;
  std::string device;
};
using ExecutablePtr = std::shared_ptr<class Executable>;

/// A kernel that can be run on one device.
class Executable {
 public:
  UOp sink{};
  std::string name{}, source{}, device{};
  KernelObject object{};
  std::vector<std::string> variables{};
  int64_t n_ops = 0, n_bytes = 0;  ///< arithmetic operations; bytes of its buffers

  /// Runs with handles of buffers by slot and values of `variables`.
  void run(void* const* buffers, const int64_t* values) const {
    if (cpu_.fn) {
      cpu_.launch(buffers, values);
    } else {
      program_->run(buffers, values, size_, false);
    }
  }
  /// Opens the device and loads the program, once.
  void load();
  const CpuKernel& cpu_kernel() const { return cpu_; }  ///< fn is null on other devices

 private:
  friend class ProgramCache;
  friend ExecutablePtr compile_program(const CompileJob&, const CodePath&, const Target&, const UOp&);
  bool loaded_ = false;
  LaunchSize size_{};
  std::shared_ptr<Program> program_{};
  CpuKernel cpu_{};
};

/// One executable a job, not yet loaded. `beam` is the width of the search for faster ones, 0 for none.
/// errors: Compile, with the kernel and how to see it; those of code_path()
std::vector<ExecutablePtr> compile_all(std::span<const CompileJob> jobs, int64_t beam);

/// One of them, with decisions that a search has found (codegen/decisions.h). Pure computing, called from several threads.
ExecutablePtr compile_kernel(const CompileJob& job, const CodePath& path, const std::string& decisions);
/// Its two halves: what a kernel is compiled for, and a lowered kernel (null where the path compiles nothing) compiled.
Target target_for(const CodePath& path);
ExecutablePtr compile_program(const CompileJob& job, const CodePath& path, const Target& target, const UOp& program);

}  // namespace whit::engine
