// whit-opt: runs passes over the text form of a graph (docs/ir.md): text in, text out.
//
//   whit-opt optimize lower < kernel.wir         the program of a kernel, as text
//   whit-opt --trace rules/index graph.wir       what each rule of one table does
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "codegen/lower.h"
#include "codegen/optimize.h"
#include "engine/realize.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "render/renderer.h"
#include "rules/decompose_build.h"
#include "rules/rules.h"
#include "schedule/schedule.h"

namespace whit {
namespace {

struct Pass {
  std::string summary;
  std::function<UOp(const UOp&, const Target&)> run;
};

void check(const UOp& u, Level level) {
  const std::string what = find_illegal(u, level);
  WHIT_USER(what.empty(), Value, "{}", what);
}

std::map<std::string, Pass> passes() {
  std::map<std::string, Pass> all;
  const auto add = [&](const char* name, const char* summary, std::function<UOp(const UOp&, const Target&)> run) {
    all.emplace(name, Pass{summary, std::move(run)});
  };
  add("verify-tensor", "docs/ir.md, section 1", [](const UOp& u, const Target&) { return check(u, Level::Tensor), u; });
  add("verify-kernel", "sections 2 and 3", [](const UOp& u, const Target&) { return check(u, Level::Kernel), u; });
  add("verify-program", "section 4", [](const UOp& u, const Target&) { return check(u, Level::Program), u; });
  add("simplify", "all symbolic rules", [](const UOp& u, const Target&) { return simplify(u); });
  add("schedule", "a tensor graph to LINEAR(CALL(SINK, BUFFERs) ..)", [](const UOp& u, const Target&) {
    const std::vector<UOp> roots = u.op() == Op::Sink ? u.srcs() : std::vector{u};
    return make_schedule(roots, engine::default_device_id()).schedule->to_linear();
  });
  add("optimize", "a kernel's loops split, typed and ordered", [](const UOp& u, const Target& t) { return codegen::optimize(u, t); });
  add("lower", "a kernel to PROGRAM(SINK, LINEAR), optimised", [](const UOp& u, const Target& t) { return lower_kernel(u, t); });
  add("lower-as-is", "the same with the loops as they are", [](const UOp& u, const Target& t) { return lower_optimized(u, t); });
  add("render", "the source of a PROGRAM, as a SOURCE node", [](const UOp& u, const Target& t) {
    const std::string text = renderer_by_name(t.renderer).render(u, ProgramInfo::of(u).name, t);
    return UOp::make(Op::Source, DType::Void, {}, Arg(std::string_view(text)));
  });
  for (const RuleSet* set : rules::tables())
    all.emplace(std::string("rules/") + set->name(),
                Pass{"one table of rules", [set](const UOp& u, const Target&) { return graph_rewrite(u, *set, {.name = set->name()}); }});
  return all;
}

std::string read_all(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  WHIT_USER(file, Io, "{}: cannot be read", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int run(int argc, char** argv) {
  const std::map<std::string, Pass> all = passes();
  std::vector<std::string> names;
  std::string path = "-", renderer = "llvm";
  bool list = false, rules = false, trace = false;
  CLI::App app("Runs passes, in order, over the text form of a graph", "whit-opt");
  app.add_option("passes", names, "their names; none prints the graph as it is read");
  app.add_option("-f,--file", path, "the text; standard input when absent")->capture_default_str();
  app.add_option("--renderer", renderer, "the renderer that the program is for")->capture_default_str();
  app.add_flag("--list", list, "list the passes");
  app.add_flag("--rules", rules, "list the rules");
  app.add_flag("--trace", trace, "print every rewrite to standard error");
  try {
    app.parse(argc, argv);
    check_flags();
    if (list) {
      for (const auto& [name, pass] : all) std::fputs(fmt::format("{:<18} {}\n", name, pass.summary).c_str(), stdout);
      return 0;
    }
    if (rules) {
      auto tables = rules::tables();
      tables.insert(tables.end(), {&rules::decompose_int(), &rules::decompose_math(), &rules::decompose_trig(), &rules::decompose_narrow()});
      for (const RuleSet* table : tables)
        for (const Rule* rule : table->rules()) std::puts(table->full_name(rule).c_str());
      return 0;
    }
    Target target = host_target();
    target.renderer = renderer_by_name(renderer).name;
    UOp u = parse_text(read_all(path));
    for (const std::string& name : names) {
      const auto it = all.find(name);
      WHIT_USER(it != all.end(), Key, "there is no pass {}; `whit-opt --list` lists them", name);
      RewriteTrace events;
      u = it->second.run(u, target);
      if (!trace) continue;
      for (const RewriteEvent& e : events.events)
        std::fputs(fmt::format("; {} {}\n{}; becomes\n{}\n", e.pass, e.rule, to_text(e.before), to_text(e.after)).c_str(), stderr);
    }
    std::fputs((u.op() == Op::Source ? std::string(u.arg().as_str()) : to_text(u)).c_str(), stdout);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const Error& e) {
    std::fputs(fmt::format("whit-opt: {}\n", e.what()).c_str(), stderr);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace whit

int main(int argc, char** argv) { return whit::run(argc, argv); }
