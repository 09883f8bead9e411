#include "codegen/tile.h"

#include <cstdlib>
#include <iterator>

#include "codegen/vectorize.h"
#include "ir/build.h"

namespace whit::codegen {
namespace {

constexpr int64_t kFar = 8, kLeastSize = 32;  // elements
constexpr size_t kMostNodes = 200;            // of what there is a copy a row of the tile

}  // namespace

void tile_transposed(Nest& nest) {
  const std::vector<const Node*> nodes = toposort(nest.ends);
  if (nest.ends.size() != 1 || nodes.size() > kMostNodes || reads_output(nest)) return;
  std::vector<Affine> loads;
  for (const Node* n : nodes) {
    if (n->op == Op::Reduce || n->op == Op::Stage) return;
    if (n->op == Op::Load && n->src()[0]->n_src == 2) loads.push_back(affine_of(UOp(n->src()[0]->src()[1])));
  }
  const UOp to = nest.ends[0].src(0).src(0);
  const Affine stored = affine_of(to.src(1));
  const int64_t tile = n_bytes(to.dtype()) <= 2 ? 16 : 8;  // elements a side
  const auto is_far = [](const Affine& a, const UOp& r) { return stride_of(a, r).linear && std::abs(stride_of(a, r).value) >= kFar; };
  const auto is_next = [](const Affine& a, const UOp& r) { return stride_of(a, r).linear && stride_of(a, r).value == 1; };
  std::vector<UOp> axes;
  for (const UOp& r : nest.order)
    if (axis_type(r.node()) == AxisType::Weak && range_size(r.node()) >= kLeastSize && r.n_src() == 0) axes.push_back(r);
  for (const UOp& lane : axes)
    for (const UOp& copy : axes) {
      const auto crosses = [&](const Affine& a) { return is_next(a, copy) && is_far(a, lane); };
      if (!is_next(stored, lane) || !is_far(stored, copy) || std::ranges::none_of(loads, crosses) || nest.pick("tile", 2) == 1) continue;
      RangeMap map;
      std::vector<UOp> loops, inner;
      for (const UOp& r : nest.order) {
        loops.push_back(r);
        if (r != lane && r != copy) continue;
        // A last tile that is not whole begins early: what it computes again is the same.
        const int64_t n = range_size(r.node());
        loops.back() = fresh_range((n + tile - 1) / tile, AxisType::Weak);
        inner.push_back(fresh_range(tile, r == lane ? AxisType::Weak : AxisType::Upcast));
        UOp first = loops.back() * tile;
        if (n % tile != 0) first = alu(Op::Min, {first, idx(n - tile)});
        map.emplace(r.node(), first + inner.back());
      }
      loops.insert(loops.end(), inner.begin(), inner.end());
      nest.ends[0] = remake_end(nest.ends[0], map, loops);
      nest.order = loops;
      nest.opts += fmt::format("tile {0}x{0} ", tile);
      return;
    }
}

}  // namespace whit::codegen
