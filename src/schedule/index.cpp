#include "schedule/index.h"

#include <algorithm>
#include <numeric>

#include "ir/build.h"

namespace whit::sched {
namespace {

// A total order of terms that is the same in every process: outer ranges first, ties by structural key.
bool term_less(const UOp& a, const UOp& b) {
  if (a == b) return false;
  const auto ra = a.ranges(), rb = b.ranges();
  for (size_t i = 0; i < ra.size() && i < rb.size(); ++i) {
    const int64_t ia = range_id(ra[i]), ib = range_id(rb[i]);
    if (ia != ib) return ia < ib;
  }
  if (ra.size() != rb.size()) return ra.size() < rb.size();
  if (a.op() != b.op()) return a.op() < b.op();
  return a.key() < b.key();
}

}  // namespace

void Linear::add(const UOp& root, int64_t root_factor) {
  SmallVec<std::pair<UOp, int64_t>, 8> work{{root, root_factor}};
  while (!work.empty()) {
    const auto [u, f] = work.back();
    work.pop_back();
    if (f == 0) continue;
    if (u.is_const()) {
      constant += const_int(u) * f;
      continue;
    }
    if (u.op() == Op::Add) {
      work.push_back({u.src(1), f});
      work.push_back({u.src(0), f});
      continue;
    }
    if (u.op() == Op::Sub) {
      work.push_back({u.src(1), -f});
      work.push_back({u.src(0), f});
      continue;
    }
    if (u.op() == Op::Neg) {
      work.push_back({u.src(0), -f});
      continue;
    }
    if (u.op() == Op::Mul && u.src(1).is_const()) {
      work.push_back({u.src(0), f * const_int(u.src(1))});
      continue;
    }
    bool found = false;
    for (auto& t : terms)
      if (t.first == u) {
        t.second += f;
        found = true;
        break;
      }
    if (!found) terms.push_back({u, f});
  }
  // (x % c) * f + (x // c) * c * f is x * f.
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto [m, f] = terms[i];
    if (m.op() != Op::FloorMod || !m.src(1).is_const()) continue;
    const int64_t c = const_int(m.src(1));
    for (size_t j = 0; j < terms.size(); ++j) {
      const auto [d, g] = terms[j];
      if (d.op() != Op::FloorDiv || d.src(0) != m.src(0) || d.src(1) != m.src(1) || g != f * c) continue;
      const UOp x = m.src(0);
      terms.erase(terms.begin() + std::max(i, j));
      terms.erase(terms.begin() + std::min(i, j));
      add(x, f);
      return;
    }
  }
}

UOp Linear::to_uop() const {
  SmallVec<std::pair<UOp, int64_t>, 8> sorted;
  for (const auto& t : terms)
    if (t.second != 0) sorted.push_back(t);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return term_less(a.first, b.first); });
  UOp sum;
  for (const auto& [t, f] : sorted) {
    const UOp term = t * f;
    sum = sum ? UOp::make(Op::Add, DType::WeakInt, {sum, term}) : term;
  }
  return sum ? sum + constant : idx(constant);
}

UOp add_index(const UOp& a, const UOp& b) {
  Linear l;
  l.add(a, 1);
  l.add(b, 1);
  return l.to_uop();
}
UOp add_index(const UOp& a, int64_t c) {
  if (c == 0) return a;
  Linear l;
  l.add(a, 1);
  l.constant += c;
  return l.to_uop();
}
UOp mul_index(const UOp& a, int64_t c) {
  if (c == 1) return a;
  Linear l;
  l.add(a, c);
  return l.to_uop();
}
UOp sub_index(int64_t c, const UOp& a) {
  Linear l;
  l.add(a, -1);
  l.constant += c;
  return l.to_uop();
}

namespace {

int64_t floor_div_int(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// (x // a) // b is x // (a*b).
UOp divide(const UOp& x, int64_t c) {
  if (x.op() == Op::FloorDiv && x.src(1).is_const() && const_int(x.src(1)) > 0)
    return floor_div(x.src(0), const_int(x.src(1)) * c);
  return floor_div(x, c);
}
// (x % (a*b)) % b is x % b.
UOp remain(const UOp& x, int64_t c) {
  if (x.op() == Op::FloorMod && x.src(1).is_const() && const_int(x.src(1)) % c == 0) return floor_mod(x.src(0), c);
  return floor_mod(x, c);
}

}  // namespace

void div_mod_index(const UOp& e, int64_t c, UOp& quotient, UOp& remainder) {
  if (c == 1) {
    quotient = e;
    remainder = idx(0);
    return;
  }
  if (e.vmin() >= 0 && e.vmax() < c) {
    quotient = idx(0);
    remainder = e;
    return;
  }
  Linear l;
  l.add(e, 1);
  // Multiples of c leave; what remains is a sum of smaller parts.
  Linear whole, part;
  int64_t common = c;
  for (const auto& [t, f] : l.terms) {
    const int64_t q = floor_div_int(f, c), r = f - q * c;
    if (r == 0) {
      whole.terms.push_back({t, q});
    } else {
      part.terms.push_back({t, f});
      common = std::gcd(common, f < 0 ? -f : f);
    }
  }
  whole.constant = floor_div_int(l.constant, c);
  part.constant = l.constant - whole.constant * c;
  UOp p = part.to_uop();
  if (p.vmin() != INT64_MIN && p.vmax() != INT64_MAX && floor_div_int(p.vmin(), c) == floor_div_int(p.vmax(), c)) {
    const int64_t k = floor_div_int(p.vmin(), c);
    whole.constant += k;
    part.constant -= k * c;
    quotient = whole.to_uop();
    remainder = part.to_uop();
    return;
  }
  // Terms may be larger than c: (f*t) // c with f = q*c + r is q*t + (r*t) // c.
  bool large = false;
  for (auto& [t, f] : part.terms) {
    const int64_t q = floor_div_int(f, c);
    if (q > 0) {
      whole.terms.push_back({t, q});
      f -= q * c;
      large = true;
    }
  }
  if (large) p = part.to_uop();
  // A common factor of all terms and c: (g*a + k) // (g*b) with 0 <= k < g is a // b.
  UOp q, r;
  if (common > 1) {
    Linear small;
    for (const auto& [t, f] : part.terms) small.terms.push_back({t, f / common});
    const int64_t k = floor_div_int(part.constant, common);
    small.constant = k;
    const int64_t rest = part.constant - k * common;
    UOp sq, sr;
    div_mod_index(small.to_uop(), c / common, sq, sr);
    q = sq;
    r = add_index(mul_index(sr, common), rest);
  } else {
    q = divide(p, c);
    r = remain(p, c);
  }
  Linear total = whole;
  total.add(q, 1);
  quotient = total.to_uop();
  remainder = r;
}

UOp flatten(std::span<const UOp> index, std::span<const int64_t> dims) {
  Linear l;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    l.add(index[i], stride);
    stride *= dims[i];
  }
  return l.to_uop();
}

Index reshape_index(std::span<const UOp> index, std::span<const int64_t> from, std::span<const int64_t> to) {
  Index out(to.size(), UOp());
  // Axes are matched in groups of equal products, so that what a group does not touch passes unchanged.
  size_t i = from.size(), j = to.size();
  while (i > 0 || j > 0) {
    if (j > 0 && to[j - 1] == 1) {
      out[--j] = idx(0);
      continue;
    }
    if (i > 0 && from[i - 1] == 1) {
      --i;
      continue;
    }
    size_t i0 = i, j0 = j;
    int64_t a = i > 0 ? from[--i0] : 1, b = j > 0 ? to[--j0] : 1;
    while (a != b) {
      if (a < b && i0 > 0) {
        a *= from[--i0];
      } else if (j0 > 0) {
        b *= to[--j0];
      } else {
        a *= from[--i0];
      }
    }
    if (i - i0 == 1 && j - j0 == 1) {
      out[j0] = index[i0];
    } else {
      UOp flat = flatten(index.subspan(i0, i - i0), from.subspan(i0, i - i0));
      for (size_t k = j; k-- > j0;) {
        if (k == j0) {
          out[k] = flat;
        } else {
          UOp q, r;
          div_mod_index(flat, to[k], q, r);
          out[k] = r;
          flat = q;
        }
      }
    }
    i = i0;
    j = j0;
  }
  return out;
}

UOp and_gate(const UOp& a, const UOp& b) {
  if (!a || a == b) return b;
  if (!b || gate_implies(a, b)) return a;
  return a & b;
}

UOp in_range(const UOp& e, int64_t lo, int64_t hi) {
  UOp gate;
  if (e.vmin() < lo) gate = ge(e, lo);
  if (e.vmax() >= hi) gate = and_gate(gate, lt(e, hi));
  return gate;
}

bool gate_implies(const UOp& whole, const UOp& part) {
  if (!part || whole == part) return true;
  if (!whole) return false;
  SmallVec<UOp, 8> have, want{part};
  SmallVec<UOp, 8> work{whole};
  while (!work.empty()) {
    const UOp u = work.back();
    work.pop_back();
    have.push_back(u);
    if (u.op() == Op::And) {
      work.push_back(u.src(0));
      work.push_back(u.src(1));
    }
  }
  while (!want.empty()) {
    const UOp u = want.back();
    want.pop_back();
    if (std::find(have.begin(), have.end(), u) != have.end()) continue;
    if (u.op() != Op::And) return false;
    want.push_back(u.src(0));
    want.push_back(u.src(1));
  }
  return true;
}

Index source_index(const Node* n, std::span<const UOp> index) {
  const Shape& in = n->src()[0]->shape;
  if (n->op == Op::Reshape) return reshape_index(index, n->shape, in);
  Index out(index.begin(), index.end());
  const auto arg = n->arg.as_ints();
  switch (n->op) {
    case Op::Expand:
      for (size_t i = 0; i < in.size(); ++i)
        if (in[i] == 1) out[i] = idx(0);
      return out;
    case Op::Permute:
      for (size_t i = 0; i < in.size(); ++i) out[static_cast<size_t>(arg[i])] = index[i];
      return out;
    case Op::Shrink:
      for (size_t i = 0; i < in.size(); ++i) out[i] = add_index(index[i], arg[2 * i]);
      return out;
    case Op::Flip:
      for (const int64_t a : arg) {
        const auto i = static_cast<size_t>(a);
        out[i] = sub_index(in[i] - 1, index[i]);
      }
      return out;
    case Op::Window: {
      const auto axis = static_cast<size_t>(arg[0]);
      Linear l;
      l.add(index[axis], arg[2]);
      l.add(index[index.size() - 1], arg[3]);
      out.pop_back();
      out[axis] = l.to_uop();
      return out;
    }
    default:
      raise(ErrorKind::Internal, fmt::format("no index rule for {}", name(n->op)));
  }
}

}  // namespace whit::sched
