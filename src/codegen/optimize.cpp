#include "codegen/optimize.h"

#include "codegen/blocks.h"
#include "codegen/contract.h"
#include "codegen/nest.h"
#include "codegen/vectorize.h"

namespace whit::codegen {

UOp optimize(const UOp& sink, const Target& target, int64_t* min_part, Decisions* decisions) {
  std::vector<Nest> out;
  std::vector<Nest> nests = nests_of(sink);
  for (Nest& nest : nests) {
    nest.decisions = decisions;
    nest.place = static_cast<size_t>(&nest - nests.data());
    merge_ranges(nest);
    if (block_rows(nest, target, out) || contract(nest, target, out)) continue;
    for (Nest& part : vectorize(std::move(nest), target)) out.push_back(std::move(part));
  }
  if (min_part) {
    *min_part = 1;
    for (const Nest& n : out) *min_part = std::max(*min_part, n.min_part);
  }
  return to_sink(out, sink);
}

}  // namespace whit::codegen
