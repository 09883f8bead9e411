#include "viz/timeline.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/profile.h"

namespace whit {
namespace {

using Json = nlohmann::json;

std::string default_path() {
  if (!flag::PROFILE_PATH().empty()) return flag::PROFILE_PATH();
  return (std::filesystem::temp_directory_path() / fmt::format("whit-profile.{}.json", getuid())).string();
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string us(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

[[maybe_unused]] const bool registered = [] {
  timeline_at_exit = [] {
    try {
      const std::string path = default_path();
      write_timeline(path);
      log_line(fmt::format("profile: {} events in {}", timeline().size(), path));
    } catch (const std::exception& e) {
      log_line(fmt::format("profile: {}", e.what()));
    }
  };
  return true;
}();

}  // namespace

void write_timeline(const std::string& path) {
  const std::vector<TimelineEvent> events = timeline();
  const int64_t now = os::now_ns();
  std::map<std::string, int> devices{{"", 0}};
  for (const TimelineEvent& e : events) devices.try_emplace(e.device, static_cast<int>(devices.size()));
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  for (const auto& [name, number] : devices)
    out += fmt::format("{}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":{}}}}}", out.back() == '[' ? "" : ",", number,
                       quoted(std::string(name.empty() ? "host" : name)));
  for (const TimelineEvent& e : events) {
    out += fmt::format(",\n{{\"cat\":\"{}\",\"name\":{},\"pid\":{},\"tid\":{},\"ts\":{},", e.category, quoted(e.name), devices.at(e.device), e.thread,
                       us(e.start_ns));
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
