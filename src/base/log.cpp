#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <set>

#include "base/immortal.h"

namespace whit {
namespace {
struct Said {
  std::mutex mutex;
  std::set<std::string> topics;
  std::string lines;
};
constexpr auto said = immortal<Said>;
}  // namespace

void log_line(std::string_view text) {
  const std::string line = std::string(text) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void say_once(const std::string& topic, std::string_view text) {
  Said& s = said();
  const std::lock_guard lock(s.mutex);
  if (!s.topics.insert(topic).second) return;
  const std::string line = "whit: " + std::string(text);
  s.lines += line + "\n";
  log_line(line);
}

std::string said_so_far() {
  Said& s = said();
  const std::lock_guard lock(s.mutex);
  return s.lines;
}

}  // namespace whit
