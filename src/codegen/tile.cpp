#include "codegen/tile.h"

#include <cstdlib>
#include <iterator>

#include "codegen/vectorize.h"
#include "ir/build.h"

namespace whit::codegen {
namespace {

// Elements a side; 1 is none. Rows a power of two apart share a set of the first cache, which holds 8 lines at least.
constexpr int64_t kTiles[] = {8, 16, 32, 1};
constexpr int64_t kLeastSize = 256;  // below, everything is in the cache anyway

bool steps_by_one(const std::vector<UOp>& flats, const UOp& along, const UOp& across) {
  for (const UOp& flat : flats) {
    const Affine a = affine_of(flat);
    const Stride one = stride_of(a, along), far = stride_of(a, across);
    if (one.linear && far.linear && std::abs(one.value) == 1 && std::abs(far.value) >= kTiles[0]) return true;
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
    if (axis_type(r.node()) != AxisType::Weak || range_size(r.node()) < kLeastSize || range_size(r.node()) % kTiles[0]) continue;
    for (const UOp& s : nest.order)
      if (s != r && !i && axis_type(s.node()) == AxisType::Weak && range_size(s.node()) >= kLeastSize && range_size(s.node()) % kTiles[0] == 0 &&
          steps_by_one(flats, r, s) && steps_by_one(flats, s, r))
        i = r, j = s;
  }
  if (!i) return;
  const int64_t tile = kTiles[nest.pick("tile", std::size(kTiles))];
  if (tile == 1 || range_size(i.node()) % tile || range_size(j.node()) % tile) return;
  RangeMap map;
  std::vector<UOp> outer, inner;
  for (const UOp& r : nest.order) {
    if (r != i && r != j) {
      outer.push_back(r);
      continue;
    }
    const UOp block = fresh_range(range_size(r.node()) / tile, AxisType::Weak), in = fresh_range(tile, AxisType::Weak);
    map.emplace(r.node(), block * tile + in);
    outer.push_back(block), inner.push_back(in);
  }
  outer.insert(outer.end(), inner.begin(), inner.end());
  nest.ends[0] = remake_end(nest.ends[0], map, outer);
  nest.order = outer;
  nest.opts += fmt::format("tile {}x{} ", tile, tile);
}

}  // namespace whit::codegen
