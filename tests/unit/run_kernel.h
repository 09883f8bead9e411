// Runs kernel graphs through codegen, renderer and compiler, beside the reference evaluator.
#pragma once
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codegen/lower.h"
#include "ir/interpret.h"
#include "render/renderer.h"
#include "runtime/program.h"

namespace whit::testing {

/// The renderer whose text this build can compile.
inline constexpr const char* kRenderer = WHIT_LLVM ? "llvm" : "c";

/// This machine, with kernels rendered by it.
inline const Target& test_target() {
  static const Target target = [] {
    Target t = host_target();
    t.renderer = kRenderer;
    t.arch = host_cpu_arch();
    return t;
  }();
  return target;
}

/// A lowered kernel that can be called.
class BuiltKernel {
 public:
  explicit BuiltKernel(const UOp& program) : info(ProgramInfo::of(program)) {
    const Target& target = test_target();
    source = renderer_by_name(kRenderer).render(program, info.name, target);
    const KernelSignature signature = signature_of(program);
    static const std::shared_ptr<Compiler> compiler = WHIT_LLVM ? make_llvm_compiler(host_cpu_arch()) : make_c_compiler(host_cpu_arch());
    KernelObject object;
    object.library = compiler->compile(info.name, source);
    object.name = info.name;
    object.arch = target.arch;
    object.n_buffers = static_cast<int>(signature.buffers.size());
    object.scratch_bytes = info.scratch_bytes;
    object.min_part = info.min_part;
    program_ = std::make_unique<CpuProgram>(object);
  }
  /// The whole launch space in the calling thread.
  void run(void* const* buffers) const { run(buffers, 0, info.extent); }
  void run(void* const* buffers, int64_t first, int64_t last) const {
    CpuKernel k = program_->kernel(info.extent);
    k.fn(buffers, nullptr, k.scratch_bytes ? thread_scratch(k.scratch_bytes) : nullptr, first, last);
  }

  ProgramInfo info;
  std::string source;

 private:
  std::unique_ptr<CpuProgram> program_;
};

/// Memory for every PARAM of a kernel, by slot; floats in [-1, 1), ints in [0, int_limit).
struct KernelMemory {
  std::vector<std::vector<std::byte>> bytes{};
  std::vector<DType> dtypes{};

  explicit KernelMemory(const UOp& sink, unsigned seed = 1, int int_limit = 10) {
    std::mt19937 gen(seed);
    for (const Node* n : toposort(sink)) {
      if (n->op != Op::Param) continue;
      const size_t slot = static_cast<size_t>(n->arg.int_at(0));
      if (slot >= bytes.size()) {
        bytes.resize(slot + 1);
        dtypes.resize(slot + 1);
      }
      if (!bytes[slot].empty()) continue;
      dtypes[slot] = n->dtype;
      const int64_t n_elems = n->shape.numel();
      bytes[slot].resize(static_cast<size_t>(n_elems * n_bytes(n->dtype)));
      for (int64_t i = 0; i < n_elems; ++i) {
        const double v =
            is_float(n->dtype) ? std::uniform_real_distribution<double>(-1, 1)(gen) : static_cast<double>(gen() % static_cast<unsigned>(int_limit));
        write_element(n->dtype, bytes[slot].data(), i, Scalar::of(n->dtype, v));
      }
    }
  }
  std::vector<void*> pointers() {
    std::vector<void*> p;
    for (auto& b : bytes) p.push_back(b.data());
    return p;
  }
};

/// "" when the program computes what the evaluator computes, else the first difference. Parts of the launch space run
/// one by one, in `n_parts` calls.
inline std::string difference(const UOp& sink, const UOp& program, double tolerance = 1e-5, int n_parts = 1) {
  KernelMemory want(sink), have(sink);
  auto p = want.pointers();
  evaluate_kernel(sink, p);
  const BuiltKernel k(program);
  auto q = have.pointers();
  for (int i = 0; i < n_parts; ++i) k.run(q.data(), k.info.extent * i / n_parts, k.info.extent * (i + 1) / n_parts);
  for (size_t s = 0; s < want.bytes.size(); ++s) {
    if (want.bytes[s].empty()) continue;
    const int64_t n = static_cast<int64_t>(want.bytes[s].size()) / n_bytes(want.dtypes[s]);
    for (int64_t i = 0; i < n; ++i) {
      const double a = read_element(want.dtypes[s], want.bytes[s].data(), i).as_double();
      const double b = read_element(want.dtypes[s], have.bytes[s].data(), i).as_double();
      if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * std::max(1.0, std::abs(a))) continue;
      return fmt::format("buffer {} element {} of {}: {} instead of {}\n{}", s, i, n, b, a, k.source);
    }
  }
  return "";
}

}  // namespace whit::testing
