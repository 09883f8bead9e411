// A nest of a kernel while it is optimised: its stores, and its ranges in the order in which the loops shall nest.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/affine.h"
#include "codegen/decisions.h"
#include "ir/target.h"
#include "rules/rules.h"

namespace whit::codegen {

using RangeMap = std::unordered_map<const Node*, UOp>;

/// ENDs that share ranges. Nests of a kernel are independent of each other.
struct Nest {
  std::vector<UOp> ends;
  std::vector<UOp> order;  ///< every range of the nest, outermost first; ids follow from it
  int64_t min_part = 1;    ///< least iterations of its GLOBAL range that are worth a thread
  std::string opts;        ///< what was done, for people
  Decisions* decisions = nullptr;
  size_t place = 0;  ///< which nest of the kernel it comes from

  /// The alternative to take of `n`; 0, the model's, where nobody searches.
  int pick(std::string_view what, int n) const { return decisions && n > 1 ? decisions->pick(fmt::format("{}.{}", place, what), n) : 0; }
};

/// ENDs that share a range are one nest, and so are all that have none.
std::vector<Nest> nests_of(const UOp& kernel);

/// A RANGE with an id of its own.
UOp fresh_range(int64_t size, AxisType type);
UOp with_type(const UOp& range, AxisType type);  ///< a fresh one of the same size and bounds
bool closes(Op op);                              ///< an END, REDUCE or STAGE

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline bool contains(std::span<const UOp> list, const UOp& u) { return std::ranges::find(list, u) != list.end(); }

/// Puts other ranges in the place of some of a nest's.
void replace_ranges(Nest& nest, const RangeMap& map);

/// Ranges that a node closes: the sources of an END, REDUCE or STAGE after the first.
std::vector<UOp> closed_ranges(const Node* n);

/// Joins ranges that are only used together (a*size(b) + b) and drops those of size 1. The order of a REDUCE's terms
/// stays what it was. `order` is filled with outputs' ranges first, then those of REDUCEs.
void merge_ranges(Nest& nest);

/// The nests as one SINK with ranges numbered by `order`.
UOp to_sink(const std::vector<Nest>& nests, const UOp& original);

/// How an index moves with a range: its coefficient; nothing when it is not linear in it.
struct Stride {
  bool linear = true;
  int64_t value = 0;
};
Stride stride_of(const Affine& flat, const UOp& range);

/// Product of the sizes of the ranges that are open at a node: how often it is computed.
double executions(const Node* n);

double product(std::span<const UOp> ranges);  ///< of their sizes
/// Does a store of the nest read what one overwrites?
bool reads_output(const Nest& nest);

/// The clauses of a gate, which may be null.
inline std::vector<UOp> conjuncts(const UOp& gate) { return gate ? clauses(gate) : std::vector<UOp>{}; }

}  // namespace whit::codegen
