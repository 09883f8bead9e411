#include "codegen/decisions.h"

#include <fmt/core.h>

#include <charconv>

namespace whit::codegen {

Decisions::Decisions(std::string_view text) {
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' ')), name = word.substr(0, word.find('='));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    int number = 0;
    if (name.size() < word.size()) std::from_chars(word.data() + name.size() + 1, word.data() + word.size(), number);
    if (number > 0) answers_.emplace(name, number);
  }
}

int Decisions::pick(const std::string& name, int n) {
  asked_[name] = n;
  const auto it = answers_.find(name);
  return it == answers_.end() || it->second >= n ? 0 : it->second;
}

std::string Decisions::str() const {
  std::string out;
  for (const auto& [name, number] : answers_) out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, number);
  return out;
}

Decisions Decisions::with(const std::string& name, int number) const {
  Decisions d;
  d.answers_ = answers_;
  d.answers_.erase(name);
  if (number > 0) d.answers_.emplace(name, number);
  return d;
}

}  // namespace whit::codegen
