// Small helpers on text that several layers need.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whit {

/// The pieces of `text` between occurrences of `separator`; empty pieces are kept, so "" has one.
std::vector<std::string> split(std::string_view text, char separator);
std::string to_upper(std::string_view text);
std::string join(const std::vector<std::string>& pieces, std::string_view separator);
/// "; did you mean X?" with the candidate that is likely meant by a misspelt `name`, or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);
/// "512 B", "1.50 MB": decimal units, as the texts of allocators and counters use them.
std::string format_bytes(int64_t n_bytes);
/// An integer that fills all of `text`; false otherwise.
bool parse_int(std::string_view text, int64_t& value);

}  // namespace whit
