// Compilers: source in, binary out, with a cache on disk; and what a compiled kernel is.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whit {

/// A compiled kernel and what is needed to run it.
struct KernelObject {
  std::string library;             ///< the binary, in the format of the device (CPU: an ELF object file)
  std::string name;                ///< the function in it
  std::string arch;                ///< what it was compiled for
  int n_buffers = 0;               ///< the signature: so many buffers, outputs first,
  int n_variables = 0;             ///< then so many 64-bit variables
  int64_t scratch_bytes = 0;       ///< scratch memory of each thread (CPU)
  int64_t min_part = 1;            ///< the least part of the parallel range that is worth a thread (CPU)
  std::vector<int64_t> extents{};  ///< what the parallel range is made of; none: one call covers it (CPU)
};

class Compiler {
 public:
  /// `key` names everything that decides the output beside the source: compiler, version, arch, features. Empty: nothing
  /// is kept on disk.
  explicit Compiler(std::string key) : key_(std::move(key)) {}
  virtual ~Compiler() = default;
  Compiler& operator=(Compiler&&) = delete;  // nor is it copied

  const std::string& key() const { return key_; }
  /// Compiles without the cache. Callable from several threads at once.
  /// errors: Compile, naming the kernel
  virtual std::string compile(const std::string& kernel, const std::string& source) = 0;
  /// Compiles through the cache on disk (flags CCACHE, CACHELEVEL). The key holds every codegen flag.
  /// errors: Compile; Assertion with the source when ASSERT_COMPILE=1 and the cache has no such kernel
  std::string compile_cached(const std::string& kernel, const std::string& source);
  /// The binary as assembly text, for people. errors: NotImplemented
  virtual std::string disassemble(const std::string& library);

 private:
  std::string key_;
};

/// The one text of a kernel that does not compile: which, by whom, why, its source, and how to compile it by hand.
std::string compile_error(const std::string& kernel, const std::string& renderer, const std::string& reason, const std::string& source,
                          const std::string& command);

/// The compiler of LLVM IR text to an ELF object. `arch` is "ARCH,CPU[,[+-]feature...]", for example "x86_64,native" or
/// "x86_64,znver4,-avx512f".
/// errors: Device when this build has no LLVM, or LLVM knows no such arch, CPU or feature
std::shared_ptr<Compiler> make_llvm_compiler(const std::string& arch);
/// The compiler of C text to an ELF object, a subprocess: flag CC, else the first of clang-19, clang, gcc, cc.
/// errors: Device when there is none
std::shared_ptr<Compiler> make_c_compiler(const std::string& arch);

/// Compiles in a child process, so that a compiler that crashes or hangs costs one error. `argv` and the kernel's name are
/// run for each kernel: source on standard input, the binary on standard output; an exit code but 0 is an error whose text
/// is on standard error. `key` is that of the compiler which the child runs; `whit compile` is such a child.
std::shared_ptr<Compiler> make_served_compiler(std::string key, std::vector<std::string> argv, int64_t timeout_ms = 60'000);

/// Parts of an arch string of a CPU.
struct CpuArch {
  std::string machine;                ///< "x86_64", "aarch64"
  std::string cpu;                    ///< "native" or a name of LLVM's
  std::vector<std::string> features;  ///< "+avx2", "-avx512f"
};
/// errors: Value
CpuArch parse_cpu_arch(std::string_view arch);
/// "x86_64,native" on such a machine.
std::string host_cpu_arch();

}  // namespace whit
