#include "engine/search.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/flags.h"
#include "base/log.h"
#include "base/subprocess.h"
#include "codegen/lower.h"
#include "ir/build.h"
#include "runtime/disk_cache.h"

namespace whit::engine {
namespace {

constexpr int64_t kMostInstructions = 20'000;  // of a candidate; more would only be compiled for long
constexpr double kLeastGain = 0.98;            // of the time: less is noise
constexpr int64_t kSampleNs = 50'000, kTimingNs = 40'000'000;

// Zeroed memory for a kernel's buffers. A child takes it, so that a kernel too big for it costs the candidates alone.
struct Arguments {
  std::vector<std::vector<std::byte>> memory{};
  std::vector<void*> handles{};

  explicit Arguments(const UOp& sink) {
    for (const Node* n : toposort(sink)) {
      if (n->op != Op::Param) continue;
      const auto slot = static_cast<size_t>(n->arg.int_at(0));
      if (slot >= memory.size()) memory.resize(slot + 1);
      memory[slot].resize(static_cast<size_t>(n->shape.numel() * n_bytes(n->dtype)) + 64);
    }
    for (auto& m : memory) handles.push_back(m.data() + (64 - reinterpret_cast<uintptr_t>(m.data()) % 64));
  }
};

struct Times {
  double best_ns = 0, ratio = 0;
};

double sample(const Executable& e, const Arguments& args, const int64_t* values, int64_t runs) {
  const int64_t start = os::now_ns();
  for (int64_t i = 0; i < runs; ++i) e.run(args.handles.data(), values);
  return static_cast<double>(os::now_ns() - start) / static_cast<double>(runs);
}

// The two in turn. The time of `own` as a part of that of `best`: by the least times or by the median of all pairs, whichever
// says less for `own`, as the luckiest of many candidates looks best.
Times compare(const Executable& best, const Executable& own, const Arguments& args, const int64_t* values) {
  const double warm = sample(best, args, values, 1);
  sample(own, args, values, 1);
  const auto runs = static_cast<int64_t>(std::max(1.0, kSampleNs / warm));
  double least = INFINITY, own_least = INFINITY;
  std::vector<double> ratios;
  const int64_t start = os::now_ns();
  while (ratios.size() < 5 || os::now_ns() - start < kTimingNs) {
    const double a = sample(best, args, values, runs), b = sample(own, args, values, runs);
    least = std::min(least, a), own_least = std::min(own_least, b);
    ratios.push_back(b / a);
  }
  std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2, ratios.end());
  return {least, std::max(own_least / least, ratios[ratios.size() / 2])};
}

// A child that has compiled a candidate and waits to time it.
class Child {
 public:
  Child(const Executable& best, const std::function<ExecutablePtr()>& compile, const int64_t* values) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return;
    pid_ = fork();
    fd_ = fds[0];
    if (pid_ != 0) {
      close(fds[1]);
      return;
    }
    // What goes wrong here ends the candidate, and the parent sees the socket close. A dead parent ends the child, also
    // while others hold copies of the parent's end.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(fds[0]);
    try {
      const ExecutablePtr own = compile();
      char go = 0;
      if (write_all(fds[1], "r", 1) && read_all(fds[1], &go, 1)) {
        const Times t = compare(best, *own, Arguments(best.sink), values);
        write_all(fds[1], &t, sizeof(t));
      }
    } catch (const std::exception&) {
      _exit(1);
    }
    _exit(0);
  }
  ~Child() {
    if (fd_ >= 0) close(fd_);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child& operator=(Child&&) = delete;  // nor is it copied

  /// Nothing when it is late or gone.
  std::optional<Times> time(double best_ns) {
    char ready = 0;
    Times t;
    if (pid_ <= 0 || !read_all(fd_, &ready, 1, os::now_ns() + flag::BEAM_TIMEOUT_SEC() * 1'000'000'000)) return {};
    const auto patience = static_cast<int64_t>(1e9 + 200 * best_ns);
    if (send(fd_, "g", 1, MSG_NOSIGNAL) != 1 || !read_all(fd_, &t, sizeof(t), os::now_ns() + patience)) return {};
    return t;
  }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

struct Candidate {
  std::string text;  // its decisions
  std::map<std::string, int> asked;
  UOp program;
  double ratio = 1;  // of its time to that of the model's own program
};

class Search {
 public:
  Search(const CompileJob& job, const CodePath& path, int64_t width, int64_t deadline_ns)
      : job_(job), path_(path), width_(static_cast<size_t>(width)), deadline_ns_(deadline_ns), target_(target_for(path)) {
    key_ = fmt::format("{} {} {} {}", job.sink.key().hex(), path.arch, target_.n_cores, codegen_flags());
  }

  std::string run() {
    DiskCache& cache = DiskCache::get();
    const std::string winner_key = fmt::format("{} width {}", key_, width_);
    if (!flag::IGNORE_BEAM_CACHE())
      if (const auto found = cache.find("beam", winner_key)) return *found;
    const int64_t start = os::now_ns();
    std::vector<Candidate> beam{candidate(codegen::Decisions())};
    best_ = beam[0];
    best_program_ = compile(best_);
    const ExecutablePtr model = best_program_;
    for (const std::string& v : best_program_->variables) values_.push_back(midpoint(v));
    seen_.insert(best_.program.src(1).key());
    while (!late()) {
      const double before = best_.ratio;
      std::vector<Candidate> fresh = neighbours(beam);
      measure(fresh);
      beam.insert(beam.end(), fresh.begin(), fresh.end());
      std::stable_sort(beam.begin(), beam.end(), [](const auto& a, const auto& b) { return a.ratio < b.ratio; });
      if (beam.size() > width_) beam.resize(width_);
      if (best_.ratio > before * kLeastGain) break;
    }
    // What a chain of comparisons has found must stand in a direct one.
    if (!best_.text.empty()) {
      const auto t = Child(*model, [this] { return best_program_; }, values_.data()).time(best_ns_);
      best_.ratio = t ? t->ratio : INFINITY;
      if (best_.ratio > kLeastGain) best_ = {};
    }
    if (!late()) cache.put("beam", winner_key, best_.text);
    if (flag::BEAM_DEBUG() >= 1 || flag::DEBUG() >= 2)
      log_line(fmt::format("BEAM {:<40} {:4} candidates, {:3} failed, {:6.2f} s{}: {:.2f} x the model's time {}", name(), n_tried_, n_failed_,
                           static_cast<double>(os::now_ns() - start) * 1e-9, late() ? ", not finished" : "", best_.ratio, best_.text));
    return best_.text;
  }

 private:
  std::string name() const { return std::string(job_.sink.arg().at(0).as_str()); }
  bool late() const { return deadline_ns_ && os::now_ns() >= deadline_ns_; }

  int64_t midpoint(const std::string& variable) const {
    for (const Node* n : toposort(job_.sink))
      if (n->op == Op::Variable && n->arg.at(0).as_str() == variable) return (n->vmin + n->vmax + 1) / 2;
    return 1;
  }

  Candidate candidate(codegen::Decisions d) const {
    Candidate c{d.str(), {}, {}, 1};
    c.program = lower_kernel(job_.sink, target_, &d);
    c.asked = d.asked();
    return c;
  }

  ExecutablePtr compile(const Candidate& c) const {
    const ExecutablePtr e = compile_program(job_, path_, target_, c.program);
    e->load();
    return e;
  }

  std::vector<Candidate> neighbours(const std::vector<Candidate>& beam) {
    std::vector<Candidate> out;
    for (const Candidate& member : beam)
      for (const auto& [question, n] : member.asked)
        for (int i = 0; i < n && !late(); ++i) {
          os::poll_interrupt();
          const codegen::Decisions d = codegen::Decisions(member.text).with(question, i);
          if (!texts_.insert(d.str()).second) continue;
          Candidate c = candidate(d);
          const UOp list = c.program.src(1);
          if (list.n_src() <= kMostInstructions && seen_.insert(list.key()).second) out.push_back(std::move(c));
        }
    return out;
  }

  // Fills in the ratios, and drops candidates that have none. As many as there are cores compile at a time.
  void measure(std::vector<Candidate>& all) {
    DiskCache& cache = DiskCache::get();
    const auto at_once = static_cast<size_t>(std::clamp<int64_t>(flag::PARALLEL(), 1, 64));
    std::vector<Candidate> kept;
    for (size_t first = 0; first < all.size() && !late(); first += at_once) {
      os::poll_interrupt();
      const size_t last = std::min(all.size(), first + at_once);
      std::vector<std::optional<double>> known;
      std::vector<std::unique_ptr<Child>> children;
      const Candidate against = best_;
      const ExecutablePtr rival = best_program_;
      for (size_t i = first; i < last; ++i) {
        known.push_back(remembered(all[i].text));
        children.push_back(known.back() ? nullptr : std::make_unique<Child>(*rival, [&] { return compile(all[i]); }, values_.data()));
      }
      for (size_t i = first; i < last; ++i) {
        ++n_tried_;
        Candidate& c = all[i];
        std::optional<double>& ratio = known[i - first];
        if (!ratio) {
          const auto t = children[i - first]->time(best_ns_);
          children[i - first].reset();
          if (t) best_ns_ = t->best_ns;
          ratio = t ? against.ratio * t->ratio : INFINITY;
          cache.put("beam time", key_ + c.text, fmt::format("{}", *ratio));
        }
        if (flag::BEAM_DEBUG() >= 2) log_line(fmt::format("BEAM {} {:.3f} x {}", name(), *ratio, c.text));
        n_failed_ += std::isinf(*ratio);
        if (std::isinf(*ratio)) continue;
        c.ratio = *ratio;
        kept.push_back(c);
        if (c.ratio < best_.ratio) {
          best_ = c;
          best_program_ = compile(c);
        }
      }
    }
    all = std::move(kept);
  }

  std::optional<double> remembered(const std::string& text) const {
    if (flag::IGNORE_BEAM_CACHE()) return {};
    const auto found = DiskCache::get().find("beam time", key_ + text);
    return found ? std::optional(std::strtod(found->c_str(), nullptr)) : std::nullopt;
  }

  const CompileJob& job_;
  const CodePath& path_;
  const size_t width_;
  const int64_t deadline_ns_;
  const Target target_;
  std::vector<int64_t> values_;
  std::string key_;
  Candidate best_;
  ExecutablePtr best_program_;
  double best_ns_ = 1e9;
  std::set<Key128> seen_;
  std::set<std::string> texts_{""};
  int n_tried_ = 0, n_failed_ = 0;
};

}  // namespace

std::string search_decisions(const CompileJob& job, const CodePath& path, int64_t width, int64_t deadline_ns) {
  return path.kind == "CPU" ? Search(job, path, width, deadline_ns).run() : "";
}

}  // namespace whit::engine
