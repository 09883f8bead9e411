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
    if (block_rows(nest, target, out) || join_rows(nest, target, out) || contract(nest, target, out)) continue;
    for (Nest& part : vectorize(std::move(nest), target)) out.push_back(std::move(part));
  }
  if (min_part) {
    // As many parts as the nest that is worth most of them: each range of the launch is cut into so many.
    int64_t extent = 0, n_parts = 1;
    for (const Nest& n : out)
      for (const UOp& r : n.order) {
        if (axis_type(r.node()) != AxisType::Global) continue;
        extent += range_size(r.node());
        n_parts = std::max(n_parts, range_size(r.node()) / n.min_part);
      }
    *min_part = std::max<int64_t>(1, extent / n_parts);
  }
  return to_sink(out, sink);
}

}  // namespace whit::codegen
