// The command line. A subcommand is a function that adds itself to the parser; main only runs what was chosen.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "runtime/device.h"
#include "viz/device_table.h"

namespace whit {
namespace {

void add_devices(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("devices", "probe every device and renderer; say what works and why not");
  command->callback([] {
    const bool colours = isatty(STDOUT_FILENO) != 0 && flag::NO_COLOR() == 0;
    std::fputs(device_table(colours).c_str(), stdout);
  });
}

void add_flags(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("flags", "list the flags, their values and their meaning");
  command->callback([] {
    for (const FlagInfo& info : flag_infos()) {
      const FlagValue value = flag_value(info.name);
      const std::string text = info.is_text ? std::get<std::string>(value) : std::to_string(std::get<int64_t>(value));
      std::fputs(fmt::format("{:<26} {:<10} {}\n", info.name, text, info.doc).c_str(), stdout);
    }
  });
}

void add_compile(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("compile", "compile a kernel's source, standard input to standard output");
  static std::string renderer, arch, kernel;
  command->add_option("renderer", renderer, "LLVM or C")->required()->check(CLI::IsMember({"LLVM", "C"}));
  command->add_option("arch", arch, "ARCH,CPU[,[+-]feature...], such as x86_64,native")->required();
  command->add_option("kernel", kernel, "the function's name, for messages")->required();
  command->callback([] {
    const std::string source{std::istreambuf_iterator<char>(std::cin), {}};
    std::cout << (renderer == "LLVM" ? make_llvm_compiler : make_c_compiler)(arch)->compile(kernel, source);
  });
}

// Benchmarks belong to the source tree: bench/run.py there does the work, and has its own help.
void add_bench(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("bench", "measure whit beside its peers, in a source tree; --help lists rows");
  command->prefix_command();
  command->set_help_flag();
  command->callback([command] {
    std::filesystem::path folder = std::filesystem::current_path();
    while (!std::filesystem::exists(folder / "bench/run.py") && folder.has_relative_path()) folder = folder.parent_path();
    const std::string script = (folder / "bench/run.py").string();
    WHIT_USER(std::filesystem::exists(script), Runtime, "[bench] no bench/run.py here or in a folder above; expected to be in whit's source tree");
    std::vector<std::string> words{"python3", script};
    for (const std::string& word : command->remaining()) words.push_back(word);
    std::vector<char*> args;
    for (std::string& word : words) args.push_back(word.data());
    args.push_back(nullptr);
    execvp(args[0], args.data());
    WHIT_USER(false, Runtime, "[bench] python3 cannot be run: {}", std::strerror(errno));
  });
}

int run(int argc, char** argv) {
  CLI::App app("whit: a deep-learning framework and compiler", "whit");
  app.require_subcommand(1);
  app.set_version_flag("--version", "whit 0.1.0");
  app.footer("Flags are read from the environment (DEBUG=2, DEV=CPU:C ...); `whit flags` lists them.");
  add_devices(app);
  add_flags(app);
  add_compile(app);
  add_bench(app);
  try {
    check_flags();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const Error& e) {
    std::fputs(fmt::format("whit: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace whit

int main(int argc, char** argv) { return whit::run(argc, argv); }
