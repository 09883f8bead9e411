#include "codegen/optimize.h"

#include "codegen/nest.h"
#include "codegen/vectorize.h"

namespace whit::codegen {

UOp optimize(const UOp& sink, const Target& target, int64_t* min_part) {
  std::vector<Nest> out;
  int64_t least = 1;
  for (Nest& nest : nests_of(sink)) {
    merge_ranges(nest);
    for (Nest& part : vectorize(std::move(nest), target)) {
      least = std::max(least, part.min_part);
      out.push_back(std::move(part));
    }
  }
  if (min_part) *min_part = least;
  return to_sink(out, sink);
}

}  // namespace whit::codegen
