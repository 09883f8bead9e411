#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace whit {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (;;) {
    const size_t at = text.find(separator);
    pieces.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string to_upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return upper;
}

std::string join(const std::vector<std::string>& pieces, std::string_view separator) { return fmt::format("{}", fmt::join(pieces, separator)); }

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string upper = to_upper(name);
  std::string best;
  // Farther than this is no misspelling; two swapped letters are two changes.
  size_t best_distance = (name.size() <= 3 ? 1 : std::max<size_t>(2, name.size() / 3)) + 1;
  std::vector<size_t> row;
  for (const std::string& candidate : candidates) {
    const std::string other = to_upper(candidate);
    row.resize(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < upper.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i + 1;
      for (size_t j = 0; j < other.size(); ++j) {
        const size_t substitute = diagonal + (upper[i] != other[j]);
        diagonal = row[j + 1];
        row[j + 1] = std::min({substitute, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = candidate;
  }
  return best.empty() ? "" : fmt::format("; did you mean {}?", best);
}

std::string format_bytes(int64_t n_bytes) {
  static constexpr const char* kUnits[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
  if (n_bytes < 1000) return fmt::format("{} B", n_bytes);
  double value = static_cast<double>(n_bytes) / 1000;
  size_t unit = 0;
  while (value >= 999.995 && unit + 1 < std::size(kUnits)) value /= 1000, ++unit;
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

bool parse_int(std::string_view text, int64_t& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace whit
