// Program: a kernel that can be called; and the bare call of a CPU kernel, which a replay list makes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/os.h"
#include "base/thread_pool.h"
#include "runtime/compiler.h"

namespace whit {

/// How often a kernel runs. On the CPU global[0] is the extent of the parallel range.
struct LaunchSize {
  int64_t global[3] = {1, 1, 1};
  int64_t local[3] = {1, 1, 1};
};

class Program {
 public:
  Program(std::string function, int buffers, int variables) : name(std::move(function)), n_buffers(buffers), n_variables(variables) {}
  virtual ~Program();
  Program& operator=(Program&&) = delete;  // nor is it copied

  /// Queues the kernel with handles of buffers. With `wait`: returns its seconds when it is done, else 0.
  virtual double run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) = 0;

  const std::string name;
  const int n_buffers, n_variables;
};

/// The one ABI of CPU kernels: no exceptions, no state; [first, last) of the parallel range is this call's share.
using CpuKernelFn = void (*)(void* const* buffers, const int64_t* variables, void* scratch, int64_t first, int64_t last);

/// A CPU kernel, bare. It stays callable as long as its Program lives.
struct CpuKernel {
  CpuKernelFn fn = nullptr;
  int64_t global = 1;                  ///< extent of the parallel range
  int64_t min_part = 1;                ///< the least part that is worth a thread; >= global runs in the calling thread
  size_t scratch_bytes = 0;            ///< of each thread
  std::span<const int64_t> extents{};  ///< what `global` is made of, where it is parallel

  /// cost: a function call when the kernel is not parallel; else that of ThreadPool::run
  void launch(void* const* buffers, const int64_t* variables) const {
    if (global <= min_part) {
      const os::IeeeFloats ieee;
      if (global > 0) fn(buffers, variables, scratch_bytes ? thread_scratch(scratch_bytes) : nullptr, 0, global);
    } else {
      launch_parallel(buffers, variables);
    }
  }

 private:
  void launch_parallel(void* const* buffers, const int64_t* variables) const;
};

/// A program of the CPU device.
class CpuProgram : public Program {
 public:
  /// errors: those of LoadedObject::load
  explicit CpuProgram(const KernelObject& object);
  double run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) override;
  /// The kernel for a global size.
  CpuKernel kernel(int64_t global) const;

 private:
  std::shared_ptr<class LoadedObject> object_;
  std::vector<int64_t> extents_;
  CpuKernel kernel_;
};

}  // namespace whit
