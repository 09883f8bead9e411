// Rows of rule tables: a pattern and what it becomes.
#pragma once
#include <cstdint>

#include "rewrite/pattern.h"

namespace whit {

struct RuleCtx;

/// What every table's row begins with.
struct Row {
  const char* name;
  Pat lhs;
  const char* file;
  uint32_t line;
};

using When = bool (*)(const Match&);           ///< a pure side condition
using Then = UOp (*)(const Match&, RuleCtx&);  ///< null: declined, the next rule is tried

struct Rule : Row {
  Pat rhs{};  ///< used when `then` is null
  When when = nullptr;
  Then then = nullptr;
  const char* grows_why = nullptr;
  void* user = nullptr;  ///< of rules made at run time; found as static_cast<const Rule*>(m.row)->user
  bool raw_order = false;

  /// The result may be larger than what it replaces; says why that is wanted.
  constexpr Rule grows(const char* why) const {
    Rule t = *this;
    t.grows_why = why;
    return t;
  }
  /// The left side matches an order of operands that builders never make (it is there to repair it).
  constexpr Rule any_order() const {
    Rule t = *this;
    t.raw_order = true;
    return t;
  }
};

namespace detail {
constexpr void check_result(const Pat& lhs, const Pat& rhs) {
  uint64_t bound = 0;
  for (unsigned s = 0; s < lhs.len; ++s)
    if (lhs.node[s].slot != pat::kNoSlot) bound |= uint64_t{1} << lhs.node[s].slot;
  for (unsigned s = 0; s < rhs.len; ++s) {
    const pat::PatNode& t = rhs.node[s];
    if (t.kind == pat::PatKind::Node) {
      if (t.slot != pat::kNoSlot) pat::pattern_error("a result uses bind()");
      if ((t.flags & ~pat::PatNode::kFold) != 0) pat::pattern_error("a result uses comm, rest or all");
    } else if (t.slot != pat::kNoSlot && (bound >> t.slot & 1) == 0) {
      pat::pattern_error("a result uses a capture that the pattern does not bind");
    }
  }
}
constexpr void check_pattern(const Pat& lhs) {
  if (lhs.len == 0 || lhs.node[0].kind != pat::PatKind::Node) pat::pattern_error("a pattern must start with an op");
  if (lhs.node[0].ops == OpSet::any()) pat::pattern_error("a pattern must not start with any op");
  for (unsigned s = 0; s < lhs.len; ++s)
    if (lhs.node[s].has(pat::PatNode::kFold)) pat::pattern_error("fold() is for results");
}
}  // namespace detail

/// lhs becomes rhs, where `when` holds.
constexpr Rule rule(const char* name, const Pat& lhs, const Pat& rhs, When when = nullptr, const char* file = __builtin_FILE(),
                    uint32_t line = __builtin_LINE()) {
  detail::check_pattern(lhs);
  detail::check_result(lhs, rhs);
  Rule t{{name, lhs, file, line}};
  t.rhs = rhs;
  t.when = when;
  return t;
}
/// lhs becomes what `then` returns. For what a pattern cannot say.
constexpr Rule rule_fn(const char* name, const Pat& lhs, Then then, const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE()) {
  detail::check_pattern(lhs);
  Rule t{{name, lhs, file, line}};
  t.then = then;
  return t;
}

}  // namespace whit
