// RuleSet: a table of rules ready for use. Copies are cheap and share the table.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rewrite/pat_table.h"

namespace whit {

/// What a rule's function may see of the pass it runs in.
struct RuleCtx {
  void* user = nullptr;  ///< RewriteOptions::ctx
  bool stop = false;     ///< set by a rule of a bottom-up pass: keep this node and do not enter its sources
  bool vectors = false;  ///< RewriteOptions::vectors
  template <class T> T& as() const { return *static_cast<T*>(user); }
};

class RuleSet {
 public:
  /// A set from an array that lives as long as the process. errors: Internal, with file:line, for a duplicate name, a
  /// rule that an earlier unconditional one hides, and a pattern that can never match
  RuleSet(const char* name, std::span<const Rule> rules);
  /// A set that owns its rows: rules made at run time. The rows' names are copied.
  RuleSet(std::string name, std::vector<Rule> rules);

  /// The node's replacement by the first rule that applies; null when there is none.
  UOp rewrite(const Node* n, RuleCtx& cx, const Rule** fired = nullptr) const;
  UOp rewrite(const UOp& u) const;

  const char* name() const;
  std::span<const Rule* const> rules() const;
  /// "algebra/add-zero" of the rule number `index`.
  std::string full_name(const Rule* rule) const;

  /// Both tables: a's rules first. A rule that is in both counts once.
  friend RuleSet operator+(const RuleSet& a, const RuleSet& b);

 private:
  struct Impl;
  RuleSet() = default;
  std::shared_ptr<Impl> impl_;
};
RuleSet operator+(const RuleSet& a, const RuleSet& b);

/// A CONST from an elementwise op over CONSTs; null when one of them is none (or Invalid) or a weakint result does not
/// fit 64 bits.
UOp fold_op(Op op, DType dtype, std::span<const UOp> src);

/// Counters of the calling thread.
struct RewriteStats {
  int64_t visited = 0;  ///< nodes for which rules were looked up
  int64_t tried = 0;    ///< rules whose pattern matched
  int64_t fired = 0;    ///< rewrites
};
RewriteStats& rewrite_stats();

}  // namespace whit
