// The schedule of kernels that are not contractions: which axis becomes lanes, how reduces are split, what is parallel.
#pragma once
#include "codegen/nest.h"

namespace whit::codegen {

/// A part of an axis: element begin + (i*unroll + u)*lanes + l for i < count.
struct Segment {
  int64_t begin, count, unroll, lanes;
};
/// Parts that cover 0..n-1 exactly, so that no access needs a gate: full tiles, then single vectors, then what is left
/// in shorter vectors or, when `short_tail`, one by one.
std::vector<Segment> segments_of(int64_t n, int64_t lanes, int64_t unroll, bool short_tail);

/// The farthest that a step of `r` moves any load of a REDUCE, in bytes; -1 when one is not linear in it.
int64_t reach(const Node* sum, const UOp& r);

/// A copy with ranges of its own.
Nest clone(const Nest& nest);
/// The END with other ranges: `map` says what its old ones stand for.
UOp remake_end(const UOp& e, const RangeMap& map, std::span<const UOp> ranges);

/// Makes the first of `loops` (outermost first, part of every END) the GLOBAL range, several fused where one has too few
/// iterations, if the nest's work is worth threads. `ns` is a guess of the nest's time on one core, `again_ns` of
/// what every part does first.
void parallelize(Nest& nest, std::span<const UOp> loops, double ns, const Target& target, double again_ns = 0);

/// Rows shorter than a vector (matmuls of few columns and terms, pixels with three channels) become one axis of lanes; false
/// where that does not pay.
bool join_rows(const Nest& nest, const Target& target, std::vector<Nest>& out);

/// Unrolls REDUCEs of a few terms, splits long ones into lanes, makes an output axis lanes where that is best. Gives
/// one nest or more.
std::vector<Nest> vectorize(Nest nest, const Target& target);

}  // namespace whit::codegen
