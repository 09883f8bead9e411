// The rule tables: a topic a file. Values of a graph never change under them; each rule is tested by tests/rules.
#pragma once
#include <optional>
#include <vector>

#include "rewrite/rewrite.h"

// Defines a function that gives one RuleSet, made at the first call from what follows: its name and its rows, or a sum
// of sets.
#define WHIT_RULE_SET(function, ...)                 \
  const RuleSet& function() {                        \
    static const RuleSet set = RuleSet(__VA_ARGS__); \
    return set;                                      \
  }

namespace whit {
namespace rules {

/// Identities of value arithmetic. Floats: only what IEEE 754 allows for every value (x + 0.0 is not x when x is -0.0).
const RuleSet& algebra();
/// Index arithmetic: sums in normal form, floor division and modulo, comparisons, bounds (see rules/linear.h).
const RuleSet& index();
/// Conditions: WHERE, AND, OR, NOT; what is known inside a branch; gates of INDEX.
const RuleSet& gate();
/// Chains of CAST and BITCAST.
const RuleSet& cast();
/// Loops of one step.
const RuleSet& loops();
/// All that is of use in a kernel graph: algebra, index, gate, cast and loops.
const RuleSet& symbolic();

/// Every table above, for tests and listings.
std::vector<const RuleSet*> tables();

}  // namespace rules

/// The graph after rules::symbolic().
UOp simplify(const UOp& u);

/// `expr`, simplified where `condition` (an AND of clauses X < c, c < X, X == c ...) holds; equal to it only there.
UOp given(const UOp& expr, const UOp& condition);
/// The clauses of an AND, and their AND (true for none).
std::vector<UOp> clauses(const UOp& condition);
UOp all_of(std::span<const UOp> clauses);

}  // namespace whit
