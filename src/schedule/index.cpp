#include "schedule/index.h"

#include <algorithm>

#include "ir/build.h"
#include "rules/linear.h"
#include "rules/rules.h"

namespace whit::sched {
namespace {

UOp sum(Linear l) {
  UOp u = linear_sum(std::move(l));
  WHIT_CHECK(u, "an index past 64 bits");
  return u;
}

}  // namespace

UOp add_index(const UOp& a, const UOp& b) {
  Linear l = linear_of(a);
  l.add(linear_of(b), 1);
  return sum(std::move(l));
}
// a * factor + c
static UOp affine(const UOp& a, int64_t factor, int64_t c) {
  Linear l;
  l.add(linear_of(a), factor);
  l.add_constant(c);
  return sum(std::move(l));
}
UOp add_index(const UOp& a, int64_t c) { return c == 0 ? a : affine(a, 1, c); }
UOp mul_index(const UOp& a, int64_t c) { return c == 1 ? a : affine(a, c, 0); }
void div_mod_index(const UOp& e, int64_t c, UOp& quotient, UOp& remainder) {
  UOp q = linear_div(e, c), r = linear_mod(e, c);
  WHIT_CHECK(q && r, "an index past 64 bits");
  quotient = std::move(q);
  remainder = std::move(r);
}

UOp flatten(std::span<const UOp> index, std::span<const int64_t> dims) {
  Linear l;
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    l.add(linear_of(index[i]), stride);
    stride *= dims[i];
  }
  return sum(std::move(l));
}

Index unflatten(UOp flat, std::span<const int64_t> dims) {
  Index out(dims.size());
  for (size_t i = dims.size(); i-- > 1;) div_mod_index(flat, dims[i], flat, out[i]);
  if (!out.empty()) out[0] = flat;
  return out;
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
      const UOp flat = flatten(index.subspan(i0, i - i0), from.subspan(i0, i - i0));
      std::ranges::copy(unflatten(flat, to.subspan(j0, j - j0)), out.begin() + j0);
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

UOp in_range(const UOp& e, int64_t lo, const Sint& hi) {
  UOp gate;
  // The smallest int64 has no negative, which the comparison may be turned into.
  if (e.vmin() < lo) gate = ge(e.vmin() == INT64_MIN ? alu(Op::Max, {e, idx(lo - 1)}) : e, lo);
  if (e.vmax() >= hi.min()) gate = and_gate(gate, lt(e, hi.uop()));
  return gate;
}

bool gate_implies(const UOp& whole, const UOp& part) {
  if (!part || whole == part) return true;
  if (!whole) return false;
  const std::vector<UOp> have = clauses(whole);
  return std::ranges::all_of(clauses(part), [&](const UOp& c) { return std::ranges::find(have, c) != have.end(); });
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
      for (size_t i = 0; i < in.size(); ++i) out[i] = n->n_src == 1 ? add_index(index[i], arg[2 * i]) : add_index(index[i], box_of(n, i).first.uop());
      return out;
    case Op::Flip:
      for (const int64_t a : arg) {
        const auto i = static_cast<size_t>(a);
        out[i] = affine(index[i], -1, in[i] - 1);
      }
      return out;
    case Op::Window: {
      const auto axis = static_cast<size_t>(arg[0]);
      Linear l;
      l.add(linear_of(index[axis]), arg[2]);
      l.add(linear_of(index[index.size() - 1]), arg[3]);
      out.pop_back();
      out[axis] = sum(std::move(l));
      return out;
    }
    default: raise(ErrorKind::Internal, "no index rule for {}", n->op);
  }
}

}  // namespace whit::sched
