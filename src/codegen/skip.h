// Scores that a mask takes out, and the loops that need not go there.
#pragma once
#include <optional>

#include "codegen/nest.h"

namespace whit::codegen {

/// Rows of a block, and what memory [x][row] of one is like.
struct RowBlock {
  UOp first, in_block;            ///< a row is first + in_block
  int64_t n_rows = 1, n_all = 1;  ///< rows of the block, and of all
};

/// ENDs that store to one memory, before they are scheduled.
struct MaskedPart {
  UOp memory;  ///< a PARAM, or null
  bool is_tile = false;
  std::vector<UOp> ends;
};

/// Only x <= row + offset counts (`upper`), or x > row + offset.
struct Band {
  bool upper = true;
  int64_t offset = 0;
};
/// The band outside of which every sum adds 0 and every maximum takes -inf; null when there is none. An infinity or NaN
/// that a factor of such a 0 has is not seen.
std::optional<Band> find_band(std::span<const MaskedPart> parts, const RowBlock& block);

/// Loops along x run over the band alone. `tiles` are SCRATCHes [x][row].
void skip_outside(Nest& nest, const Band& band, const RowBlock& block, std::span<const UOp> tiles);

}  // namespace whit::codegen
