// Writes docs/ops.md and docs/flags.md from the tables ops.def and flags.def. `opdoc FOLDER` writes, `opdoc --check FOLDER`
// says what is not up to date.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"
#include "ir/op.h"

namespace whit {
namespace {

struct OpRow {
  const char* text;
  const char* group;
  int n_src;
  const char* semantics;
};
constexpr OpRow kOps[] = {
#define WHIT_OP(Name, TEXT, Group, n_src, semantics) {TEXT, #Group, n_src, semantics},
#include "ir/ops.def"
};

struct FlagRow {
  const char* name;
  const char* default_text;
  const char* doc;
};
constexpr FlagRow kFlags[] = {
#define WHIT_FLAG_INT(name, value, codegen, doc) {#name, #value, doc},
#define WHIT_FLAG_STR(name, value, codegen, doc) {#name, value, doc},
#include "base/flags.def"
};

// A cell of a table of Markdown.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') out += '\\';
    out += c;
  }
  return out;
}

std::string ops_page() {
  std::string out =
      "# The ops\n\n"
      "Written by `./dev docs` from `src/ir/ops.def`, whose head says what holds for all of them: shapes, weak ints, "
      "integers that\n"
      "wrap, IEEE floats, no undefined behaviour. `docs/ir.md` says which ops stand where.\n";
  std::string_view group;
  for (const OpRow& op : kOps) {
    if (group != op.group) {
      group = op.group;
      out += fmt::format("\n## {}\n\n| op | sources | meaning |\n|---|---|---|\n", group);
    }
    const std::string n = op.n_src < 0 ? fmt::format("{} or more", -1 - op.n_src) : std::to_string(op.n_src);
    out += fmt::format("| `{}` | {} | {} |\n", op.text, n, cell(op.semantics));
  }
  return out;
}

std::string flags_page() {
  std::string out =
      "# The flags\n\n"
      "Written by `./dev docs` from `src/base/flags.def`. Each is read from the environment at start; "
      "`Context(NAME=value)` in Python\n"
      "and `FlagScope` in C++ override it for a while. `whit flags` prints the values of a process.\n\n"
      "| flag | default | meaning |\n|---|---|---|\n";
  for (const FlagRow& f : kFlags)
    out += fmt::format("| `{}` | {} | {} |\n", f.name, *f.default_text ? fmt::format("`{}`", f.default_text) : "", cell(f.doc));
  return out;
}

int run(bool check, const std::string& folder) {
  int status = 0;
  const std::pair<std::string, std::string> pages[] = {{folder + "/ops.md", ops_page()}, {folder + "/flags.md", flags_page()}};
  for (const auto& [path, text] : pages) {
    if (check) {
      std::ifstream file(path, std::ios::binary);
      const std::string old((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (old == text) continue;
      fmt::print("{} is not what the table says; run ./dev docs\n", path);
      status = 1;
    } else {
      std::ofstream file(path, std::ios::binary);
      file << text;
      if (file.flush()) continue;
      fmt::print(stderr, "opdoc: cannot write {}\n", path);
      status = 1;
    }
  }
  return status;
}

}  // namespace
}  // namespace whit

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::strcmp(argv[1], "--check") == 0;
  if (argc != 2 && !check) {
    std::fputs("usage: opdoc [--check] FOLDER\n", stderr);
    return 2;
  }
  return whit::run(check, argv[argc - 1]);
}
