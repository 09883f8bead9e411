#include "rewrite/tables.h"

#include <fmt/core.h>

namespace whit {
namespace {

template <class R>
void fill(PatTable& table, const char* name, std::initializer_list<std::span<const R>> arrays) {
  for (const auto rows : arrays)
    for (const R& row : rows) table.add(name, row);
}

// Calls put(name, is_name) for the pieces of a format: text between braces is a name.
template <class F>
void pieces(std::string_view format, F&& put) {
  for (size_t at = 0; at < format.size();) {
    const char c = format[at];
    if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
      put(format.substr(at, 1), false);
      at += 2;
    } else if (c == '{') {
      const size_t close = std::min(format.find('}', at), format.size());
      put(format.substr(at + 1, close - at - 1), true);
      at = close + 1;
    } else {
      const size_t stop = std::min(format.find_first_of("{}", at + 1), format.size());
      put(format.substr(at, stop - at), false);
      at = stop;
    }
  }
}

std::string_view base_name(std::string_view word) { return word.substr(0, word.find('.')); }

}  // namespace

TextTable::TextTable(const char* name, std::initializer_list<std::span<const TextRule>> rows) {
  fill(table_, name, rows);
  for (const auto array : rows)
    for (const TextRule& row : array)
      pieces(row.format, [&](std::string_view word, bool is_name) {
        if (!is_name || word == "root" || word == "type" || word == "arg") return;
        bool bound = false;
        const uint8_t slot = pat::slot_by_name(base_name(word));
        for (unsigned s = 0; s < row.lhs.len; ++s) bound |= slot != pat::kNoSlot && row.lhs.node[s].slot == slot;
        const bool suffix_ok = base_name(word) == word || word.ends_with(".type");
        if (!bound || !suffix_ok)
          raise(ErrorKind::Internal, fmt::format("[rewrite] rule {}/{} has no capture '{}' ({}:{})", name, row.name,
                                                 word, row.file, row.line));
      });
}

std::optional<std::string> TextTable::render(const Node* n, TextCtx& cx) const {
  Match m;
  uint32_t index;
  for (auto c = table_.candidates(n); table_.next(c, n, m, &index);) {
    const auto& row = static_cast<const TextRule&>(*table_.rows()[index]);
    m.row = &row;
    if (row.fn) {
      if (auto out = row.fn(m, cx)) return out;
      continue;
    }
    if (row.when && !row.when(m)) continue;
    std::string out;
    pieces(row.format, [&](std::string_view word, bool is_name) {
      if (!is_name) {
        out += word;
      } else if (word == "arg") {
        out += std::to_string(n->arg.as_int());
      } else if (word == "type") {
        out += cx.type(n);
      } else {
        const Node* a = word == "root" ? n : m.slot[pat::slot_by_name(base_name(word))];
        out += base_name(word) == word ? cx.value(a) : cx.type(a);
      }
    });
    return out;
  }
  return {};
}

LegalTable::LegalTable(const char* name, std::initializer_list<std::span<const LegalRule>> rows) {
  fill(table_, name, rows);
}

std::optional<bool> LegalTable::check(const Node* n, const void* user, const LegalRule** answered) const {
  Match m;
  uint32_t index;
  auto c = table_.candidates(n);
  if (!table_.next(c, n, m, &index)) return {};
  const auto& row = static_cast<const LegalRule&>(*table_.rows()[index]);
  m.row = &row;
  if (answered) *answered = &row;
  return !row.fn || row.fn(m, user);
}

GradTable::GradTable(const char* name, std::initializer_list<std::span<const GradRule>> rows) {
  fill(table_, name, rows);
}

std::optional<Nodes> GradTable::gradients(const Node* n, const UOp& gradient, const GradRule** answered) const {
  Match m;
  uint32_t index;
  auto c = table_.candidates(n);
  if (!table_.next(c, n, m, &index)) return {};
  const auto& row = static_cast<const GradRule&>(*table_.rows()[index]);
  m.row = &row;
  if (answered) *answered = &row;
  return row.fn(m, gradient);
}

}  // namespace whit
