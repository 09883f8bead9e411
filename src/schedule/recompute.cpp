// How it works. A buffer that is *dropped after* call c keeps its content up to c; the first later call that reads it is
// preceded by its maker again, into fresh memory, and by the makers of what that reads and is dropped too. So a list of
// calls follows from the set of dropped buffers, and its peak from the list. Buffers are dropped one by one, at the peak.
#include "schedule/recompute.h"

#include <algorithm>
#include <numeric>

#include "schedule/memory_plan.h"
#include "schedule/rangeify.h"

namespace whit::sched {
namespace {

constexpr int64_t kCallCost = 2000;  // of one call more, in iterations

class Recompute {
 public:
  explicit Recompute(Schedule& s) : s_(s), n_(s.buffers.size()), uses_(n_), maker_(n_, -1), writers_(n_), dropped_(n_, -1) {
    for (size_t c = 0; c < s.calls.size(); ++c) {
      const ScheduledCall& call = s.calls[c];
      for (size_t a = 0; a < call.args.size(); ++a) {
        const int32_t b = call.args[a];
        uses_[b].push_back(static_cast<int32_t>(c));
        if (a < call.n_written) writers_[b].push_back(static_cast<int32_t>(c));
      }
      if (call.updates) continue;
      for (const int32_t b : written(call))
        if (s.buffers[static_cast<size_t>(b)].kind == ScheduleBuffer::Kind::Temp) maker_[b] = static_cast<int32_t>(c);
    }
    for (size_t b = 0; b < n_; ++b)
      if (writers_[b].size() != 1 || uses_[b].size() < 2) maker_[b] = -1;
    build();
  }

  int64_t run(std::span<const char> hinted, int64_t budget) {
    const int64_t given = peak_;
    for (size_t b = 0; b < n_; ++b) {
      if (maker_[b] < 0 || !hinted[b]) continue;
      int32_t gap = 1;
      for (size_t u = 1; u < uses_[b].size(); ++u) {
        if (uses_[b][u] - uses_[b][u - 1] <= gap) continue;
        gap = uses_[b][u] - uses_[b][u - 1];
        dropped_[b] = uses_[b][u - 1];
      }
    }
    build();
    if (peak_ >= given) {
      dropped_.assign(n_, -1);
      build();
    }
    auto best = dropped_;
    int64_t least = peak_;
    while (budget > 0 && peak_ > budget && drop_at_peak()) {
      build();
      if (peak_ >= least) continue;
      least = peak_;
      best = dropped_;
    }
    dropped_ = best;
    build();
    apply();
    return least;
  }

 private:
  struct Step {
    int32_t call, before;  // it runs before that call of the given list, or is it
    std::vector<int32_t> args;
  };

  static std::span<const int32_t> written(const ScheduledCall& c) { return std::span(c.args).first(c.n_written); }
  static std::span<const int32_t> read(const ScheduledCall& c) { return std::span(c.args).subspan(c.n_written); }
  const ScheduledCall& maker(int32_t b) const { return s_.calls[static_cast<size_t>(maker_[b])]; }
  const ScheduleBuffer& buffer(int32_t b) const {
    return s_.buffers[static_cast<size_t>(static_cast<size_t>(b) < n_ ? b : copy_of_[static_cast<size_t>(b) - n_])];
  }
  int64_t bytes_of(int32_t b) const {
    const ScheduleBuffer& m = buffer(b);
    return m.kind == ScheduleBuffer::Kind::Input ? 0 : planned_bytes(m);
  }

  // The calls for what is dropped now, and their peak. What cannot be made again is not dropped any more.
  void build() {
    for (int32_t blocked; (blocked = list_calls()) >= 0;) dropped_[blocked] = maker_[blocked] = -1;
    lives_.assign(n_ + copy_of_.size(), {});
    for (size_t k = 0; k < steps_.size(); ++k)
      for (const int32_t b : steps_[k].args)
        if (static_cast<size_t>(b) >= n_ || buffer(b).kind == ScheduleBuffer::Kind::Temp) lives_[b].touch(static_cast<int64_t>(k), bytes_of(b));
    const std::vector<int64_t> live = live_bytes(lives_);
    const auto peak = std::ranges::max_element(live);
    peak_ = *peak;
    peak_step_ = peak - live.begin();
  }

  // A buffer that is dropped although it cannot be made again, or -1.
  int32_t list_calls() {
    steps_.clear();
    copy_of_.clear();
    std::vector<int32_t> at(n_);  // where the content of a buffer is
    std::iota(at.begin(), at.end(), 0);
    const auto is_here = [&](int32_t b, int32_t c) { return dropped_[b] < 0 || c <= dropped_[b] || at[static_cast<size_t>(b)] != b; };
    std::vector<int32_t> todo;
    for (int32_t c = 0; c < std::ssize(s_.calls); ++c) {
      const ScheduledCall& call = s_.calls[static_cast<size_t>(c)];
      todo.assign(call.args.begin(), call.args.end());
      while (!todo.empty()) {
        const int32_t b = todo.back();
        if (is_here(b, c)) {
          todo.pop_back();
          continue;
        }
        const size_t n_todo = todo.size();
        for (const int32_t r : read(maker(b))) {
          const auto w = std::upper_bound(writers_[r].begin(), writers_[r].end(), maker_[b]);
          if (w != writers_[r].end() && *w < c) return b;
          if (!is_here(r, c)) todo.push_back(r);
        }
        if (todo.size() > n_todo) continue;
        Step again{maker_[b], c, maker(b).args};
        for (int32_t& a : again.args) a = at[static_cast<size_t>(a)];
        for (size_t k = 0; k < maker(b).n_written; ++k) {
          const int32_t w = maker(b).args[k];
          again.args[k] = static_cast<int32_t>(n_ + copy_of_.size());
          copy_of_.push_back(w);
          if (!is_here(w, c)) at[static_cast<size_t>(w)] = again.args[k];
        }
        steps_.push_back(std::move(again));
      }
      steps_.push_back({c, c, call.args});
      for (int32_t& a : steps_.back().args) a = at[static_cast<size_t>(a)];
    }
    return -1;
  }

  // Drops what lies unused at the peak and frees most there for the least work.
  bool drop_at_peak() {
    const Step& peak = steps_[static_cast<size_t>(peak_step_)];
    const int32_t now = peak.before - (peak.call != peak.before);  // the last given call that has run by then
    int32_t best = -1;
    double best_score = 0;
    for (int32_t b = 0; b < static_cast<int32_t>(n_); ++b) {
      if (maker_[b] < 0 || dropped_[b] >= 0 || lives_[b].first >= peak_step_ || lives_[b].last <= peak_step_) continue;
      if (std::find(peak.args.begin(), peak.args.end(), b) != peak.args.end()) continue;
      int64_t n_freed = bytes_of(b), cost = kCallCost + maker(b).n_iterations;
      for (const int32_t r : read(maker(b))) {
        if (dropped_[r] >= 0) {
          cost += maker(r).n_iterations;
        } else if (buffer(r).kind == ScheduleBuffer::Kind::Temp && lives_[r].last < peak_step_) {
          n_freed -= bytes_of(r);  // it would have to live on
        }
      }
      const double score = static_cast<double>(n_freed) / static_cast<double>(cost);
      if (score <= best_score) continue;
      best = b;
      best_score = score;
    }
    if (best < 0) return false;
    dropped_[best] = *(std::upper_bound(uses_[best].begin(), uses_[best].end(), now) - 1);
    return true;
  }

  void apply() {
    std::vector<ScheduledCall> calls;
    for (Step& step : steps_) {
      ScheduledCall call = s_.calls[static_cast<size_t>(step.call)];
      call.args = std::move(step.args);
      s_.stats.n_recomputed += step.call != step.before;
      calls.push_back(std::move(call));
    }
    s_.stats.n_kernels += s_.stats.n_recomputed;
    for (const int32_t b : copy_of_) {
      ScheduleBuffer copy = s_.buffers[static_cast<size_t>(b)];
      copy.kind = ScheduleBuffer::Kind::Temp;
      copy.slot = -1;
      s_.buffers.push_back(copy);
    }
    s_.calls = std::move(calls);
  }

  Schedule& s_;
  const size_t n_;
  Numbered<std::vector<int32_t>> uses_;     // by buffer: calls
  Numbered<int32_t> maker_;                 // by buffer: the call that can make it again, or -1
  Numbered<std::vector<int32_t>> writers_;  // by buffer
  Numbered<int32_t> dropped_;               // by buffer: the call after which it is dropped, or -1
  std::vector<Step> steps_{};
  std::vector<int32_t> copy_of_{};  // by number of a fresh buffer
  Numbered<Lifetime> lives_{};
  int64_t peak_ = 0, peak_step_ = 0;
};

}  // namespace

int64_t recompute(Schedule& s, std::span<const char> hinted, int64_t budget) { return Recompute(s).run(hinted, budget); }

}  // namespace whit::sched
