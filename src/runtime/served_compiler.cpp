#include "base/error.h"
#include "base/subprocess.h"
#include "runtime/compiler.h"

namespace whit {
namespace {

class ServedCompiler final : public Compiler {
 public:
  ServedCompiler(std::string key, std::vector<std::string> argv, int64_t timeout_ms)
      : Compiler(std::move(key)), argv_(std::move(argv)), timeout_ms_(timeout_ms) {}

  std::string compile(const std::string& kernel, const std::string& source) override {
    std::vector<std::string> argv = argv_;
    argv.push_back(kernel);
    ProcessResult child = run_process(argv, source, timeout_ms_);
    WHIT_USER(!child.timed_out, Compile, "[compile] kernel {}: the compiler's process did not answer in {} ms", kernel, timeout_ms_);
    WHIT_USER(child.exit_code < 128, Compile, "[compile] kernel {}: the compiler's process was ended by signal {}", kernel, child.exit_code - 128);
    WHIT_USER(child.exit_code == 0, Compile, "[compile] kernel {}: exit code {} of the compiler's process: {}", kernel, child.exit_code, child.err);
    WHIT_USER(!child.out.empty(), Compile, "[compile] kernel {}: the compiler's process gave nothing", kernel);
    return std::move(child.out);
  }

 private:
  std::vector<std::string> argv_;
  int64_t timeout_ms_;
};

}  // namespace

std::shared_ptr<Compiler> make_served_compiler(std::string key, std::vector<std::string> argv, int64_t timeout_ms) {
  return std::make_shared<ServedCompiler>(std::move(key), std::move(argv), timeout_ms);
}

}  // namespace whit
