// Compiles C text to an ELF object by a C compiler in a subprocess.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/flags.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "runtime/compiler.h"

namespace whit {
namespace {

constexpr int64_t kTimeoutMs = 120'000;

// The first line of `cc --version`, asked once: it is part of cache keys.
std::string version_of(const std::vector<std::string>& program) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, std::string>();
  const std::lock_guard lock(mutex);
  std::string& version = known[join(program, " ")];
  if (version.empty()) {
    std::vector<std::string> command = program;
    command.emplace_back("--version");
    const ProcessResult result = run_process(command, "", 10'000);
    WHIT_USER(result.exit_code == 0 && !result.out.empty(), Device, "[c] {} failed: {}", join(command, " "), result.err);
    version = result.out.substr(0, result.out.find('\n'));
  }
  return version;
}

// The program, and arguments for it: CC may be "ccache gcc".
std::vector<std::string> choose_program() {
  std::vector<std::string> wanted = split(flag::CC(), ' ');
  std::erase(wanted, "");
  if (!wanted.empty()) {
    const std::string found = find_program(wanted[0]);
    WHIT_USER(!found.empty(), Device, "[c] CC={} is not in PATH", wanted[0]);
    wanted[0] = found;
    return wanted;
  }
  for (const char* const name : {"clang-19", "clang", "gcc", "cc"}) {
    if (std::string found = find_program(name); !found.empty()) return {found};
  }
  raise(ErrorKind::Device, "[c] there is no C compiler: none of clang-19, clang, gcc, cc is in PATH");
}

std::vector<std::string> make_command(const std::vector<std::string>& program, const std::string& version, const CpuArch& arch, bool native_machine) {
  const bool is_clang = version.find("clang") != std::string::npos;
  std::vector<std::string> command = program;
  const auto add = [&](std::initializer_list<const char*> options) { command.insert(command.end(), options.begin(), options.end()); };
  add({"-c", "-x", "c", "-O2", "-fwrapv", "-fno-strict-aliasing"});
  // The numeric contract: what is written is what is computed.
  add({"-ffp-contract=off", "-fno-fast-math", "-fno-math-errno", "-fno-trapping-math"});
  // Kernels are loaded by whit's own loader: position independent, no start-up code, no unwinding.
  add({"-fPIC", "-ffreestanding", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-stack-protector", "-fno-plt", "-fvisibility=hidden",
       "-w"});
  if (arch.machine == "x86_64") command.emplace_back("-fcf-protection=none");
  if (!native_machine) {
    WHIT_USER(is_clang, Device, "[c] {} compiles for this machine only, not for {}", program[0], arch.machine);
    command.push_back("--target=" + arch.machine + "-unknown-linux-gnu");
  }
  command.push_back((arch.machine == "x86_64" ? "-march=" : "-mcpu=") + arch.cpu);
  if (arch.machine == "x86_64") {
    for (const std::string& feature : arch.features) command.push_back((feature[0] == '+' ? "-m" : "-mno-") + feature.substr(1));
    command.emplace_back("-mprefer-vector-width=512");
  }
  return command;
}

// A file of this user's that is gone when the object is.
class TemporaryFile {
 public:
  TemporaryFile() {
    const char* const folder = std::getenv("TMPDIR");
    path_ = std::string(folder && *folder ? folder : "/tmp") + "/whit-XXXXXX.o";
    const int fd = mkostemps(path_.data(), 2, O_CLOEXEC);
    WHIT_USER(fd >= 0, Io, "[c] no temporary file {}: {}", path_, std::strerror(errno));
    ::close(fd);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile& operator=(TemporaryFile&&) = delete;  // nor is it copied
  const std::string& path() const { return path_; }
  std::string read() const {
    std::ifstream in(path_, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

 private:
  std::string path_;
};

class CCompiler : public Compiler {
 public:
  CCompiler(std::vector<std::string> command, const std::string& version)
      : Compiler("c," + version + "," + join(command, " ")), command_(std::move(command)) {}

  std::string compile(const std::string& kernel, const std::string& source) override {
    const TemporaryFile file;
    std::vector<std::string> command = command_;
    command.insert(command.end(), {"-", "-o", file.path()});
    const ProcessResult result = run_process(command, source, kTimeoutMs);
    WHIT_USER(!result.timed_out && result.exit_code == 0, Compile, "{}",
              compile_error(kernel, "C", result.timed_out ? "the compiler took too long" : result.err, source, join(command_, " ") + " kernel.c"));
    return file.read();
  }

  std::string disassemble(const std::string& library) override {
    const std::string objdump = find_program("objdump");
    if (objdump.empty()) return Compiler::disassemble(library);
    const TemporaryFile file;
    std::ofstream(file.path(), std::ios::binary) << library;
    return run_process({objdump, "-d", "--no-show-raw-insn", file.path()}, "", 10'000).out;
  }

 private:
  std::vector<std::string> command_;
};

}  // namespace

std::shared_ptr<Compiler> make_c_compiler(const std::string& arch) {
  const CpuArch parsed = parse_cpu_arch(arch);
  const bool native_machine = parsed.machine == parse_cpu_arch(host_cpu_arch()).machine;
  WHIT_USER(native_machine || parsed.cpu != "native", Device, "[c] arch '{}' is not this machine, {}; expected MACHINE,CPU such as x86_64,x86-64-v3",
            arch, host_cpu_arch());
  const std::vector<std::string> program = choose_program();
  const std::string version = version_of(program);
  return std::make_shared<CCompiler>(make_command(program, version, parsed, native_machine), version);
}

}  // namespace whit
