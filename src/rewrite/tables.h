// Tables with other results over the same patterns: text for renderers, yes or no for verifiers, several nodes for
// gradients. The first row that matches and does not decline answers.
#pragma once
#include <optional>
#include <string>

#include "rewrite/pat_table.h"

namespace whit {

// ---- text
/// What a text row asks of the renderer.
class TextCtx {
 public:
  virtual ~TextCtx() = default;
  virtual std::string value(const Node* n) = 0;  ///< how the program names the value of a node
  virtual std::string type(const Node* n) = 0;   ///< how it names the node's type
};
using TextFn = std::optional<std::string> (*)(const Match&, TextCtx&);

struct TextRule : Row {
  const char* format = nullptr;
  When when = nullptr;
  TextFn fn = nullptr;
};
/// `format` is copied but for {x}: the value of capture x; {x.type}: its type; {root}, {type}: the same of the root; {arg}
/// the root's integer argument; {{ and }}: braces.
constexpr TextRule text(const char* name, const Pat& lhs, const char* format, When when = nullptr,
                        const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE()) {
  detail::check_pattern(lhs);
  TextRule t{};
  t.name = name;
  t.lhs = lhs;
  t.file = file;
  t.line = line;
  t.format = format;
  t.when = when;
  return t;
}
constexpr TextRule text_fn(const char* name, const Pat& lhs, TextFn fn, const char* file = __builtin_FILE(),
                           uint32_t line = __builtin_LINE()) {
  TextRule t = text(name, lhs, "", nullptr, file, line);
  t.fn = fn;
  return t;
}

class TextTable {
 public:
  /// Rows that live as long as the table; earlier rows and earlier arrays win. errors: Internal for an unknown name in
  /// braces
  TextTable(const char* name, std::initializer_list<std::span<const TextRule>> rows);
  std::optional<std::string> render(const Node* n, TextCtx& cx) const;

 private:
  PatTable table_{};
};

// ---- yes or no
using LegalFn = bool (*)(const Match&, const void* user);

struct LegalRule : Row {
  LegalFn fn = nullptr;  ///< null: legal
};
constexpr LegalRule legal(const char* name, const Pat& lhs, LegalFn fn = nullptr, const char* file = __builtin_FILE(),
                          uint32_t line = __builtin_LINE()) {
  detail::check_pattern(lhs);
  LegalRule t{};
  t.name = name;
  t.lhs = lhs;
  t.file = file;
  t.line = line;
  t.fn = fn;
  return t;
}

class LegalTable {
 public:
  LegalTable(const char* name, std::initializer_list<std::span<const LegalRule>> rows);
  /// The first answer; null when no row matches. `row` is the row that answered.
  std::optional<bool> check(const Node* n, const void* user, const LegalRule** row = nullptr) const;

 private:
  PatTable table_{};
};

// ---- several nodes
using Nodes = SmallVec<UOp, 3>;
using GradFn = Nodes (*)(const Match&, const UOp& gradient);

struct GradRule : Row {
  GradFn fn = nullptr;
};
/// The gradients of the root's sources, given its own; a null one for a source without gradient.
constexpr GradRule grad(const char* name, const Pat& lhs, GradFn fn, const char* file = __builtin_FILE(),
                        uint32_t line = __builtin_LINE()) {
  detail::check_pattern(lhs);
  GradRule t{};
  t.name = name;
  t.lhs = lhs;
  t.file = file;
  t.line = line;
  t.fn = fn;
  return t;
}

class GradTable {
 public:
  GradTable(const char* name, std::initializer_list<std::span<const GradRule>> rows);
  /// Null when no row matches.
  std::optional<Nodes> gradients(const Node* n, const UOp& gradient, const GradRule** row = nullptr) const;

 private:
  PatTable table_{};
};

}  // namespace whit
