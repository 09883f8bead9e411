// Nests with values that stay in scratch memory (STAGEs of the scheduler): attention and its gradients.
#pragma once
#include "codegen/nest.h"

namespace whit::codegen {

/// The rows first .. first + n_rows - 1 of n_all.
struct RowBlock {
  UOp first;
  int64_t n_rows = 1, n_all = 1;
};

/// Cuts the loops along the keys of STAGEs [.., key] into blocks, and bounds the loops over those, where a mask that
/// compares a key with `row` makes each sum add 0 and each maximum take -inf beyond them; false when there is none. An
/// infinity or NaN in a factor of such a 0 is not seen.
bool skip_masked(std::vector<UOp>& ends, const UOp& row, const RowBlock& block);

/// Schedules a nest with STAGEs for blocks of rows; false when it has none. The STAGEs lie [row][..] or, so that rows are
/// lanes, [..][row].
enum class RowsLie { Inside, Outside };
bool block_rows(const Nest& nest, const Target& target, std::vector<Nest>& out, RowsLie rows = RowsLie::Inside);

}  // namespace whit::codegen
