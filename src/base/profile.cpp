#include "base/profile.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

namespace whit {
namespace {

std::string default_path() {
  if (!flag::PROFILE_PATH().empty()) return flag::PROFILE_PATH();
  return (std::filesystem::temp_directory_path() / fmt::format("whit-profile.{}.json", getuid())).string();
}

struct Timeline {
  std::mutex mutex;
  std::vector<TimelineEvent> events{};
  const pid_t process = getpid();
  std::terminate_handler terminate_before = nullptr;

  static Timeline& get() {
    static auto& all = *new Timeline();
    return all;
  }
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
    if (getpid() != get().process || is_done.exchange(true) || timeline().empty()) return;
    try {
      const std::string path = default_path();
      write_timeline(path);
      log_line(fmt::format("profile: {} events in {}", timeline().size(), path));
    } catch (const std::exception& e) {
      log_line(fmt::format("profile: {}", e.what()));
    }
  }
};

int thread_number() {
  static std::atomic<int> n_threads{0};
  thread_local const int own = n_threads.fetch_add(1);
  return own;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < ' ') {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string us(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

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

void write_timeline(const std::string& path) {
  const std::vector<TimelineEvent> events = timeline();
  const int64_t now = os::now_ns();
  std::map<std::string, int> devices{{"", 0}};
  for (const TimelineEvent& e : events) devices.try_emplace(e.device, static_cast<int>(devices.size()));
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  for (const auto& [name, number] : devices)
    out += fmt::format("{}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}}",
                       out.back() == '[' ? "" : ",", number, json_text(name.empty() ? "host" : name));
  for (const TimelineEvent& e : events) {
    out += fmt::format(",\n{{\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},", e.category,
                       json_text(e.name), devices.at(e.device), e.thread, us(e.start_ns));
    if (e.value >= 0) {
      out += fmt::format("\"ph\":\"C\",\"args\":{{\"bytes\":{}}}}}", e.value);
    } else if (e.end_ns == e.start_ns) {
      out += "\"ph\":\"i\",\"s\":\"t\"}";
    } else {
      out += fmt::format("\"ph\":\"X\",\"dur\":{}}}", us((e.end_ns < 0 ? now : e.end_ns) - e.start_ns));
    }
  }
  out += "\n]}\n";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const bool written = file && std::fwrite(out.data(), 1, out.size(), file) == out.size();
  if (file && std::fclose(file) == 0 && written) return;
  raise(ErrorKind::Io, fmt::format("[profile] cannot write {}", path));
}

}  // namespace whit
