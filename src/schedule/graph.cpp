#include "schedule/graph.h"

#include <algorithm>
#include <bit>

#include "base/flags.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "ir/remake.h"
#include "rules/gradient.h"

namespace whit::sched {

NodeIndex::NodeIndex(const NodeList& nodes) : numbers_(std::bit_ceil(2 * nodes.size() + 2)) {
  for (size_t i = 0; i < nodes.size(); ++i) numbers_[nodes[i]] = static_cast<int32_t>(i);
}

NodeList collect(std::span<const UOp> roots, NodeIndex& index, bool (*stop)(const Node*)) {
  NodeList order = post_order(roots, [&](const Node* n) { return std::pair(0u, stop && stop(n) ? 0u : n->n_src); });
  index = NodeIndex(order);
  return order;
}

Graph::Graph(std::vector<UOp> r, std::span<const UOp> to_recompute) : roots(std::move(r)) {
  nodes = collect(roots, index);
  hinted.assign(nodes.size(), 0);
  for (const UOp& u : to_recompute)
    if (const int32_t i = index.find(u.node()); i >= 0) hinted[static_cast<size_t>(i)] = 1;
  first_src.reserve(nodes.size() + 1);
  for (const Node* n : nodes) {
    first_src.push_back(static_cast<uint32_t>(src.size()));
    for (const Node* s : n->src()) src.push_back(index.find(s));
  }
  first_src.push_back(static_cast<uint32_t>(src.size()));
}

namespace {

// A CALL's result: its body with PARAMs replaced by the arguments. Arguments are already prepared.
UOp inline_call(const UOp& body, std::span<const UOp> args) {
  std::unordered_map<const Node*, UOp> map;
  for (const Node* n : toposort(body)) {
    if (n->op != Op::Param) continue;
    const auto slot = static_cast<size_t>(n->arg.int_at(0));
    WHIT_CHECK(slot < args.size(), "CALL with {} arguments has PARAM {}", args.size(), slot);
    WHIT_USER(n->shape == args[slot].shape() && n->dtype == args[slot].dtype(), Type,
              "[call] argument {} has shape {} and dtype {}, expected {} and {}", slot, args[slot].shape(), args[slot].dtype(), n->shape, n->dtype);
    map.emplace(n, args[slot]);
  }
  return substitute(body, map);
}

// What a checkpointed CALL computes between its arguments and its results.
void hint_values(const UOp& results, std::span<const UOp> args, std::vector<UOp>& out) {
  const auto is_end = [&](const Node* n) { return std::ranges::find(args, UOp(n)) != args.end(); };
  const auto is_result = [&](const Node* n) { return std::ranges::find(results->src(), n) != results->src().end(); };
  const UOp roots[] = {results};
  for (const Node* n : post_order(roots, [&](const Node* x) { return std::pair(0u, is_end(x) ? 0u : x->n_src); }))
    if (!is_end(n) && !is_result(n)) out.emplace_back(n);
}

UOp zeros(DType dtype, const Shape& shape, const Scalar& v) {
  const UOp c = constant_of(v);
  return broadcast_scalar(c.dtype() == dtype ? c : constant(dtype, 0), shape);
}

// The reduce of `x` over an axis and others, in parts of that axis: all but `parts` are reduced, then `parts`.
UOp reduce_in_parts(const UOp& x, const UOp& r, int64_t axis, int64_t parts) {
  const std::string_view monoid = r.arg().at(0).as_str();
  Dims dims, axes = axes_of(r);
  for (size_t i = 0; i < x.shape().size(); ++i) {
    const int64_t size = x.shape()[i];
    if (static_cast<int64_t>(i) == axis) dims.push_back(parts);
    dims.push_back(static_cast<int64_t>(i) == axis ? size / parts : size);
  }
  for (int64_t& a : axes) a += a >= axis;
  UOp first = reduce_axes(reshape(x, dims), monoid, axes);
  first = UOp::make(Op::Contiguous, first.dtype(), {first});
  const int64_t last[] = {axis};
  return reshape(reduce_axes(first, monoid, last), r.shape());
}

// Splits a reduce of many elements to few into two, over parts of one axis. A rule on shape, dtype and monoid alone.
UOp split_reduce(const UOp& r) {
  const UOp x = r.src(0);
  const int64_t n_in = x.shape().numel(), n_out = r.shape().numel();
  if (n_out == 0 || n_in / n_out < flag::REDUCEOP_SPLIT_THRESHOLD()) return r;
  // With this many outputs the loops over them keep all cores and lanes busy; parts would only cost memory traffic.
  constexpr int64_t kManyOutputs = 512;
  if (n_out >= kManyOutputs) return r;
  const int64_t max_parts = std::min<int64_t>(256, (int64_t{1} << flag::REDUCEOP_SPLIT_SIZE()) / n_out);
  const Dims axes = axes_of(r);
  // The outermost reduced axis that has a divisor in reach: parts are as contiguous as can be.
  int64_t longest = axes[0];
  for (const int64_t axis : axes) {
    const int64_t size = x.shape()[static_cast<size_t>(axis)];
    if (size > x.shape()[static_cast<size_t>(longest)]) longest = axis;
    for (int64_t parts = max_parts; parts >= 8; --parts)
      if (size % parts == 0) return reduce_in_parts(x, r, axis, parts);
  }
  // None has one: what is left of the longest is reduced beside the parts.
  const auto at = static_cast<size_t>(longest);
  const int64_t size = x.shape()[at], parts = std::min<int64_t>(max_parts, 64);
  if (parts < 8 || size < 16 * parts) return r;
  Dims head, tail;
  for (const int64_t n : x.shape())
    for (Dims* d : {&head, &tail}) d->push_back(0), d->push_back(n);
  head[2 * at + 1] = tail[2 * at] = size / parts * parts;
  const std::string_view monoid = r.arg().at(0).as_str();
  return UOp::make(monoid_op(monoid), r.dtype(), {reduce_in_parts(shrink(x, head), r, longest, parts), reduce_axes(shrink(x, tail), monoid, axes)});
}

bool is_empty_value(const Node* n) {
  if (n->dtype == DType::Void || n->op == Op::Buffer || n->op == Op::After || n->op == Op::Store) return false;
  return n->shape.numel() == 0;
}

}  // namespace

std::vector<UOp> prepare(std::span<const UOp> roots, bool split_reduces, std::vector<UOp>* to_recompute) {
  const bool split = split_reduces && flag::SPLIT_REDUCEOP() != 0;
  std::vector<UOp> done_roots(roots.begin(), roots.end());
  Remade made;
  // The body of a CALL is met before it, so CALLs inside are inlined already, and what only it reaches is not used.
  for (const Node* n : toposort(done_roots, [](const Node* k) { return !is_realized(k); })) {
    if (n->extra.load(std::memory_order_acquire) && n->op != Op::Buffer) {
      if (UOp where = realized(UOp(n))) {
        made.set(n, std::move(where));
        continue;
      }
    }
    if (n->op == Op::Detach || n->op == Op::ContiguousBackward) {
      made.set(n, made.of(n->src_begin()[0]));
      continue;
    }
    const std::vector<UOp>& src = made.src(n);
    UOp u;
    if (n->op == Op::Call) {
      u = inline_call(src[0], std::span(src).subspan(1));
      if (to_recompute && n->arg == Arg("checkpoint")) hint_values(u, std::span(src).subspan(1), *to_recompute);
    } else if (n->op == Op::GetTuple && src[0].op() == Op::Tuple) {
      u = src[0].src(static_cast<size_t>(n->arg.as_int()));
    } else if (is_empty_value(n) && !n->src().empty()) {
      u = zeros(n->dtype, n->shape, Scalar::of(n->dtype, int64_t{0}));
    } else if (n->op == Op::Reduce && src[0].shape().numel() == 0) {
      u = zeros(n->dtype, n->shape, monoid_identity(n->arg.at(0).as_str(), n->dtype));
    } else if (n->op == Op::Contiguous && src[0].op() == Op::Contiguous) {
      u = src[0];
    } else if (n->op == Op::Reshape && src[0].node() != n->src()[0]) {
      u = reshape(src[0], n->shape);
    } else {
      u = UOp(n).with_src(src);
      if (split && n->op == Op::Reduce) u = split_reduce(u);
    }
    made.set(n, std::move(u));
  }
  for (UOp& r : done_roots) r = made.of(r.node());
  return done_roots;
}

}  // namespace whit::sched
