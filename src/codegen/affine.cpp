#include "codegen/affine.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ir/eval.h"

namespace whit::codegen {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
// An expression with heavy sharing could have exponentially many paths; past this many steps what is left is a factor.
constexpr int kMaxSteps = 2000;

bool is_index_type(DType dt) { return dt == DType::WeakInt || dt == DType::Int64; }
bool is_number(const UOp& u) { return u.is_const() && !u.arg().is_invalid() && !is_float(u.dtype()); }

int64_t floor_div_int(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// The depth of a factor: the id of its innermost loop; lanes vary fastest of all.
int64_t depth(const UOp& u) {
  if (!u.shape().empty()) return kMax;
  const auto r = u.ranges();
  return r.empty() ? kMin : range_id(r.back());
}

// Parts of x that are multiples of d, and the rest.
void split_multiples(const Affine& x, int64_t d, Affine& multiples, Affine& rest) {
  for (const Term& t : x.terms) {
    if (t.coef % d == 0)
      multiples.add(t.factor, t.coef / d);
    else
      rest.add(t.factor, t.coef);
  }
  multiples.constant = floor_div_int(x.constant, d);
  rest.constant = x.constant - multiples.constant * d;
}

// x // d and x % d for a constant d > 0; null when there is nothing to gain.
UOp fold_div(const Affine& x, int64_t d, DType dtype, bool want_mod) {
  Affine quotient, rest;
  split_multiples(x, d, quotient, rest);
  const auto [lo, hi] = rest.bounds();
  if (lo != kMin && hi != kMax && floor_div_int(lo, d) == floor_div_int(hi, d)) {
    const int64_t q = floor_div_int(lo, d);
    if (want_mod) {
      rest.constant -= q * d;
      return build_affine(rest, dtype);
    }
    quotient.constant += q;
    return build_affine(quotient, dtype);
  }
  if (want_mod) {
    if (quotient.terms.empty() && quotient.constant == 0) return {};
    return UOp::make(Op::FloorMod, dtype, {build_affine(rest, dtype), constant(dtype, d)});
  }
  int64_t g = d;
  for (const Term& t : rest.terms) g = std::gcd(g, t.coef);
  if (g == 1 && quotient.terms.empty() && quotient.constant == 0) return {};
  Affine reduced;
  for (const Term& t : rest.terms) reduced.add(t.factor, t.coef / g);
  reduced.constant = floor_div_int(rest.constant, g);
  UOp q = d == g ? build_affine(reduced, dtype)
                 : UOp::make(Op::FloorDiv, dtype, {build_affine(reduced, dtype), constant(dtype, d / g)});
  quotient.add(affine_of(q), 1);
  return build_affine(quotient, dtype);
}

// Sized integers wrap: they are a sum only as far as the sum cannot overflow.
bool is_exact(const Affine& a, DType dtype) { return dtype == DType::WeakInt || a.bounds().first > kMin / 2; }

UOp fold_compare(Op op, const UOp& a, const UOp& b) {
  Affine diff = affine_of(a);
  diff.add(affine_of(b), -1);
  const auto [lo, hi] = diff.bounds();
  if (!is_exact(diff, a.dtype())) return UOp::make(op, DType::Bool, {a, b});
  if (op == Op::CmpLt) {
    if (hi < 0 && lo != kMin) return const_bool(true);
    if (lo >= 0 && hi != kMax) return const_bool(false);
  } else if (lo > 0 || hi < 0) {
    return const_bool(op == Op::CmpNe);
  } else if (lo == 0 && hi == 0) {
    return const_bool(op == Op::CmpEq);
  }
  // Lanes stay alone on their side, so that the other side is a scalar.
  Affine left, right;
  bool has_lanes = false;
  for (const Term& t : diff.terms) has_lanes |= !t.factor.shape().empty();
  for (const Term& t : diff.terms) {
    if (!has_lanes || !t.factor.shape().empty())
      left.add(t.factor, t.coef);
    else
      right.add(t.factor, -t.coef);
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

void Affine::add(const UOp& factor, int64_t c) {
  if (c == 0) return;
  for (size_t i = 0; i < terms.size(); ++i)
    if (terms[i].factor == factor) {
      terms[i].coef += c;
      if (terms[i].coef == 0) terms.erase(terms.begin() + i);
      return;
    }
  terms.push_back({factor, c});
}

void Affine::add(const Affine& other, int64_t scale) {
  for (const Term& t : other.terms) add(t.factor, t.coef * scale);
  constant += other.constant * scale;
}

int64_t Affine::coef(const Node* factor) const {
  for (const Term& t : terms)
    if (t.factor.node() == factor) return t.coef;
  return 0;
}

std::pair<int64_t, int64_t> Affine::bounds() const {
  __int128 lo = constant, hi = constant;
  for (const Term& t : terms) {
    const int64_t a = t.factor.vmin(), b = t.factor.vmax();
    if (a == kMin || b == kMax) return {kMin, kMax};
    lo += static_cast<__int128>(t.coef) * (t.coef > 0 ? a : b);
    hi += static_cast<__int128>(t.coef) * (t.coef > 0 ? b : a);
  }
  auto saturate = [](__int128 v) { return v < kMin ? kMin : v > kMax ? kMax : static_cast<int64_t>(v); };
  return {saturate(lo), saturate(hi)};
}

Affine affine_of(const UOp& u) {
  Affine a;
  SmallVec<std::pair<const Node*, int64_t>, 16> work{{u.node(), 1}};
  for (int steps = 0; !work.empty(); ++steps) {
    const auto [n, c] = work.back();
    work.pop_back();
    const Node* const* s = n->src().data();
    auto number = [](const Node* m) { return m->op == Op::Const && !m->arg.is_invalid(); };
    if (number(n)) {
      a.constant += c * n->arg.to_int();
    } else if (steps > kMaxSteps) {
      a.add(UOp(n), c);
    } else if (n->op == Op::Add || n->op == Op::Sub) {
      work.push_back({s[1], n->op == Op::Sub ? -c : c});
      work.push_back({s[0], c});
    } else if (n->op == Op::Neg) {
      work.push_back({s[0], -c});
    } else if (n->op == Op::Mul && number(s[1])) {
      work.push_back({s[0], c * s[1]->arg.to_int()});
    } else if (n->op == Op::Mul && number(s[0])) {
      work.push_back({s[1], c * s[0]->arg.to_int()});
    } else {
      a.add(UOp(n), c);
    }
  }
  return a;
}

UOp build_affine(const Affine& a, DType dtype) {
  SmallVec<Term, 6> terms(a.terms);
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& x, const Term& y) { return depth(x.factor) < depth(y.factor); });
  UOp sum;
  for (const Term& t : terms) {
    const UOp part = t.coef == 1 ? t.factor : UOp::make(Op::Mul, dtype, {t.factor, constant(dtype, t.coef)});
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
      bool numbers = true;
      for (const UOp& s : src) numbers &= is_number(s);
      if (numbers && !src.empty()) return fold_constants(op, dtype, src);
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
        if ((div || mod) && is_number(src[1]) && const_int(src[1]) > 0) {
          const Affine x = affine_of(src[0]);
          if (is_exact(x, dtype))
            if (const UOp u = fold_div(x, const_int(src[1]), dtype, mod)) return u;
        }
      }
    }
  }
  UOp u = UOp::make(op, dtype, src, arg);
  // The bounds of an integer or bool that can only be one number are that number.
  if ((is_index_type(dtype) || dtype == DType::Bool) && u.vmin() == u.vmax() && is_elementwise(op) &&
      u.vmin() != kMin && u.vmin() != kMax)
    return constant(dtype, u.vmin());
  return u;
}

}  // namespace whit::codegen
