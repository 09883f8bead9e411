// graph_rewrite: applies a rule set everywhere below a root until nothing changes.
//
// How it works. A worklist of frames, no recursion. The sources of a node are rewritten first, then the node over its
// new sources, until no rule applies; what a rule made is rewritten in the same way. Each node is done once a run (the
// memo). A result that needs itself again, or a chain of more than REWRITE_STACK_LIMIT rewrites, is an internal error
// that names the rules. Requirements on rules: (1) pure functions of the match and the context; (2) no node reappears in
// its own replacement's rewriting: rules go downhill by some measure; (3) dtype and shape of the root are kept (a scalar
// result for a shaped root is spread by the engine).
#pragma once
#include <vector>

#include "rewrite/ruleset.h"

namespace whit {

struct RewriteOptions {
  const char* name = "rewrite";
  void* ctx = nullptr;       ///< RuleCtx::user of the rules
  bool bottom_up = false;    ///< rules see a node before its sources are rewritten (and once more if these changed)
  bool walk = false;         ///< one pass: what a rule returns is final and not entered
  bool enter_calls = false;  ///< also rewrite the bodies of CALLs
  bool vectors = false;      ///< a scalar that replaces n lanes becomes a VEC, not a broadcast (after rangeify)
};

UOp graph_rewrite(const UOp& root, const RuleSet& rules, const RewriteOptions& options = {});
/// Several roots with one memo.
std::vector<UOp> graph_rewrite(std::span<const UOp> roots, const RuleSet& rules, const RewriteOptions& options = {});

/// The same with a memo that outlives a call: for many roots that share nodes and come one after another.
class Rewriter {
 public:
  explicit Rewriter(const RuleSet& rules, const RewriteOptions& options = {});
  ~Rewriter();
  Rewriter& operator=(Rewriter&&) = delete;  // nor is it copied
  UOp operator()(const UOp& root);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One applied rule.
struct RewriteEvent {
  const char* pass;
  std::string rule;  ///< "algebra/add-zero"
  UOp before, after;
  int64_t time_ns;  ///< of the look-up, match and build
};
/// Records the rewrites of the calling thread while it lives; an inner trace hides an outer one.
class RewriteTrace {
 public:
  RewriteTrace();
  ~RewriteTrace();
  RewriteTrace& operator=(RewriteTrace&&) = delete;  // nor is it copied
  std::vector<RewriteEvent> events{};

 private:
  RewriteTrace* outer_;
};

}  // namespace whit
