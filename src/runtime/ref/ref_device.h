// REF: runs kernels by the reference evaluator, slowly and obviously correctly. The evaluator lies above the runtime
// and plugs itself in.
#pragma once
#include <cstdint>

#include "runtime/compiler.h"
#include "runtime/program.h"

namespace whit {

/// Runs a kernel whose `library` is the text of its graph over buffers in host memory.
using RefRunner = void (*)(const KernelObject& object, void* const* buffers, const int64_t* variables, const LaunchSize& size);
void set_ref_runner(RefRunner runner);

}  // namespace whit
