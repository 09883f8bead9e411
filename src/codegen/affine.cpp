#include "codegen/affine.h"

#include <algorithm>

#include "ir/eval.h"

namespace whit::codegen {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

bool is_number(const UOp& u) { return u.is_const() && !u.arg().is_invalid() && !is_float(u.dtype()); }

// The depth of a term: the id of its innermost loop; lanes vary fastest of all.
int64_t depth(const UOp& u) {
  if (!u.shape().empty()) return kMax;
  const auto r = u.ranges();
  return r.empty() ? kMin : range_id(r.back());
}

// Sized integers wrap: they are a sum only as far as the sum cannot overflow.
bool is_exact(const Affine& a, DType dtype) { return a.ok && (dtype == DType::WeakInt || a.bounds()); }

UOp fold_compare(Op op, const UOp& a, const UOp& b) {
  Affine diff = affine_of(a);
  diff.add(affine_of(b), -1);
  if (!is_exact(diff, a.dtype())) return UOp::make(op, DType::Bool, {a, b});
  if (const auto d = diff.bounds()) {
    if (d->hi < 0) return const_bool(op != Op::CmpEq);
    if (op == Op::CmpLt && d->lo >= 0) return const_bool(false);
    if (op != Op::CmpLt && d->lo > 0) return const_bool(op == Op::CmpNe);
    if (op != Op::CmpLt && d->lo == 0 && d->hi == 0) return const_bool(op == Op::CmpEq);
  }
  // Lanes stay alone on their side, so that the other side is a scalar.
  Affine left, right;
  const auto has_shape = [](const Affine::Term& t) { return !t.node.shape().empty(); };
  const bool has_lanes = std::ranges::any_of(diff.terms, has_shape);
  for (const Affine::Term& t : diff.terms) {
    if (!has_lanes || has_shape(t)) left.add(t.node, t.factor);
    else right.add(t.node, -t.factor);
  }
  right.constant = -diff.constant;
  const UOp src[] = {build_affine(left, a.dtype()), build_affine(right, a.dtype())};
  return UOp::make(op, DType::Bool, src);
}

UOp fold_bool(Op op, std::span<const UOp> src) {
  if (op == Op::And || op == Op::Mul || op == Op::Min) {
    if (is_const_int(src[0], 1) || src[0] == src[1]) return src[1];
    if (is_const_int(src[1], 1)) return src[0];
  } else if (op == Op::Or || op == Op::Add || op == Op::Max) {
    if (is_const_int(src[0], 0) || src[0] == src[1]) return src[1];
    if (is_const_int(src[1], 0)) return src[0];
  }
  return {};
}

}  // namespace

Affine affine_of(const UOp& u) {
  Affine a = linear_of(u);
  if (!a.ok) {
    a = Affine();
    a.add(u, 1);
  }
  return a;
}

UOp build_affine(const Affine& a, DType dtype) {
  auto terms = a.terms;
  std::stable_sort(terms.begin(), terms.end(), [](const auto& x, const auto& y) { return depth(x.node) < depth(y.node); });
  UOp sum;
  for (const Affine::Term& t : terms) {
    const UOp part = t.factor == 1 ? t.node : UOp::make(Op::Mul, dtype, {t.node, constant(dtype, t.factor)});
    sum = sum ? UOp::make(Op::Add, dtype, {sum, part}) : part;
  }
  if (!sum) return constant(dtype, a.constant);
  return a.constant == 0 ? sum : UOp::make(Op::Add, dtype, {sum, constant(dtype, a.constant)});
}

UOp make_folded(Op op, DType dtype, std::span<const UOp> src, const Arg& arg) {
  if (is_elementwise(op) && op != Op::Bitcast) {
    if (op == Op::Where && src[0].is_const()) return const_int(src[0]) ? src[1] : src[2];
    if (op == Op::Where && src[1] == src[2] && src[0].shape().empty()) return src[1];
    if (is_int(dtype) || dtype == DType::Bool) {
      if (!src.empty() && std::ranges::all_of(src, is_number)) return fold_constants(op, dtype, src);
      if (dtype == DType::Bool && src.size() == 2) {
        if (const UOp u = fold_bool(op, src)) return u;
        if (is_comparison(op) && is_index_type(src[0].dtype())) return fold_compare(op, src[0], src[1]);
      }
      if (is_index_type(dtype)) {
        if ((op == Op::Add || op == Op::Sub) && is_const_int(src[1], 0)) return src[0];
        if (op == Op::Add && is_const_int(src[0], 0)) return src[1];
        if (op == Op::Mul && (is_const_int(src[1], 1) || is_const_int(src[0], 0))) return src[0];
        if (op == Op::Mul && (is_const_int(src[0], 1) || is_const_int(src[1], 0))) return src[1];
        const bool div = op == Op::FloorDiv || (op == Op::Cdiv && src[0].vmin() >= 0);
        const bool mod = op == Op::FloorMod || (op == Op::Cmod && src[0].vmin() >= 0);
        if ((div || mod) && dtype == DType::WeakInt && is_number(src[1]) && const_int(src[1]) > 0)
          if (const UOp u = mod ? linear_mod(src[0], const_int(src[1])) : linear_div(src[0], const_int(src[1]))) return u;
      }
    }
  }
  UOp u = UOp::make(op, dtype, src, arg);
  // The bounds of an integer or bool that can only be one number are that number.
  if ((is_index_type(dtype) || dtype == DType::Bool) && u.vmin() == u.vmax() && is_elementwise(op) && u.vmin() != kMin && u.vmin() != kMax)
    return constant(dtype, u.vmin());
  return u;
}

}  // namespace whit::codegen
