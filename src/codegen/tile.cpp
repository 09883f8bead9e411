#include "codegen/tile.h"

#include <cstdlib>

#include "codegen/vectorize.h"
#include "ir/build.h"

namespace whit::codegen {
namespace {

constexpr int64_t kTile = 32;              // elements a side: lines of 32 rows fit into the first cache
constexpr int64_t kLeastSize = 8 * kTile;  // below, everything is in the cache anyway

bool steps_by_one(const std::vector<UOp>& flats, const UOp& along, const UOp& across) {
  for (const UOp& flat : flats) {
    const Affine a = affine_of(flat);
    const Stride one = stride_of(a, along), far = stride_of(a, across);
    if (one.linear && far.linear && std::abs(one.value) == 1 && std::abs(far.value) >= kTile) return true;
  }
  return false;
}

}  // namespace

void tile_transposed(Nest& nest) {
  if (nest.ends.size() != 1) return;
  std::vector<UOp> flats;
  for (const Node* n : toposort(nest.ends)) {
    if (n->op == Op::Reduce || n->op == Op::Stage) return;
    if (n->op == Op::Index) flats.emplace_back(n->src()[1]);
  }
  UOp i, j;
  for (const UOp& r : nest.order) {
    if (axis_type(r.node()) != AxisType::Weak || range_size(r.node()) < kLeastSize || range_size(r.node()) % kTile)
      continue;
    for (const UOp& s : nest.order)
      if (s != r && !i && axis_type(s.node()) == AxisType::Weak && range_size(s.node()) >= kLeastSize &&
          range_size(s.node()) % kTile == 0 && steps_by_one(flats, r, s) && steps_by_one(flats, s, r))
        i = r, j = s;
  }
  if (!i) return;
  RangeMap map;
  std::vector<UOp> outer, inner;
  for (const UOp& r : nest.order) {
    if (r != i && r != j) {
      outer.push_back(r);
      continue;
    }
    const UOp block = fresh_range(range_size(r.node()) / kTile, AxisType::Weak),
              in = fresh_range(kTile, AxisType::Weak);
    map.emplace(r.node(), block * kTile + in);
    outer.push_back(block), inner.push_back(in);
  }
  outer.insert(outer.end(), inner.begin(), inner.end());
  nest.ends[0] = remake_end(nest.ends[0], map, outer);
  nest.order = outer;
  nest.opts += fmt::format("tile {}x{} ", kTile, kTile);
}

}  // namespace whit::codegen
