// The operands of a contraction, and how they are brought into scratch memory in the order in which they are read.
#pragma once
#include "codegen/nest.h"

namespace whit::codegen {

constexpr int64_t kSquare = 8;  ///< rows of what is transposed in registers

/// One side of the product that a contraction sums.
struct Operand {
  UOp value;
  bool is_plain = false;  ///< a LOAD, maybe below CASTs
  UOp load;               ///< of a plain one: the LOAD

  static Operand of(const UOp& value);
  bool depends_on(const UOp& range) const { return value.depends_on(range); }
  /// Of all its LOADs that move with the range; not linear when they differ, or when something else moves.
  Stride stride(const UOp& range) const;
  /// Terms of the sum over `k` that lie side by side and are transposed at a time: a divisor, or 0.
  int64_t square_terms(const UOp& k) const;
  /// A gate that depends on one of the ranges: the inner loop would have to look at it.
  bool is_gated_by(std::span<const UOp> ranges) const;
};

/// An INDEX under one more condition.
UOp gated(const UOp& at, const UOp& gate);
/// `value` with `gate` added to every load that depends on `range`.
UOp gate_loads(const UOp& value, const UOp& range, const UOp& gate);
/// `value`, or 0 where `condition` is false: as a gate where value is a load.
UOp zero_unless(const UOp& condition, const UOp& value);

/// 32 bits of `n` neighbouring terms along `k` (two of 16 bits, the first one high, or four bytes): group * n and on.
UOp pack_terms(const UOp& value, const UOp& k, const UOp& group, int64_t n);

/// A packed copy of the vector operand: [panel][k...][u*lanes], zero beyond the axis's end.
struct Panels {
  UOp axis;       ///< its lane axis
  int64_t begin;  ///< first element of the axis
  UOp chunk;      ///< which group of panels, or null: the outer part that stays open
  int64_t n_panels, vectors, lanes;
  int64_t n_valid;  ///< elements of the axis from begin on
};
/// The STAGE; its value is open in everything but `summed` and the axis. Ranges that it makes go to `order`.
UOp pack_panels(const Operand& x, const Panels& p, std::span<const UOp> summed, std::vector<UOp>& order);

/// What staging the broadcast operand needs: the dimensions of its tile. A dimension is a range, or a sum of ranges
/// that only occur together (x + kx of a convolution).
struct TileDim {
  std::vector<std::pair<UOp, int64_t>> terms;
  int64_t lo = 0, size = 0;
};
using Tile = std::vector<TileDim>;
/// A tile over the summed ranges, the rows in `tiled`, and what occurs together with a summed range; without dimensions where
/// that cannot be said.
Tile find_tile(const Operand& x, std::span<const UOp> summed, std::span<const UOp> tiled);
/// The STAGE and, through `map` (what ranges stand for outside), a read of it.
UOp read_tile(const Operand& x, const Tile& t, const RangeMap& map, int64_t lanes, std::vector<UOp>& order);

}  // namespace whit::codegen
