#include "fuzz/fuzz_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/os.h"
#include "codegen/lower.h"
#include "engine/compile.h"
#include "engine/realize.h"
#include "interpret_linear.h"
#include "render/renderer.h"
#include "rewrite/passes.h"
#include "runtime/elf_loader.h"
#include "runtime/host_memory.h"
#include "runtime/pass_through_compiler.h"

namespace whit::fuzz {
namespace {

constexpr size_t kMostSource = 40'000;  // compilers need seconds for a kernel that is longer

struct Kernel {
  UOp program;
  KernelObject object;  // library: the source, until it is compiled
  Via via;
  std::shared_ptr<LoadedObject> module{};
  CpuKernelFn fn = nullptr;
  std::exception_ptr error{};  // of compiling it
};

struct State {
  Way way;
  std::mt19937_64 rng;
  UOp sink;  // as scheduled: the kernel that is lowered now
  std::vector<std::shared_ptr<Kernel>> kernels, waiting;
  int n_too_long = 0;
};
State& state() {
  static State& s = *new State;
  return s;
}

// Questions come up as others are answered.
UOp lower_at_random(const UOp& sink, const Target& target, std::mt19937_64& rng) {
  codegen::Decisions said;
  lower_kernel(sink, target, &said);
  for (int rounds = 0; rounds < 2; ++rounds)
    for (const auto& [question, n] : std::map(said.asked())) said = said.with(question, static_cast<int>(rng() % static_cast<uint64_t>(n)));
  return lower_kernel(sink, target, &said);
}

// The "source" of a kernel is its number.
std::string render(const UOp&, std::string_view name, const Target& machine) {
  State& s = state();
  const UOp sink = s.sink;
  Target target = machine;
  target.renderer = s.way.via == Via::C ? "c" : "llvm";
  auto k = std::make_shared<Kernel>();
  k->via = s.way.via;
  k->program = s.way.random ? lower_at_random(sink, target, s.rng) : lower_kernel(sink, target);
  const ProgramInfo info = ProgramInfo::of(k->program);
  k->object.name = name;
  k->object.n_variables = static_cast<int>(info.variables.size());
  k->object.scratch_bytes = info.scratch_bytes;
  k->object.min_part = info.min_part;
  k->object.extents = signature_of(k->program).extents;
  if (k->via != Via::Linear) k->object.library = renderer_by_name(target.renderer).render(k->program, name, target);
  if (k->object.library.size() > kMostSource) {
    k->via = Via::Linear;
    ++s.n_too_long;
  }
  if (k->via == Via::C) s.waiting.push_back(k);
  s.kernels.push_back(k);
  return std::to_string(s.kernels.size() - 1);
}

void load(Kernel& k, std::shared_ptr<LoadedObject> module, const std::string& function) {
  k.module = std::move(module);
  k.fn = reinterpret_cast<CpuKernelFn>(k.module->must_find(function));
  k.object.library = {};
}

// Compiles these kernels as one module. A module that does not compile is halved until the error has its kernel.
void compile_module(std::span<const std::shared_ptr<Kernel>> kernels) {
  static const std::shared_ptr<Compiler> compiler = make_c_compiler(host_cpu_arch());
  std::string module;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelObject& o = kernels[i]->object;
    for (const std::string& name : {o.name, o.name + "_body", std::string("zeros")})
      module += fmt::format("#undef {0}\n#define {0} k{1}_{0}\n", name, i);
    module += o.library;
  }
  try {
    const auto loaded = LoadedObject::load(compiler->compile(fmt::format("{} kernels", kernels.size()), module), "module");
    for (size_t i = 0; i < kernels.size(); ++i) load(*kernels[i], loaded, fmt::format("k{}_{}", i, kernels[i]->object.name));
  } catch (const Error&) {
    if (kernels.size() == 1) {
      kernels[0]->error = std::current_exception();
      return;
    }
    compile_module(kernels.first(kernels.size() / 2));
    compile_module(kernels.subspan(kernels.size() / 2));
  }
}

class FuzzProgram final : public Program {
 public:
  explicit FuzzProgram(const KernelObject& object)
      : Program(object.name, object.n_buffers, object.n_variables), kernel_(state().kernels.at(std::stoul(object.library))) {
    Kernel& k = *kernel_;
    static const std::shared_ptr<Compiler> llvm = WHIT_LLVM ? make_llvm_compiler(host_cpu_arch()) : nullptr;
    if (k.via == Via::Llvm && !k.fn) load(k, LoadedObject::load(llvm->compile(k.object.name, k.object.library), k.object.name), k.object.name);
    if (k.via == Via::C && !k.fn && !k.error) compile_module(std::exchange(state().waiting, {}));
    if (k.error) std::rethrow_exception(k.error);
  }
  double run(void* const* buffers, const int64_t* variables, const LaunchSize&, bool) override {
    const ProgramInfo info = ProgramInfo::of(kernel_->program);
    const KernelObject& o = kernel_->object;
    if (kernel_->fn) {
      CpuKernel{kernel_->fn, info.extent, o.extents.empty() ? info.extent : o.min_part, static_cast<size_t>(o.scratch_bytes), o.extents}.launch(
          buffers, variables);
      return 0;
    }
    VariableValues named;
    for (size_t i = 0; i < info.variables.size(); ++i) named[info.variables[i]] = variables[i];
    const std::span<void* const> memory(buffers, static_cast<size_t>(n_buffers));
    const int64_t middle = info.extent / 3;  // in two parts, as two threads would
    evaluate_linear(kernel_->program, memory, named, 0, middle);
    evaluate_linear(kernel_->program, memory, named, middle, info.extent);
    return 0;
  }

 private:
  const std::shared_ptr<Kernel> kernel_;
};

// Memory that ends at a page which nobody may touch; what a kernel writes around it is found when it is freed.
class GuardedAllocator final : public HostAllocator {
 public:
  using HostAllocator::HostAllocator;

 protected:
  static constexpr size_t kPage = 4096, kBefore = 64;
  static constexpr int kCanary = 0xA5;
  static size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

  void* do_alloc(int64_t n_bytes, const BufferSpec&) override {
    const size_t own = rounded(static_cast<size_t>(n_bytes), 64), n = rounded(own + kBefore, kPage);
    char* const pages = static_cast<char*>(os::map_pages(n + kPage, false));
    if (!pages) return nullptr;
    mprotect(pages + n, kPage, PROT_NONE);
    std::memset(pages, kCanary, n);
    return pages + n - own;
  }
  void do_free(void* handle, int64_t n_bytes, const BufferSpec&) override {
    const size_t own = rounded(static_cast<size_t>(n_bytes), 64), n = rounded(own + kBefore, kPage);
    const unsigned char* const bytes = static_cast<unsigned char*>(handle);
    bool is_whole = true;
    for (size_t i = static_cast<size_t>(n_bytes); i < own; ++i) is_whole &= bytes[i] == kCanary;
    for (size_t i = 1; i <= kBefore; ++i) is_whole &= *(bytes - i) == kCanary;
    if (!is_whole) {
      fmt::print(stderr, "a kernel has written around a buffer of {} bytes\n", n_bytes);
      std::abort();
    }
    os::unmap_pages(static_cast<char*>(handle) + own - n, n + kPage);
  }
  int64_t max_kept_bytes() const override { return 0; }
};

class FuzzKind final : public HostKind<PlainDevice<GuardedAllocator, FuzzProgram>> {
 public:
  FuzzKind() : HostKind("FUZZ", "kernels of the fuzzer", {"FUZZ"}) {}
  std::shared_ptr<Compiler> make_compiler(const std::string&, const std::string&) override { return std::make_shared<PassThroughCompiler>(""); }
};

}  // namespace

std::string fuzz_device(const Way& way) {
  static const bool registered = [] {
    register_device(std::make_unique<FuzzKind>());
    register_renderer({"fuzz", cpu_caps(), render});
    static const PassScope& pass = *new PassScope(PassStage::Kernel, "fuzz", [](const UOp& sink) { return state().sink = sink; });
    static_cast<void>(pass);
    return true;
  }();
  static_cast<void>(registered);
  state().way = way;
  state().rng.seed(way.seed);
  return fmt::format("FUZZ:{}", static_cast<int>(way.via) * 2 + way.random);
}

bool prepare(std::span<const UOp> roots, const std::string& device) {
  const int before = state().n_too_long;
  const BoundSchedule schedule = engine::schedule(roots);
  std::vector<engine::CompileJob> jobs;
  for (const ScheduledCall& call : schedule.schedule->calls)
    if (call.kernel) jobs.push_back({call.kernel, device});
  engine::compile_all(jobs, 0);
  return state().n_too_long == before;
}

}  // namespace whit::fuzz
