// How near the untuned kernels are to those that BEAM finds: `beam FILE SECONDS [WIDTH]` reads kernels as texts with an empty line
// between two of them (DEBUG=5 prints such), searches each for its part of SECONDS, and times both in turn: the geometric mean of untuned
// over tuned, and the kernels that a search improves most. What searches find stays in the cache (CACHEDB): a second run goes on.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/flags.h"
#include "base/os.h"
#include "engine/compile.h"
#include "ir/build.h"
#include "ir/text.h"
#include "report.h"

using namespace whit;

namespace {

struct Arguments {
  std::vector<std::vector<std::byte>> memory{};
  std::vector<void*> handles{};
  std::vector<int64_t> values{};

  explicit Arguments(const engine::Executable& e) {
    for (const Node* n : toposort(e.sink)) {
      if (n->op == Op::Param) {
        const auto slot = static_cast<size_t>(n->arg.int_at(0));
        memory.resize(std::max(memory.size(), slot + 1));
        memory[slot].resize(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)) + 64);
      }
    }
    for (auto& m : memory) handles.push_back(m.data() + (64 - reinterpret_cast<uintptr_t>(m.data()) % 64));
    for (const std::string& v : e.variables)
      for (const Node* n : toposort(e.sink))
        if (n->op == Op::Variable && n->arg.at(0).as_str() == v) values.push_back((n->vmin + n->vmax + 1) / 2);
  }
};

// Seconds of a call of each, the least and the median of rounds in turn; 0.2 s or 300 rounds.
struct Times {
  double least[2], median[2];
};
Times times(const engine::Executable& a, const engine::Executable& b) {
  const Arguments args(a);
  const engine::Executable* const both[] = {&a, &b};
  const auto seconds = [&](const engine::Executable& e, int n) {
    const double start = bench::now_s();
    for (int i = 0; i < n; ++i) e.run(args.handles.data(), args.values.data());
    return (bench::now_s() - start) / n;
  };
  for (const auto* e : both) seconds(*e, 1);
  const int n = static_cast<int>(std::clamp(50e-6 / seconds(a, 1), 1.0, 1000.0));
  std::vector<double> all[2];
  for (const double start = bench::now_s(); all[0].size() < 5 || (bench::now_s() - start < 0.2 && all[0].size() < 300);)
    for (int i = 0; i < 2; ++i) all[i].push_back(seconds(*both[i], n));
  Times t{};
  for (int i = 0; i < 2; ++i) t.least[i] = *std::min_element(all[i].begin(), all[i].end()), t.median[i] = bench::median(all[i]);
  return t;
}

struct Row {
  std::string name;
  double untuned, ratio, median_ratio;
};

std::vector<engine::CompileJob> kernels(std::istream& in) {
  std::vector<engine::CompileJob> jobs;
  std::set<Key128> seen;
  std::string line, text;
  const auto take = [&] {
    if (text.empty()) return;
    const UOp sink = parse_text(text);
    if (seen.insert(sink.key()).second) jobs.push_back({sink, "CPU"});
    text.clear();
  };
  while (std::getline(in, line)) {
    if (line.empty()) take();
    else text += line + "\n";
  }
  take();
  return jobs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: beam FILE SECONDS [WIDTH]\n");
    return 2;
  }
  try {
    std::ifstream in(argv[1]);
    WHIT_USER(in.good(), Runtime, "{} cannot be read", argv[1]);
    const std::vector<engine::CompileJob> jobs = kernels(in);
    WHIT_USER(!jobs.empty(), Runtime, "{} has no kernels", argv[1]);
    const FlagScope budget("BEAM_BUDGET", int64_t{std::atoll(argv[2])});
    const std::vector<engine::ExecutablePtr> untuned = engine::compile_all(jobs, 0);
    const std::vector<engine::ExecutablePtr> tuned = engine::compile_all(jobs, argc > 3 ? std::atoll(argv[3]) : 2);
    std::vector<Row> rows;
    int n_found = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      Row row{untuned[i]->name, 0, 1, 1};
      if (untuned[i]->source != tuned[i]->source) {
        ++n_found;
        untuned[i]->load();
        tuned[i]->load();
        const Times t = times(*untuned[i], *tuned[i]);
        row = {row.name, t.least[0], t.least[0] / t.least[1], t.median[0] / t.median[1]};
      }
      rows.push_back(row);
    }
    double logs = 0, median_logs = 0;
    for (const Row& r : rows) logs += std::log(r.ratio), median_logs += std::log(r.median_ratio);
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ratio > b.ratio; });
    const auto n = static_cast<double>(rows.size());
    bench::report("kernels", "kernels", n);
    bench::report("kernels that BEAM finds better programs for", "kernels", n_found);
    bench::report("untuned to BEAM, geometric mean", "x", std::exp(logs / n));
    bench::report("untuned to BEAM, geometric mean of medians", "x", std::exp(median_logs / n));
    for (size_t i = 0; i < std::min<size_t>(10, rows.size()); ++i)
      bench::report(fmt::format("worst {}: {} of {:.1f} us", i + 1, rows[i].name, rows[i].untuned * 1e6), "x", rows[i].ratio);
  } catch (const Error& e) {
    fmt::print(stderr, "beam: {}\n", e.what());
    return 1;
  }
}
