// Compiles LLVM IR text to an ELF object in this process.
//
// Each compile has its own LLVMContext, each thread its own target machine, so threads share nothing. LLVM is not
// trusted to survive its input: it runs under a crash recovery context, and its fatal errors and signals become
// CompileErrors. After one of them the objects involved are leaked, since their destructors could meet a broken state.
//
// The numeric contract binds every pass here: no fast-math flags are added, and fusion of operations is off.
#include <llvm/ADT/StringMap.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SeparateConstOffsetFromGEP.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "runtime/compiler.h"
#include "runtime/llvm/disassemble.h"

namespace whit {
namespace {

// What LLVM said while this thread compiled.
thread_local std::string* fatal_message = nullptr;

// Called by LLVM where it would end the process. In a compile of ours it jumps back to RunSafely.
void on_fatal_error(void*, const char* reason, bool) {
  if (!fatal_message) return;
  *fatal_message = reason;
  if (llvm::CrashRecoveryContext* const context = llvm::CrashRecoveryContext::GetCurrent()) context->HandleExit(1);
}

// Catches crash signals while any thread compiles, and only then: they belong to the process, not to whit.
class CatchCrashes {
 public:
  CatchCrashes() {
    const std::lock_guard lock(mutex_);
    if (depth_++ == 0) llvm::CrashRecoveryContext::Enable();
  }
  ~CatchCrashes() {
    const std::lock_guard lock(mutex_);
    if (--depth_ == 0) llvm::CrashRecoveryContext::Disable();
  }

 private:
  static inline std::mutex mutex_;
  static inline int depth_ = 0;
};

struct TargetSpec {
  std::string triple, cpu, features;
};

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    llvm::InitializeNativeTargetDisassembler();
    llvm::install_fatal_error_handler(on_fatal_error);
  });
}

const llvm::Target& must_find_target(const std::string& triple) {
  std::string error;
  if (const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(triple, error)) return *target;
#ifndef WHIT_HOST_TARGET_ONLY
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
    llvm::InitializeAllDisassemblers();
  });
#endif
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(triple, error);
  WHIT_USER(target, Device, "[llvm] {}", error);
  return *target;
}

TargetSpec make_spec(const std::string& arch) {
  const CpuArch parsed = parse_cpu_arch(arch);
  TargetSpec spec;
  // Always ELF, also where the system uses another format: the loader is our own.
  spec.triple = parsed.machine + "-unknown-linux-gnu";
  std::vector<std::string> features;
  if (parsed.cpu == "native") {
    WHIT_USER(parsed.machine == parse_cpu_arch(host_cpu_arch()).machine, Device,
              "[llvm] arch '{}' is not this machine, {}; expected MACHINE,CPU such as x86_64,x86-64-v3", arch, host_cpu_arch());
    spec.cpu = llvm::sys::getHostCPUName().str();
    // The name alone lies where a hypervisor or the system hides features.
    for (const auto& feature : llvm::sys::getHostCPUFeatures()) features.push_back((feature.second ? "+" : "-") + feature.first().str());
    std::ranges::sort(features);
  } else {
    spec.cpu = parsed.cpu;
  }
  features.insert(features.end(), parsed.features.begin(), parsed.features.end());
  spec.features = join(features, ",");
  return spec;
}

std::unique_ptr<llvm::TargetMachine> make_machine(const TargetSpec& spec, llvm::CodeGenOptLevel level) {
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.TrapUnreachable = false;
  options.ExceptionModel = llvm::ExceptionHandling::None;
  const llvm::Target& target = must_find_target(spec.triple);
  return std::unique_ptr<llvm::TargetMachine>(
      target.createTargetMachine(spec.triple, spec.cpu, spec.features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, level));
}

// The passes over a function. Kernels come with their loops laid out, vectors chosen and little left to inline, so the
// list holds only what turns the renderer's plain text into good input for code generation. Splitting constant offsets
// off addresses leaves unrolled loops one base per row: it saves a third of code generation. LICM is left out on purpose:
// it hoists addresses of unrolled loops until vectors spill. Numbers are in docs/notes/loader.md.
void run_passes(llvm::Module& module, llvm::TargetMachine& machine, bool is_short) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  if (!is_short) {
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
    return;
  }
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::PreserveCFG));
  passes.addPass(llvm::SeparateConstOffsetFromGEPPass());
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) passes.run(function, functions);
  }
}

// Collects what LLVM reports about its input instead of ending the process.
class Diagnostics : public llvm::DiagnosticHandler {
 public:
  explicit Diagnostics(std::string& errors) : errors_(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream out(errors_);
    llvm::DiagnosticPrinterRawOStream printer(out);
    info.print(printer);
    out << "\n";
    return true;
  }

 private:
  std::string& errors_;
};

// Runs inside the recovery context: may be left by a jump, so everything it owns lives in `state`, which the caller
// leaks then.
struct CompileState {
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  llvm::SmallVector<char, 0> object;
};

void compile_text(CompileState& state, llvm::TargetMachine& machine, const std::string& source, int64_t llvmopt, bool wide, std::string& errors) {
  state.context.setDiagnosticHandler(std::make_unique<Diagnostics>(errors));
  llvm::SMDiagnostic problem;
  const llvm::DataLayout layout = machine.createDataLayout();
  state.module = llvm::parseAssemblyString(source, problem, state.context);
  if (!state.module) {
    llvm::raw_string_ostream out(errors);
    problem.print("kernel", out, /*ShowColors=*/false);
    return;
  }
  llvm::Module& module = *state.module;
  module.setTargetTriple(machine.getTargetTriple().str());
  module.setDataLayout(layout);
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.addFnAttr(llvm::Attribute::NoUnwind);
    if (wide) {
      // LLVM splits 512-bit vectors on machines where it deems them slow; the kernel has made its choice.
      function.addFnAttr("prefer-vector-width", "512");
      function.addFnAttr("min-legal-vector-width", "512");
    }
  }
  {
    llvm::raw_string_ostream out(errors);
    if (llvm::verifyModule(module, &out)) return;
  }
  if (llvmopt >= 1) run_passes(module, machine, llvmopt == 1);
  llvm::raw_svector_ostream out(state.object);
  llvm::legacy::PassManager codegen;
  if (machine.addPassesToEmitFile(codegen, out, nullptr, llvm::CodeGenFileType::ObjectFile, /*DisableVerify=*/true)) {
    errors += "the target emits no object files";
    return;
  }
  codegen.run(module);
}

class LlvmCompiler : public Compiler {
 public:
  explicit LlvmCompiler(TargetSpec spec)
      : Compiler("llvm " LLVM_VERSION_STRING ",object 2," + spec.triple + "," + spec.cpu + "," + spec.features), spec_(std::move(spec)) {
    // Checked against a description without CPU and features: LLVM only prints a warning about unknown ones.
    const std::unique_ptr<llvm::MCSubtargetInfo> known_info(must_find_target(spec_.triple).createMCSubtargetInfo(spec_.triple, "", ""));
    const llvm::MCSubtargetInfo& info = *known_info;
    WHIT_USER(info.isCPUStringValid(spec_.cpu), Device, "[llvm] unknown CPU '{}' of {}", spec_.cpu, spec_.triple);
    std::vector<std::string> known;
    for (const auto& feature : info.getAllProcessorFeatures()) known.emplace_back(feature.Key);
    for (const std::string& feature : split(spec_.features, ',')) {
      if (feature.empty()) continue;
      const std::string plain = feature.substr(1);
      WHIT_USER(std::ranges::find(known, plain) != known.end(), Device, "[llvm] unknown feature '{}' of {}{}", plain, spec_.triple,
                did_you_mean(plain, known));
    }
    const std::unique_ptr<llvm::TargetMachine> machine = make_machine(spec_, llvm::CodeGenOptLevel::Default);
    wide_ = machine->getTargetTriple().isX86() && machine->getMCSubtargetInfo()->checkFeatures("+avx512f");
  }

  std::string compile(const std::string& kernel, const std::string& source) override {
    const int64_t llvmopt = flag::LLVMOPT();
    const CatchCrashes catch_crashes;
    std::unique_ptr<llvm::TargetMachine>& machine = thread_machine(llvmopt);
    auto state = std::make_unique<CompileState>();
    std::string fatal, errors;
    llvm::CrashRecoveryContext recovery;
    fatal_message = &fatal;
    const bool survived = recovery.RunSafely([&] { compile_text(*state, *machine, source, llvmopt, wide_, errors); });
    fatal_message = nullptr;
    if (!survived) {
      (void)state.release();
      (void)machine.release();
      if (fatal.empty()) fatal = "LLVM crashed";
    }
    const std::string reason = fatal.empty() ? errors : fatal;
    WHIT_USER(reason.empty(), Compile, "{}",
              compile_error(kernel, "LLVM", reason, source, fmt::format("llc-19 -mtriple={} -mcpu={} kernel.ll", spec_.triple, spec_.cpu)));
    return std::string(state->object.data(), state->object.size());
  }

  std::string disassemble(const std::string& library) override { return disassemble_object(library, spec_.triple, spec_.cpu, spec_.features); }

 private:
  std::unique_ptr<llvm::TargetMachine>& thread_machine(int64_t llvmopt) {
    static thread_local std::map<std::string, std::unique_ptr<llvm::TargetMachine>> machines;
    const auto level = llvmopt >= 2 ? llvm::CodeGenOptLevel::Default : llvm::CodeGenOptLevel::Less;
    std::unique_ptr<llvm::TargetMachine>& machine = machines[key() + (llvmopt >= 2 ? ",2" : ",1")];
    if (!machine) machine = make_machine(spec_, level);
    return machine;
  }

  TargetSpec spec_;
  bool wide_ = false;
};

}  // namespace

std::shared_ptr<Compiler> make_llvm_compiler(const std::string& arch) {
  initialize_llvm();
  return std::make_shared<LlvmCompiler>(make_spec(arch));
}

}  // namespace whit
