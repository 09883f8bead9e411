// The timeline of a process: what was built, scheduled, compiled, run and copied when, by device and thread. Collected while
// the flag PROFILE is set, written in Chrome's trace format when the process ends, also when it ends by an exception.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/flags.h"

namespace whit {

inline bool is_profiling() { return flag::PROFILE() != 0; }

struct TimelineEvent {
  const char* category;  ///< build, gradient, schedule, lower, compile, kernel, copy, memory ...: docs/runtime.md
  std::string name;
  std::string device;        ///< "" is the host
  int thread;                ///< in order of first use
  int64_t start_ns, end_ns;  ///< of os::now_ns(); end_ns is -1 while it lasts
  int64_t value = -1;        ///< memory: bytes in use
};

/// Something that lasts as long as this object. Costs a look at a flag when nothing is collected.
class ProfileSpan {
 public:
  ProfileSpan(const char* category, std::string_view name, std::string_view device = {}) {
    if (is_profiling()) [[unlikely]]
      begin(category, name, device);
  }
  ~ProfileSpan() {
    if (index_ >= 0) [[unlikely]]
      end();
  }
  ProfileSpan& operator=(ProfileSpan&&) = delete;  // nor is it copied

 private:
  void begin(const char* category, std::string_view name, std::string_view device);
  void end() const;
  int64_t index_ = -1;
};

/// Adds what was timed elsewhere, whatever the flag says.
void add_to_timeline(TimelineEvent event);
/// A tensor was made by this thread, outside of any span. build_ended(), which every outermost span calls, adds the time
/// from the first one to the last one since.
void note_build();
void build_ended();

/// All events so far, in order of their beginning in each thread.
std::vector<TimelineEvent> timeline();
void clear_timeline();
/// What is done with the timeline when the process ends; must not throw. viz/timeline.h sets it.
inline void (*timeline_at_exit)() = nullptr;

}  // namespace whit
