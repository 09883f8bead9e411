// Movement ops of tensors: chains merge, what moves nothing goes.
#include <algorithm>

#include "ir/build.h"
#include "rules/rules.h"

namespace whit {
namespace {

using namespace whit::pat;

Dims dims_of(const Shape& s) { return Dims(s.begin(), s.end()); }
std::span<const int64_t> numbers(const Node* a) { return a->arg.as_ints(); }
const Node* source(const Match& at) { return at.root->src_begin()[0]; }
bool same_shape(const Match& at) { return at.root->shape == source(at)->shape; }

// The numbers of both ops added; those of the inner one by their numbers with the bits of `which`.
Dims joined(const Match& at, size_t which) {
  const auto outer = numbers(at.root), inner = numbers(source(at));
  Dims both(outer.begin(), outer.end());
  for (size_t s = 0; s < both.size(); ++s) both[s] += inner[s & which];
  return both;
}
UOp join_pads(const Match& at, RuleCtx&) { return pad(at[x], joined(at, ~size_t{0})); }
UOp join_shrinks(const Match& at, RuleCtx&) { return shrink(at[x], joined(at, ~size_t{1})); }

UOp join_flips(const Match& at, RuleCtx&) {
  const auto outer = numbers(at.root), inner = numbers(source(at));
  Dims both;
  for (int64_t axis = 0; axis < static_cast<int64_t>(at.root->shape.size()); ++axis) {
    const bool a = std::ranges::find(outer, axis) != outer.end();
    const bool b = std::ranges::find(inner, axis) != inner.end();
    if (a != b) both.push_back(axis);
  }
  return flip(at[x], both);
}

// SHRINK of PAD: what is cut away need not be made.
UOp shrink_of_pad(const Match& at, RuleCtx&) {
  const auto box = numbers(at.root), before_after = numbers(source(at));
  const Shape& in = at.raw(x)->shape;
  Dims cut, padding;
  bool changed = false;
  for (size_t axis = 0; axis < in.size(); ++axis) {
    const int64_t before = before_after[2 * axis], begin = box[2 * axis], end = box[2 * axis + 1];
    // In numbers of the unpadded axis; an empty overlap keeps an empty box.
    int64_t lo = std::clamp<int64_t>(begin - before, 0, in[axis]), hi = std::clamp<int64_t>(end - before, 0, in[axis]);
    if (hi < lo) hi = lo;
    const int64_t new_before = std::clamp<int64_t>(before - begin, 0, end - begin);
    cut.push_back(lo);
    cut.push_back(hi);
    padding.push_back(new_before);
    padding.push_back(end - begin - (hi - lo) - new_before);
    changed |= new_before != before || padding.back() != before_after[2 * axis + 1] || lo != 0 || hi != in[axis];
  }
  return changed ? pad(shrink(at[x], cut), padding) : UOp();
}

// A window whose steps touch without overlap is a RESHAPE.
UOp window_is_reshape(const Match& at, RuleCtx&) {
  const auto w_arg = numbers(at.root);
  const Shape& in = at.raw(x)->shape;
  const size_t axis = static_cast<size_t>(w_arg[0]);
  const int64_t size = w_arg[1], stride = w_arg[2], dilation = w_arg[3], n_in = in[axis];
  if (size == 1 && stride == 1) {
    Dims dims = dims_of(in);
    dims.push_back(1);
    return reshape(at[x], dims);
  }
  if (size != stride || (dilation != 1 && size != 1)) return {};
  Dims split = dims_of(in);
  split[axis] = n_in / size;
  split.insert(split.begin() + axis + 1, size);
  return permute(reshape(cut(at[x], axis, 0, n_in / size * size), split), moved_axis(split.size(), axis + 1, in.size()));
}

// The other way round: each element of the result has exactly one source.
UOp unwindow_is_reshape(const Match& at, RuleCtx&) {
  const auto w_arg = numbers(at.root);
  const Shape& in = at.raw(x)->shape;
  const size_t axis = static_cast<size_t>(w_arg[0]);
  const int64_t n_out = w_arg[1], stride = w_arg[2], dilation = w_arg[3], size = in.back();
  if (size != stride || (dilation != 1 && size != 1) || in[axis] * size != n_out) return {};
  return reshape(permute(at[x], moved_axis(in.size(), in.size() - 1, axis + 1)), at.root->shape);
}

// A value that is the same everywhere stays so under any movement but PAD.
UOp move_constant(const Match& at, RuleCtx&) { return broadcast_scalar(at[d0], at.root->shape); }

// An elementwise op over constants spread over a shape and other sources takes the scalar.
UOp unspread(const Match& at, RuleCtx&) {
  const Node* n = at.root;
  if (n->shape.empty()) return {};
  std::vector<UOp> src;
  bool changed = false, shaped = false;
  for (const Node* s : n->src()) {
    const Node* inner = s;
    while (inner->op == Op::Reshape || inner->op == Op::Expand) inner = inner->src_begin()[0];
    const bool spread = inner != s && inner->op == Op::Const;
    src.emplace_back(spread ? inner : s);
    changed |= spread;
    shaped |= !src.back().shape().empty();
  }
  return changed && shaped ? UOp::make(n->op, n->dtype, src, n->arg) : UOp();
}

constexpr OpSet kSpreadUsers{Op::Add, Op::Mul, Op::Sub,      Op::Fdiv,     Op::Max,   Op::Min,   Op::Cdiv,  Op::Cmod, Op::Pow, Op::And,
                             Op::Or,  Op::Xor, Op::FloorDiv, Op::FloorMod, Op::CmpLt, Op::CmpNe, Op::CmpEq, Op::Shl,  Op::Shr, Op::Where};

constexpr Rule kMovement[] = {
    rule("reshape-same", op(Op::Reshape, x), x, same_shape),
    rule_fn("reshape-reshape", op(Op::Reshape, op(Op::Reshape, x)), [](const Match& at, RuleCtx&) { return reshape(at[x], at.root->shape); }),
    rule("expand-same", op(Op::Expand, x), x, same_shape),
    rule_fn("expand-expand", op(Op::Expand, op(Op::Expand, x)), [](const Match& at, RuleCtx&) { return expand(at[x], at.root->shape); }),
    rule_fn("permute-permute", op(Op::Permute, op(Op::Permute, x)),
            [](const Match& at, RuleCtx&) { return permute(UOp(source(at)), numbers(at.root)); }),
    rule_fn("permute-same", op(Op::Permute, x), [](const Match& at, RuleCtx&) { return permute(at[x], numbers(at.root)); }),
    rule_fn("permute-ones", op(Op::Permute, x),
            [](const Match& at, RuleCtx&) -> UOp {
              // Only axes of size 1 change their place.
              int64_t last = -1;
              for (const int64_t axis : numbers(at.root)) {
                if (at.raw(x)->shape[static_cast<size_t>(axis)] == 1) continue;
                if (axis < last) return {};
                last = axis;
              }
              return reshape(at[x], at.root->shape);
            }),
    rule("pad-nothing", op(Op::Pad, x), x, same_shape),
    rule_fn("pad-pad", op(Op::Pad, op(Op::Pad, x)), join_pads),
    rule("shrink-nothing", op(Op::Shrink, x), x, same_shape),
    rule_fn("shrink-shrink", op(Op::Shrink, op(Op::Shrink, x)), join_shrinks),
    rule_fn("shrink-pad", op(Op::Shrink, op(Op::Pad, x)), shrink_of_pad).grows("less is padded"),
    rule("flip-nothing", op(Op::Flip, x), x,
         [](const Match& at) {
           for (const int64_t axis : numbers(at.root))
             if (at.root->shape[static_cast<size_t>(axis)] != 1) return false;
           return true;
         }),
    rule_fn("flip-flip", op(Op::Flip, op(Op::Flip, x)), join_flips),
    rule_fn("window-touching", op(Op::Window, x), window_is_reshape).grows("a RESHAPE has no index arithmetic of its own"),
    rule_fn("unwindow-touching", op(Op::Unwindow, x), unwindow_is_reshape).grows("as window-touching"),
    rule_fn("move-constant", op({Op::Permute, Op::Shrink, Op::Flip, Op::Window}, op(Op::Expand, op(Op::Reshape, d0))), move_constant)
        .grows("the constant stays at the bottom of the chain"),
    rule_fn("reshape-constant", op(Op::Reshape, op(Op::Expand, op(Op::Reshape, d0))), move_constant),
    rule_fn("unspread", rest(op(kSpreadUsers)), unspread),
};

}  // namespace

WHIT_RULE_SET(rules::movement, "movement", kMovement)

}  // namespace whit
