#include "base/profile.h"

#include <unistd.h>

#include <exception>
#include <mutex>

#include "base/immortal.h"
#include "base/os.h"

namespace whit {
namespace {

struct Timeline {
  std::mutex mutex;
  std::vector<TimelineEvent> events{};
  const pid_t process = getpid();
  std::terminate_handler terminate_before = nullptr;

  static constexpr auto get = immortal<Timeline>;
  Timeline() {
    std::atexit(write_at_exit);
    // An exception that nobody catches ends the process without its exit handlers.
    terminate_before = std::set_terminate([] {
      write_at_exit();
      get().terminate_before();
    });
  }
  static void write_at_exit() {
    static std::atomic<bool> is_done{false};
    if (getpid() == get().process && !is_done.exchange(true) && timeline_at_exit && !timeline().empty()) timeline_at_exit();
  }
};

int thread_number() {
  static std::atomic<int> n_threads{0};
  thread_local const int own = n_threads.fetch_add(1);
  return own;
}

thread_local int64_t build_start = 0, build_end = 0;
thread_local int n_open = 0;  // spans of this thread

}  // namespace

void ProfileSpan::begin(const char* category, std::string_view name, std::string_view device) {
  if (n_open++ == 0) build_ended();
  Timeline& t = Timeline::get();
  const std::lock_guard lock(t.mutex);
  index_ = static_cast<int64_t>(t.events.size());
  t.events.push_back({category, std::string(name), std::string(device), thread_number(), os::now_ns(), -1});
}

void ProfileSpan::end() const {
  --n_open;
  Timeline& t = Timeline::get();
  const std::lock_guard lock(t.mutex);
  if (static_cast<size_t>(index_) < t.events.size()) t.events[static_cast<size_t>(index_)].end_ns = os::now_ns();
}

void add_to_timeline(TimelineEvent event) {
  Timeline& t = Timeline::get();
  event.thread = thread_number();
  const std::lock_guard lock(t.mutex);
  t.events.push_back(std::move(event));
}

void note_build() {
  if (n_open > 0) return;
  build_end = os::now_ns();
  if (!build_start) build_start = build_end;
}

void build_ended() {
  if (build_start) add_to_timeline({"build", "build graph", "", 0, build_start, build_end});
  build_start = 0;
}

std::vector<TimelineEvent> timeline() {
  Timeline& t = Timeline::get();
  const std::lock_guard lock(t.mutex);
  return t.events;
}

void clear_timeline() {
  Timeline& t = Timeline::get();
  const std::lock_guard lock(t.mutex);
  t.events.clear();
}

}  // namespace whit
