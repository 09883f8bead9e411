// The command line. A subcommand is a function that adds itself to the parser; main only runs what was chosen.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/flags.h"
#include "runtime/compile_server.h"
#include "runtime/device.h"
#include "viz/device_table.h"

namespace whit {
namespace {

void add_devices(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("devices", "probe every device and renderer; say what works and why not");
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

void add_compile_server(CLI::App& app) {
  CLI::App* const command =
      app.add_subcommand("compile-server", "serve compiles on standard input and output (for whit itself)");
  static std::string renderer = "LLVM";
  command->add_option("renderer", renderer, "LLVM or C")->check(CLI::IsMember({"LLVM", "C"}));
  command->callback(
      [] { serve_compiles(STDIN_FILENO, STDOUT_FILENO, renderer == "LLVM" ? make_llvm_compiler : make_c_compiler); });
}

int run(int argc, char** argv) {
  CLI::App app("whit: a deep-learning framework and compiler", "whit");
  app.require_subcommand(1);
  app.set_version_flag("--version", "whit 0.1.0");
  app.footer("Flags are read from the environment (DEBUG=2, DEV=CPU:C ...); `whit flags` lists them.");
  add_devices(app);
  add_flags(app);
  add_compile_server(app);
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
