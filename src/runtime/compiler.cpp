#include "runtime/compiler.h"

#include <sys/utsname.h>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"
#include "runtime/disk_cache.h"

namespace whit {

std::string Compiler::disassemble(const std::string&) { raise(ErrorKind::NotImplemented, "[compile] {} cannot disassemble", key_); }

std::string Compiler::compile_cached(const std::string& kernel, const std::string& source) {
  const bool use_cache = !key_.empty() && flag::CCACHE() != 0 && flag::CACHELEVEL() >= 1;
  std::string key;
  if (use_cache) {
    // The length before each part: no two sets of parts give one key.
    for (const std::string& part : {key_, codegen_flags(), kernel, source}) key += fmt::format("{}:{}", part.size(), part);
    if (std::optional<std::string> found = DiskCache::get().find("kernel", key)) return *std::move(found);
  }
  WHIT_USER(flag::ASSERT_COMPILE() == 0, Assertion, "[compile] ASSERT_COMPILE=1, but kernel {} is not in the cache of {}; its source:\n{}", kernel,
            key_, source);
  std::string library = compile(kernel, source);
  if (use_cache) DiskCache::get().put("kernel", key, library);
  return library;
}

std::string compile_error(const std::string& kernel, const std::string& renderer, const std::string& reason, const std::string& source,
                          const std::string& command) {
  constexpr size_t kMaxShown = 20'000;
  return fmt::format("[compile] kernel {} does not compile with the renderer {}: {}\nto reproduce: {}\nits source:\n{}{}", kernel, renderer, reason,
                     command, source.substr(0, kMaxShown), source.size() > kMaxShown ? "\n... (all of it: DEBUG=4)" : "");
}

CpuArch parse_cpu_arch(std::string_view arch) {
  const std::vector<std::string> parts = split(arch, ',');
  CpuArch parsed{parts[0], "native", {}};
  WHIT_USER(!parsed.machine.empty(), Value, "[arch] '{}' names no machine; expected for example x86_64,native", arch);
  if (parsed.machine == "arm64") parsed.machine = "aarch64";
  if (parsed.machine == "amd64") parsed.machine = "x86_64";
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    WHIT_USER(!part.empty(), Value, "[arch] '{}' has an empty part; expected for example x86_64,znver4,-avx512f", arch);
    if (i == 1 && part[0] != '+' && part[0] != '-') {
      parsed.cpu = part;
    } else {
      parsed.features.push_back(part[0] == '+' || part[0] == '-' ? part : "+" + part);
    }
  }
  return parsed;
}

std::string host_cpu_arch() {
  utsname name;
  if (uname(&name) != 0) return "x86_64,native";
  const std::string machine = name.machine;
  return (machine == "arm64" ? "aarch64" : machine) + ",native";
}

}  // namespace whit
