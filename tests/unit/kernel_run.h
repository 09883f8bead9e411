// Compiles and calls kernels that tests build by hand.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/build.h"
#include "render/renderer.h"
#include "runtime/compiler.h"
#include "runtime/elf_loader.h"

namespace whit::testing {

using KernelFn = void (*)(void* const* buffers, const int64_t* variables, void* scratch, int64_t first, int64_t last);

/// The renderers whose text this build can compile.
inline std::vector<std::string> renderers() {
#if WHIT_LLVM
  return {"llvm", "c"};
#else
  return {"c"};
#endif
}

struct CompiledKernel {
  std::shared_ptr<LoadedObject> object;
  KernelFn call = nullptr;
  std::string source;
};

/// `renderer` is "llvm" or "c"; `arch` must be one that this machine can run.
inline CompiledKernel compile_kernel(const UOp& program, const std::string& renderer, const std::string& arch = host_cpu_arch()) {
  static std::map<std::string, std::shared_ptr<Compiler>> compilers;
  std::shared_ptr<Compiler>& compiler = compilers[renderer + arch];
  if (!compiler) compiler = renderer == "llvm" ? make_llvm_compiler(arch) : make_c_compiler(arch);
  CompiledKernel k;
  k.source = renderer_by_name(renderer).render(program, "k", host_target());
  k.object = LoadedObject::load(compiler->compile("k", k.source), "test");
  k.call = reinterpret_cast<KernelFn>(k.object->must_find("k"));
  return k;
}

/// A LINEAR under construction.
class Program {
 public:
  UOp add(const UOp& u) {
    list_.push_back(u);
    return u;
  }
  UOp range(int64_t size, AxisType type) { return add(whit::range(size, n_ranges_++, type)); }
  void end(const UOp& r) { add(UOp::make(Op::EndRange, DType::Void, {r})); }
  UOp alu(Op op, std::initializer_list<UOp> src) { return add(whit::alu(op, src)); }
  UOp load(const UOp& at, int64_t lanes = 0) { return add(lanes ? UOp::make(Op::Load, at.dtype(), {at}, Arg(lanes)) : whit::load(at)); }
  void store(const UOp& at, const UOp& value) { add(whit::store(at, value)); }
  /// All elementwise nodes below `value` that are not in the list yet, in an order that works.
  UOp add_tree(const UOp& value) {
    for (const Node* n : toposort(value)) {
      const UOp u(n);
      if (is_elementwise(n->op) && std::find(list_.begin(), list_.end(), u) == list_.end()) add(u);
    }
    return value;
  }
  UOp linear() const { return UOp::make(Op::Linear, DType::Void, list_); }

 private:
  std::vector<UOp> list_;
  int64_t n_ranges_ = 0;
};

}  // namespace whit::testing
