#include "rules/linear.h"

#include <algorithm>
#include <numeric>

namespace whit {

namespace {

int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t ceil_quotient(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a < 0) == (b < 0)); }

Linear scaled_down(const Linear& l, int64_t d) {
  Linear out;
  for (const auto& t : l.terms) out.terms.push_back({t.node, t.factor / d});
  out.constant = floor_quotient(l.constant, d);
  return out;
}

int64_t gcd_of(const Linear& l, int64_t c) {
  for (const auto& t : l.terms) c = std::gcd(c, t.factor);
  return c;
}

void split_multiples(const Linear& l, int64_t d, Linear* divisible, Linear* rest) {
  for (const auto& t : l.terms) {
    if (t.factor % d == 0) divisible->terms.push_back({t.node, t.factor / d});
    else rest->terms.push_back(t);
  }
  rest->constant = l.constant;
}

int64_t floor_remainder(int64_t a, int64_t b) {
  const int64_t t = a % b;
  return t != 0 && (t < 0) != (b < 0) ? t + b : t;
}

bool is_int_const(const UOp& u) { return u.is_const() && !u.arg().is_invalid(); }
bool is_finite(const UOp& u) { return u.vmin() != INT64_MIN && u.vmax() != INT64_MAX; }

// What depends on outer loops first, so that an inner loop leaves a prefix of the sum alone; then by op, VARIABLEs by
// name, the rest by key.
bool comes_before(const UOp& a, const UOp& b) {
  if (a == b) return false;
  const auto outer = a.ranges(), other = b.ranges();
  for (size_t s = 0; s < outer.size() && s < other.size(); ++s) {
    const int64_t id = range_id(outer[s]), other_id = range_id(other[s]);
    if (id != other_id) return id < other_id;
  }
  if (outer.size() != other.size()) return outer.size() < other.size();
  if (a.op() != b.op()) return a.op() < b.op();
  if (a.op() == Op::Variable && a.arg().at(0).as_str() != b.arg().at(0).as_str()) return a.arg().at(0).as_str() < b.arg().at(0).as_str();
  return a.key() < b.key();
}

// The quotient of all values between the bounds, when it is one.
std::optional<int64_t> one_period(const Linear& l, int64_t c) {
  const auto b = l.bounds();
  if (!b) return {};
  const int64_t q = floor_quotient(b->lo, c);
  if (q != floor_quotient(b->hi, c)) return {};
  return q;
}

// Factors taken modulo c, all to [0, c) or each to the nearest of zero, so that the sum stays within one period. On
// success `rest` is the sum minus c * `moved`, and the returned quotient is that of `rest`.
std::optional<int64_t> congruent(const Linear& l, int64_t c, Linear* rest, Linear* moved) {
  for (int nearest = 0; nearest < 3; ++nearest) {
    Linear r, q;
    r.constant = l.constant;
    for (const auto& t : l.terms) {
      int64_t factor = floor_remainder(t.factor, c);
      if (factor != 0 && (nearest == 1 ? factor > c / 2 : nearest == 2 ? factor >= c - factor : false)) factor -= c;
      if (factor != 0) r.add(t.node, factor);
      if (factor != t.factor) q.add(t.node, (t.factor - factor) / c);
    }
    if (!r.ok || !q.ok) continue;
    if (const auto period = one_period(r, c)) {
      *rest = r;
      *moved = q;
      return period;
    }
  }
  return {};
}

// Divisors of c that l suggests: what all factors and c have in common, then by single factors, greatest first.
SmallVec<int64_t, 8> suggested_divisors(const Linear& l, int64_t c) {
  SmallVec<int64_t, 8> out;
  const int64_t common = gcd_of(l, c);
  if (common > 1) out.push_back(common);
  for (const auto& t : l.terms) {
    const int64_t d = std::gcd(t.factor, c);
    if (d > 1 && d < c && std::ranges::find(out, d) == out.end()) out.push_back(d);
  }
  std::ranges::sort(out, [&](int64_t a, int64_t b) { return b != common && (a == common || a > b); });
  return out;
}

UOp finished(const Linear& l) { return l.ok ? l.to_uop() : UOp(); }

// What is known of a division: x // c is quotient + left // by, and x % c is remainder + times * (left % by).
struct Division {
  Linear quotient{}, remainder{};
  UOp left{};  // null: nothing is left to divide
  int64_t by = 1, times = 1;
};
Division divide(const Linear& l, int64_t c) {
  Division out;
  Linear rest, near, moved;
  split_multiples(l, c, &out.quotient, &rest);
  out.quotient.constant = floor_quotient(rest.constant, c);
  rest.constant = floor_remainder(rest.constant, c);
  const auto in_period = [&](int64_t q, const Linear& sum) {
    out.quotient.add_constant(q);
    out.remainder = sum;
    out.remainder.add_constant(-c * q);
    return out;
  };
  if (const auto q = one_period(rest, c)) return in_period(*q, rest);
  if (const auto q = congruent(rest, c, &near, &moved)) {
    out.quotient.add(moved, 1);
    return in_period(*q, near);
  }
  const auto divided_further = [&](const Linear& left, int64_t d) {
    out.left = left.to_uop();
    out.by = c / d;
    out.times = d;
    return out;
  };
  for (const int64_t d : suggested_divisors(rest, c)) {
    Linear a, b;
    split_multiples(rest, d, &a, &b);
    const auto q = one_period(b, d);
    if (!q) continue;
    a.constant = *q;
    out.remainder = b;
    out.remainder.add_constant(-d * *q);
    return divided_further(a, d);
  }
  return divided_further(rest, 1);
}

UOp negated(const UOp& x) { return finished(negative(linear_of(x))); }

// Does l contain part * factor? The constant of `part` is not asked for.
bool contains(const Linear& l, const Linear& part, int64_t factor) {
  if (!part.ok || part.terms.empty()) return false;
  for (const auto& t : part.terms) {
    int64_t want;
    if (__builtin_mul_overflow(t.factor, factor, &want) || l.factor_of(t.node) != want) return false;
  }
  return true;
}

bool has_const_divisor(const UOp& u, Op op) { return u.op() == op && is_int_const(u.src(1)) && const_int(u.src(1)) > 1; }

// One step of putting quotients and remainders together again. True when l changed.
bool recombine(Linear& l) {
  bool has_mod = false;
  for (const auto& t : l.terms) has_mod |= t.node.op() == Op::FloorMod;
  if (!has_mod || l.terms.size() < 2) return false;
  for (const auto& t : l.terms) {
    const UOp node = t.node;
    const int64_t factor = t.factor;
    const auto has = [&](const UOp& part, int64_t n_parts) { return part && contains(l, linear_of(part), n_parts); };
    // The node and n_parts times a part of the sum are so many times a whole.
    const auto join = [&](const UOp& part, int64_t n_parts, const UOp& whole, int64_t times) {
      l.add(node, -factor);
      l.add(linear_of(part), -n_parts);
      l.add(linear_of(whole), times);
      return true;
    };
    if (has_const_divisor(node, Op::FloorDiv)) {
      // (x // c) * c + x % c is x
      const int64_t c = const_int(node.src(1));
      const UOp x = node.src(0), rem = factor % c == 0 ? linear_mod(x, c) : UOp();
      if (has(rem, factor / c)) return join(rem, factor / c, x, factor / c);
    }
    if (!has_const_divisor(node, Op::FloorMod)) continue;
    const int64_t d = const_int(node.src(1));
    const UOp x = node.src(0);
    // (x // d) * d + x % d is x, when the quotient has become something else (x is y // c, so x // d is y // (c*d))
    int64_t whole;
    if (__builtin_mul_overflow(factor, d, &whole)) continue;
    if (const UOp quotient = linear_div(x, d); has(quotient, whole)) return join(quotient, whole, x, factor);
    // ((y // c) % d) * c + y % c is y % (c*d)
    if (!has_const_divisor(x, Op::FloorDiv)) continue;
    const int64_t c = const_int(x.src(1));
    int64_t both;
    if (factor % c != 0 || __builtin_mul_overflow(c, d, &both)) continue;
    const UOp y = x.src(0), rem = linear_mod(y, c);
    if (!has(rem, factor / c)) continue;
    if (const UOp joined = linear_mod(y, both)) return join(rem, factor / c, joined, factor / c);
  }
  return false;
}

// The comparison of the sum d with 0, with positive terms left and negative ones right.
UOp compare_with_zero(Op op, const Linear& d) {
  Linear left, right;
  for (const auto& t : d.terms) {
    if (t.factor > 0) left.terms.push_back(t);
    else right.terms.push_back({t.node, -t.factor});
  }
  if (right.terms.empty() || !left.terms.empty()) {
    right.constant = -d.constant;
  } else if (op == Op::CmpLt) {
    left.constant = d.constant;
  } else {  // equality: constants right
    left.terms = right.terms;
    right.terms.clear();
    right.constant = d.constant;
  }
  return alu(op, {left.to_uop(), right.to_uop()});
}

}  // namespace

// INT64_MIN counts as too large: it has no negative.
void Linear::add_constant(int64_t value) { ok &= !__builtin_add_overflow(constant, value, &constant) && constant != INT64_MIN; }

void Linear::add(const UOp& node, int64_t factor) {
  if (factor == 0) return;
  ok &= factor != INT64_MIN;
  for (Term& t : terms) {
    if (!(t.node == node)) continue;
    ok &= !__builtin_add_overflow(t.factor, factor, &t.factor) && t.factor != INT64_MIN;
    if (t.factor == 0) terms.erase(&t);
    return;
  }
  if (terms.size() >= kMaxTerms) {
    ok = false;
    return;
  }
  terms.push_back({node, factor});
}

void Linear::add(const Linear& other, int64_t factor) {
  ok &= other.ok;
  for (const Term& t : other.terms) {
    int64_t f;
    if (__builtin_mul_overflow(t.factor, factor, &f)) {
      ok = false;
      return;
    }
    add(t.node, f);
  }
  int64_t c;
  ok &= !__builtin_mul_overflow(other.constant, factor, &c);
  if (ok) add_constant(c);
}

int64_t Linear::factor_of(const UOp& node) const {
  for (const Term& t : terms)
    if (t.node == node) return t.factor;
  return 0;
}

std::optional<Linear::Bounds> Linear::bounds() const {
  __int128 lo = constant, hi = constant;
  for (const Term& t : terms) {
    if (!is_finite(t.node)) return {};
    const __int128 a = static_cast<__int128>(t.node.vmin()) * t.factor, b = static_cast<__int128>(t.node.vmax()) * t.factor;
    lo += std::min(a, b);
    hi += std::max(a, b);
  }
  // Kept away from the ends, which stand for "unbounded".
  if (lo <= INT64_MIN / 2 || hi >= INT64_MAX / 2) return {};
  return Bounds{static_cast<int64_t>(lo), static_cast<int64_t>(hi)};
}

UOp Linear::to_uop() const {
  SmallVec<Term, 8> order(terms);
  std::ranges::sort(order, [](const Term& a, const Term& b) { return comes_before(a.node, b.node); });
  UOp sum;
  for (const Term& t : order) {
    UOp product = t.factor == 1 ? t.node : t.node * t.factor;
    sum = sum ? sum + product : std::move(product);
  }
  if (!sum) return idx(constant);
  return constant == 0 ? sum : sum + constant;
}

Linear linear_of(const UOp& u) {
  constexpr int kMaxSteps = 2000;
  Linear out;
  SmallVec<std::pair<const Node*, int64_t>, 16> work{{u.node(), 1}};
  const auto is_number = [](const Node* n) { return n->op == Op::Const && !n->arg.is_invalid(); };
  for (int steps = 0; !work.empty() && out.ok; ++steps) {
    const auto [n, factor] = work.back();
    work.pop_back();
    const Node* const* s = n->src().data();
    int64_t f;
    if (is_number(n)) {
      out.ok = !__builtin_mul_overflow(factor, n->arg.to_int(), &f);
      if (out.ok) out.add_constant(f);
    } else if (steps < kMaxSteps && (n->op == Op::Add || n->op == Op::Sub)) {
      work.push_back({s[1], n->op == Op::Sub ? -factor : factor});
      work.push_back({s[0], factor});
    } else if (steps < kMaxSteps && n->op == Op::Neg) {
      work.push_back({s[0], -factor});
    } else if (steps < kMaxSteps && n->op == Op::Mul && (is_number(s[0]) || is_number(s[1]))) {
      const size_t c = is_number(s[1]) ? 1 : 0;
      out.ok = !__builtin_mul_overflow(factor, s[c]->arg.to_int(), &f) && f != INT64_MIN;
      work.push_back({s[1 - c], f});
    } else {
      out.add(UOp(n), factor);
    }
  }
  return out;
}

UOp linear_sum(Linear l) {
  while (l.ok && recombine(l)) {
  }
  return finished(l);
}

UOp linear_div(const UOp& x, int64_t c) {
  if (c == 0) return idx(0);
  if (c == 1) return x;
  if (c < 0) {
    const UOp minus = c == INT64_MIN ? UOp() : negated(x);
    return minus ? linear_div(minus, -c) : UOp();
  }
  if (is_finite(x) && floor_quotient(x.vmin(), c) == floor_quotient(x.vmax(), c)) return idx(floor_quotient(x.vmin(), c));
  if (x.op() == Op::FloorDiv && is_int_const(x.src(1)) && const_int(x.src(1)) > 0) {
    int64_t both;
    if (__builtin_mul_overflow(const_int(x.src(1)), c, &both)) return {};
    return linear_div(x.src(0), both);
  }
  if (x.op() == Op::FloorMod && is_int_const(x.src(1)) && const_int(x.src(1)) > 0 && const_int(x.src(1)) % c == 0) {
    const UOp quotient = linear_div(x.src(0), c);
    return quotient ? linear_mod(quotient, const_int(x.src(1)) / c) : UOp();
  }
  const Linear l = linear_of(x);
  if (!l.ok) return {};
  Division d = divide(l, c);
  if (d.left) {
    const UOp more = d.by == c ? alu(Op::FloorDiv, {d.left, idx(c)}) : linear_div(d.left, d.by);
    if (!more) return {};
    d.quotient.add(linear_of(more), 1);
  }
  return finished(d.quotient);
}

UOp linear_mod(const UOp& x, int64_t c) {
  if (c == 0) return x;
  if (c == 1) return idx(0);
  if (c < 0) {
    const UOp minus = c == INT64_MIN ? UOp() : negated(x), rest = minus ? linear_mod(minus, -c) : UOp();
    return rest ? negated(rest) : UOp();
  }
  Linear l = linear_of(x);
  if (!l.ok) return {};
  // Inner remainders whose multiples c divides say nothing that the outer one does not.
  for (bool again = true; again;) {
    again = false;
    for (const auto& t : l.terms) {
      if (!has_const_divisor(t.node, Op::FloorMod)) continue;
      int64_t period;
      if (__builtin_mul_overflow(t.factor, const_int(t.node.src(1)), &period) || period % c != 0) continue;
      const Linear inner = linear_of(t.node.src(0));
      const UOp node = t.node;
      const int64_t factor = t.factor;
      l.add(node, -factor);
      l.add(inner, factor);
      if (!l.ok) return {};
      again = true;
      break;
    }
  }
  if (const auto q = one_period(l, c)) {
    l.add_constant(-c * *q);
    return finished(l);
  }
  Division d = divide(l, c);
  if (d.left) {
    const UOp more = d.by == c ? alu(Op::FloorMod, {d.left, idx(c)}) : linear_mod(d.left, d.by);
    if (!more) return {};
    d.remainder.add(linear_of(more), d.times);
  }
  return finished(d.remainder);
}

UOp linear_compare(Op op, const UOp& a, const UOp& b) {
  Linear d = linear_of(a);
  d.add(linear_of(b), -1);
  if (!d.ok) return {};
  if (const auto r = d.bounds()) {
    if (op == Op::CmpLt && r->hi < 0) return const_bool(true);
    if (op == Op::CmpLt && r->lo >= 0) return const_bool(false);
    if (op != Op::CmpLt && (r->hi < 0 || r->lo > 0)) return const_bool(op == Op::CmpNe);
  }
  if (d.terms.empty()) {
    const bool less = d.constant < 0, equal = d.constant == 0;
    return const_bool(op == Op::CmpLt ? less : op == Op::CmpEq ? equal : !equal);
  }
  const int64_t g = gcd_of(d, 0);
  if (op != Op::CmpLt) {
    if (d.constant % g != 0) return const_bool(op == Op::CmpNe);
    d = scaled_down(d, g);
    // The first term is positive.
    SmallVec<Linear::Term, 8> order(d.terms);
    const auto first = std::ranges::min_element(order, [](const auto& s, const auto& t) { return comes_before(s.node, t.node); });
    if (first->factor < 0) d = negative(d);
    return d.ok ? compare_with_zero(op, d) : UOp();
  }
  // d < 0 with factors over g: the terms are below a limit.
  int64_t limit = ceil_quotient(-d.constant, g);
  d = scaled_down(d, g);
  d.constant = 0;
  for (bool again = true; again;) {
    again = false;
    // x // c < limit is x < limit * c; -(x // c) < limit is -x < (limit - 1) * c + 1
    if (d.terms.size() == 1 && has_const_divisor(d.terms[0].node, Op::FloorDiv) && (d.terms[0].factor == 1 || d.terms[0].factor == -1)) {
      const bool minus = d.terms[0].factor == -1;
      const int64_t c = const_int(d.terms[0].node.src(1));
      int64_t scaled;
      if (__builtin_mul_overflow(minus ? limit - 1 : limit, c, &scaled) || scaled == INT64_MAX) break;
      Linear next = linear_of(d.terms[0].node.src(0));
      if (minus) next = negative(next);
      int64_t next_limit = scaled + (minus ? 1 : 0);
      if (!next.ok || __builtin_sub_overflow(next_limit, next.constant, &next_limit) || next.terms.empty()) break;
      next.constant = 0;
      d = next;
      limit = next_limit;
      const int64_t h = gcd_of(d, 0);
      limit = ceil_quotient(limit, h);
      d = scaled_down(d, h);
      again = true;
      continue;
    }
    // A part that is too small to matter: e*A + B < limit where the limit for A is the same for every value of B.
    SmallVec<int64_t, 8> steps;
    for (const auto& t : d.terms) steps.push_back(t.factor < 0 ? -t.factor : t.factor);
    for (const int64_t e : steps) {
      if (e <= 1) continue;
      Linear big, small;
      split_multiples(d, e, &big, &small);
      small.constant = 0;
      const auto r = small.bounds();
      int64_t from_lo, from_hi;
      if (!r || small.terms.empty() || __builtin_sub_overflow(limit, r->lo, &from_lo) || __builtin_sub_overflow(limit, r->hi, &from_hi) ||
          ceil_quotient(from_lo, e) != ceil_quotient(from_hi, e))
        continue;
      limit = ceil_quotient(from_lo, e);
      d = big;
      d.constant = 0;
      again = true;
      break;
    }
  }
  if (limit == INT64_MIN) return {};
  d.constant = -limit;
  if (const auto r = d.bounds()) {
    if (r->hi < 0) return const_bool(true);
    if (r->lo >= 0) return const_bool(false);
  }
  return compare_with_zero(op, d);
}

}  // namespace whit
