#include "fuzz/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>

#include "ir/text.h"
#include "whit/tensor.h"

namespace whit::fuzz {
namespace {

constexpr DType kDTypes[] = {DType::Float32, DType::Float32,  DType::Float32, DType::Int32,   DType::Int32,       DType::Bool,       DType::Int8,
                             DType::UInt8,   DType::Int16,    DType::UInt16,  DType::UInt32,  DType::Int64,       DType::UInt64,     DType::Float64,
                             DType::Float16, DType::BFloat16, DType::Fp8E4M3, DType::Fp8E5M2, DType::Fp8E4M3FNUZ, DType::Fp8E5M2FNUZ};

// Of all that is finite: the largest magnitude and the sum of magnitudes; whether all is finite.
struct Extent {
  double largest = 0, sum = 0;
  bool finite = true;
};
Extent extent(const HostTensor& t) {
  Extent e;
  for (int64_t i = 0, n = t.shape.numel(); i < n; ++i) {
    const double v = std::fabs(t.at(i).as_double());
    if (std::isfinite(v)) {
      e.largest = std::max(e.largest, v);
      e.sum += v;
    } else {
      e.finite = false;
    }
  }
  return e;
}

double epsilon(DType dt) { return is_float(dt) ? std::ldexp(1.0, -info(dt).mantissa_bits) : 0; }
// What rounding once may change in a value that is at most `largest`: denormal numbers are no denser than the smallest one.
double rounding(DType dt, double largest) {
  return is_float(dt) ? std::max(epsilon(dt) * largest, std::ldexp(1.0, 2 - (1 << (info(dt).exponent_bits - 1)) - info(dt).mantissa_bits)) : 0;
}

bool has_zero(const HostTensor& t) {
  for (int64_t i = 0, n = t.shape.numel(); i < n; ++i)
    if (t.at(i).as_double() == 0) return true;
  return false;
}

// True when sums of these floats in any order, also with the last product fused in, have one result.
bool sums_exactly(const HostTensor& t) {
  if (!is_float(t.dtype)) return true;
  const Extent e = extent(t);
  const double quantum = 1.0 / 16;
  if (!e.finite || e.sum / quantum > std::ldexp(1.0, info(t.dtype).mantissa_bits)) return false;
  for (int64_t i = 0, n = t.shape.numel(); i < n; ++i)
    if (std::remainder(t.at(i).f, quantum) != 0) return false;
  return true;
}

class Maker {
 public:
  Maker(const GraphOptions& options, OpCounts* counts) : o_(options), counts_(counts), rng_(options.seed) {}

  KnownGraph make() {
    for (int i = pick(2, 5); i > 0; --i) add_input(kDTypes[pick(0, std::size(kDTypes) - 1)], random_shape());
    const std::vector<Op> ops = reachable_ops();
    for (int tries = 0; static_cast<int>(g_.nodes.size()) < o_.n_nodes && tries < o_.n_nodes * 20; ++tries) {
      if (chance(8)) {
        pattern();
        continue;
      }
      grow(ops[static_cast<size_t>(pick(0, static_cast<int64_t>(ops.size()) - 1))]);
    }
    return std::move(g_);
  }

 private:
  int64_t pick(int64_t lo, int64_t hi) {  // inclusive
    return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool chance(int one_in) { return pick(1, one_in) == 1; }

  Dims random_shape() {
    static constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 64};
    Dims d;
    int64_t numel = 1;
    for (int64_t rank = pick(0, 4); rank > 0; --rank) {
      const int64_t n = chance(60) ? 0 : kSizes[pick(0, std::size(kSizes) - 1)];
      if (numel * n > o_.max_elems / 2) continue;
      d.push_back(n);
      numel *= std::max<int64_t>(n, 1);
    }
    return d;
  }

  Scalar random_scalar(DType dt) {
    if (dt == DType::Bool) return Scalar::of(dt, pick(0, 1));
    if (is_float(dt)) {
      static constexpr double kSpecial[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 1e-40, 65504.0, 3e38, 1e-7};
      if (chance(40)) return Scalar::of(dt, kSpecial[pick(0, std::size(kSpecial) - 1)]);
      if (chance(6)) return Scalar::of(dt, std::ldexp(static_cast<double>(pick(-1000000, 1000000)), static_cast<int>(pick(-30, 0))));
      return Scalar::of(dt, static_cast<double>(pick(-32, 32)) / 8);
    }
    if (chance(12)) {
      const int64_t special[] = {int_min(dt), int_max(dt), int_min(dt) + 1, 0, -1};
      return Scalar::of(dt, special[pick(0, 4)]);
    }
    if (chance(8)) return Scalar::of(dt, static_cast<int64_t>(rng_()));
    return Scalar::of(dt, pick(is_unsigned(dt) ? 0 : -9, 12));
  }

  void add_input(DType dt, const Dims& shape) {
    const int64_t n = Shape(shape).numel();
    const bool plain = chance(2);  // no special values: sums stay exact
    if (n == 0) return;
    UOp b = buffer(dt, n, o_.device);
    Bytes bytes(static_cast<size_t>(n * n_bytes(dt)));
    for (int64_t i = 0; i < n; ++i) {
      Scalar s = random_scalar(dt);
      if (plain && is_float(dt)) s = Scalar::of(dt, static_cast<double>(pick(-16, 16)) / 4);
      write_element(dt, bytes.data(), i, s);
    }
    g_.inputs[b.node()] = std::move(bytes);
    keep(reshape(b, shape), 0, false);
  }

  void count(const UOp& u) {
    const Shape& s = u.shape();
    const int64_t last = s.empty() ? 0 : s.back();
    const auto add = [&](std::string kind) { ++(*counts_)[std::move(kind)]; };
    add(std::string(name(u.op())));
    add(std::string(name(u.dtype())));
    add(fmt::format("{} {}", name(u.op()), name(u.dtype())));
    add(fmt::format("rank {}", s.size()));
    add(s.numel() == 0 ? "empty" : s.numel() == 1 ? "one element" : "elements");
    if (last > 1) add(last % 16 == 0 ? "rows of 16" : last % 4 == 0 ? "rows of 4" : last % 2 == 1 ? "odd rows" : "even rows");
  }

  // Adds a node with its value, unless that is too large or not predictable.
  const Known* keep(const UOp& u, double tolerance, bool any_zero) {
    if (u.shape().numel() > o_.max_elems || u.shape().size() > 7) return nullptr;
    if (std::isnan(tolerance) || std::isinf(tolerance)) return nullptr;
    Known k{u, g_.evaluate(u), tolerance, any_zero};
    if (counts_) count(u);
    g_.nodes.push_back(std::move(k));
    return &g_.nodes.back();
  }

  template <class Fn> std::optional<Known> choose(Fn&& wanted) {
    std::vector<size_t> found;
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (wanted(g_.nodes[i])) found.push_back(i);
    if (found.empty()) return {};
    // New values are liked more, so that graphs become deep.
    const size_t n = found.size();
    const size_t a = static_cast<size_t>(pick(0, static_cast<int64_t>(n) - 1));
    const size_t b = static_cast<size_t>(pick(0, static_cast<int64_t>(n) - 1));
    return g_.nodes[found[std::max(a, b)]];
  }
  std::optional<Known> choose_exact(DType dt) {
    return choose([&](const Known& k) { return k.node.dtype() == dt && k.tolerance == 0; });
  }

  // Any value as one of `dims`: flattened, repeated and cut.
  std::optional<Known> fit(const Known& x, std::span<const int64_t> dims) {
    const int64_t want = Shape(dims).numel(), have = x.node.shape().numel();
    if (std::equal(dims.begin(), dims.end(), x.node.shape().begin(), x.node.shape().end())) return x;
    if (have == 0) return {};
    UOp u = reshape(x.node, Dims{have});
    if (have == 1 && chance(2)) {
      u = expand(reshape(u, Dims(dims.size(), 1)), dims);
    } else {
      if (have < want) {
        const int64_t times = (want + have - 1) / have;
        u = reshape(expand(reshape(u, Dims{1, have}), Dims{times, have}), Dims{times * have});
      }
      u = reshape(shrink(u, Dims{0, want}), dims);
    }
    if (const Known* k = keep(u, x.tolerance, x.any_zero)) return *k;
    return {};
  }

  // A value of a dtype and shape: one that is there, a cast one, or a constant.
  std::optional<Known> operand(DType dt, std::span<const int64_t> dims, bool exact) {
    auto fits = [&](const Known& k) { return k.node.dtype() == dt && (!exact || k.tolerance == 0); };
    if (chance(8)) {
      const UOp c = constant_of(random_scalar(dt));
      Known k{chance(2) ? c : broadcast_scalar(c, dims), {}, 0, false};
      k.value = g_.evaluate(k.node);
      return k;
    }
    std::optional<Known> x =
        choose([&](const Known& k) { return fits(k) && std::equal(dims.begin(), dims.end(), k.node.shape().begin(), k.node.shape().end()); });
    if (!x || chance(4)) {
      std::optional<Known> other = choose(fits);
      if (!other) {
        other = choose([](const Known& k) { return k.tolerance == 0 && k.node.dtype() != DType::WeakInt; });
        if (!other) return {};
        const Known* c = keep(cast(other->node, dt), 0, other->any_zero);
        if (!c) return {};
        other = *c;
      }
      if (auto fitted = fit(*other, dims)) x = fitted;
    }
    return x;
  }

  void grow(Op op) {
    if (is_elementwise(op) || op == Op::Contiguous || op == Op::Detach || op == Op::ContiguousBackward) {
      switch (info(op).group) {
        case OpGroup::Unary: return unary(op);
        case OpGroup::Binary: return binary(op);
        default: return where_op();
      }
    }
    if (op == Op::Stack) return stack();
    if (is_movement(op)) return movement(op);
    if (op == Op::Reduce) return reduce_op();
    if (op == Op::Gather) return gather();
    if (op == Op::Scatter) return scatter();
    if (op == Op::Lanes) return lanes();
    if (op == Op::Const) {
      const DType dt = kDTypes[pick(0, std::size(kDTypes) - 1)];
      keep(broadcast_scalar(constant_of(random_scalar(dt)), random_shape()), 0, false);
    }
  }

  void unary(Op op) {
    const bool floats_only = op == Op::Recip || op == Op::Sqrt || op == Op::Exp2 || op == Op::Log2 || op == Op::Sin || op == Op::Trunc;
    const bool identity = op == Op::Contiguous || op == Op::Detach || op == Op::ContiguousBackward;
    const auto x = choose([&](const Known& k) {
      const DType dt = k.node.dtype();
      if (is_weak(dt) && identity) return false;
      if (floats_only && !is_float(dt)) return false;
      if (op == Op::Neg && dt == DType::Bool) return false;
      return identity || op == Op::Neg || k.tolerance == 0 || op == Op::Cast;
    });
    if (!x) return;
    if (op == Op::Cast) return cast_op(*x);
    if (op == Op::Bitcast) return bitcast_op(*x);
    if (op == Op::Recip && x->any_zero && has_zero(x->value)) return;  // either infinity
    const UOp u = UOp::make(op, x->node.dtype(), {x->node});
    double tolerance = x->tolerance;
    if (op == Op::Exp2 || op == Op::Log2 || op == Op::Sin) tolerance = 16 * epsilon(u.dtype()) * std::max(1e-30, extent(g_.evaluate(u)).largest);
    keep(u, tolerance, x->any_zero && op != Op::Recip);
  }

  void cast_op(const Known& x) {
    const DType to = kDTypes[pick(0, std::size(kDTypes) - 1)], from = x.node.dtype();
    if (to == from) return;
    if (x.tolerance > 0) {
      const Extent e = extent(x.value);
      if (!is_float(to) || !e.finite || e.largest > 200) return;
      keep(cast(x.node, to), x.tolerance + rounding(to, e.largest), x.any_zero);
      return;
    }
    keep(cast(x.node, to), 0, x.any_zero);
  }

  void bitcast_op(const Known& x) {
    const DType to = kDTypes[pick(0, std::size(kDTypes) - 1)], from = x.node.dtype();
    if (x.any_zero || is_weak(from) || to == DType::Bool || from == DType::Bool || to == from) return;
    if (!extent(x.value).finite) return;  // NaNs have more than one form
    const int a = n_bytes(from), b = n_bytes(to);
    if (a != b && (x.node.shape().empty() || x.node.shape().back() * a % b != 0)) return;
    keep(UOp::make(Op::Bitcast, to, {x.node}), 0, false);
  }

  void binary(Op op) {
    const bool exact = op != Op::Add && op != Op::Sub && op != Op::Mul && op != Op::Max && op != Op::Min;
    const bool ints = op == Op::Cdiv || op == Op::FloorDiv || op == Op::And || op == Op::Or || op == Op::Xor || op == Op::Shl || op == Op::Shr;
    const auto a = choose([&](const Known& k) {
      const DType dt = k.node.dtype();
      if (exact && k.tolerance > 0) return false;
      if (op == Op::Threefry) return dt == DType::UInt64;
      if (op == Op::Fdiv) return is_float(dt);
      if (is_weak(dt)) return op == Op::Add || op == Op::Mul || is_comparison(op);
      if (dt == DType::Bool)
        return op == Op::And || op == Op::Or || op == Op::Xor || op == Op::Max || op == Op::Min || op == Op::Add || op == Op::Mul ||
               is_comparison(op);
      return !ints || is_int(dt);
    });
    if (!a) return;
    const DType dt = a->node.dtype();
    std::optional<Known> b;
    if (is_weak(dt)) {  // kept small: the type has no bound
      Known k{idx(pick(1, 9)), {}, 0, false};
      k.value = g_.evaluate(k.node);
      b = k;
      if (extent(a->value).largest > 1e6) return;
    } else {
      b = operand(dt, a->node.shape(), exact);
    }
    if (!b) return;
    const bool swap = chance(2) && b->node.shape() == a->node.shape();
    const Known &x = swap ? *b : *a, &y = swap ? *a : *b;
    const UOp u = alu(op, {x.node, y.node});
    const bool any_zero = x.any_zero || y.any_zero;
    if (any_zero && ((op == Op::Fdiv && y.any_zero && has_zero(y.value)) || op == Op::Pow || op == Op::Max || op == Op::Min)) return;
    if (!is_float(dt) || (x.tolerance == 0 && y.tolerance == 0 && op != Op::Pow)) {
      keep(u, 0, any_zero);
      return;
    }
    const Extent ex = extent(x.value), ey = extent(y.value);
    if (op == Op::Pow) {
      const Extent e = extent(g_.evaluate(u));
      keep(u, 64 * epsilon(dt) * std::max(1e-30, e.largest), false);
      return;
    }
    if (!ex.finite || !ey.finite || ex.largest > 1e15 || ey.largest > 1e15) return;
    const double out = extent(g_.evaluate(u)).largest;
    double tolerance = x.tolerance + y.tolerance;
    if (op == Op::Mul) tolerance = x.tolerance * ey.largest + y.tolerance * ex.largest + x.tolerance * y.tolerance;
    if (op == Op::Max || op == Op::Min) tolerance = std::max(x.tolerance, y.tolerance);
    keep(u, tolerance + rounding(dt, out), true);
  }

  void where_op() {
    const auto a = choose([](const Known& k) { return k.node.dtype() != DType::WeakInt; });
    if (!a) return;
    const auto c = operand(DType::Bool, a->node.shape(), true);
    const auto b = operand(a->node.dtype(), a->node.shape(), false);
    if (!c || !b) return;
    const bool swap = chance(2);
    keep(where(c->node, swap ? b->node : a->node, swap ? a->node : b->node), std::max(a->tolerance, b->tolerance), a->any_zero || b->any_zero);
  }

  void movement(Op op) {
    const auto x = choose([&](const Known& k) {
      if (op == Op::Unwindow) return k.node.shape().size() >= 2 && k.node.dtype() != DType::WeakInt && k.node.dtype() != DType::Bool;
      return op == Op::Reshape || op == Op::Expand || !k.node.shape().empty();
    });
    if (!x) return;
    const UOp& u = x->node;
    const Shape& s = u.shape();
    const int64_t rank = static_cast<int64_t>(s.size());
    UOp y;
    switch (op) {
      case Op::Reshape: {
        Dims d;
        if (chance(2)) {  // split the axes into factors
          for (const int64_t n : s) {
            int64_t f = 1;
            for (const int64_t g : {2, 3, 4, 5})
              if (n > 0 && n % g == 0 && chance(2)) f = g;
            if (f > 1) d.push_back(f);
            d.push_back(n / f);
          }
        } else {  // merge neighbours, put axes of 1 in
          for (const int64_t n : s) {
            if (!d.empty() && chance(2)) d[d.size() - 1] *= n;
            else d.push_back(n);
            if (chance(4)) d.push_back(1);
          }
        }
        y = reshape(u, d);
        break;
      }
      case Op::Expand: {
        Dims one(s.begin(), s.end()), d;
        if (chance(2) || std::find(one.begin(), one.end(), 1) == one.end()) {
          Dims more{1};
          more.append(one.begin(), one.end());
          one = more;
        }
        for (const int64_t n : one) d.push_back(n == 1 && chance(2) ? pick(1, 5) : n);
        y = expand(reshape(u, one), d);
        break;
      }
      case Op::Permute: {
        std::vector<int64_t> order(s.size());
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), rng_);
        y = permute(u, order);
        break;
      }
      case Op::Pad: {
        Dims a;
        for (int64_t i = 0; i < 2 * rank; ++i) a.push_back(chance(2) ? pick(0, 3) : 0);
        y = pad(u, a);
        break;
      }
      case Op::Shrink: {
        Dims a;
        for (const int64_t n : s) {
          const int64_t lo = chance(2) ? pick(0, n) : 0, hi = chance(2) ? pick(lo, n) : n;
          const bool empty = lo == hi && n > 0 && !chance(8);
          a.push_back(empty ? 0 : lo);
          a.push_back(empty ? n : hi);
        }
        y = shrink(u, a);
        break;
      }
      case Op::Flip: {
        Dims a;
        for (int64_t i = 0; i < rank; ++i)
          if (chance(2)) a.push_back(i);
        y = flip(u, a);
        break;
      }
      case Op::Window: {
        const int64_t axis = pick(0, rank - 1), k = pick(1, 3), stride = pick(1, 3), dilation = pick(1, 2);
        if (s[static_cast<size_t>(axis)] < dilation * (k - 1) + 1) return;
        y = window(u, axis, k, stride, dilation);
        break;
      }
      case Op::Unwindow: {
        const int64_t axis = pick(0, rank - 2), stride = pick(1, 3), dilation = pick(1, 2);
        const int64_t least = (s[static_cast<size_t>(axis)] - 1) * stride + (s.back() - 1) * dilation + 1;
        if (s.numel() == 0) return;
        y = unwindow(u, axis, least + pick(0, 2), stride, dilation);
        const bool exact = x->tolerance == 0 && sums_exactly(x->value);
        const Extent e = extent(x->value);
        if (!exact && (!e.finite || e.sum > 1e30)) return;
        keep(y, exact ? 0 : static_cast<double>(s.back()) * (x->tolerance + 4 * rounding(u.dtype(), e.largest)), is_float(u.dtype()));
        return;
      }
      default: return;
    }
    keep(y, x->tolerance, x->any_zero);
  }

  void stack() {
    const auto x = choose([](const Known& k) { return k.node.dtype() != DType::WeakInt; });
    if (!x) return;
    std::vector<UOp> src{x->node};
    double tolerance = x->tolerance;
    bool any_zero = x->any_zero;
    for (int64_t n = pick(0, 2); n > 0; --n) {
      const auto y = operand(x->node.dtype(), x->node.shape(), false);
      if (!y || !(y->node.shape() == x->node.shape())) return;
      src.push_back(y->node);
      tolerance = std::max(tolerance, y->tolerance);
      any_zero |= y->any_zero;
    }
    keep(UOp::make(Op::Stack, x->node.dtype(), src), tolerance, any_zero);
  }

  void reduce_op() {
    const auto x = choose([](const Known& k) { return !k.node.shape().empty() && k.node.dtype() != DType::WeakInt; });
    if (!x) return;
    static constexpr const char* kMonoids[] = {"add", "add", "mul", "max", "min"};
    const std::string monoid = kMonoids[pick(0, 4)];
    Dims axes;
    int64_t n = 1;
    for (size_t i = 0; i < x->node.shape().size(); ++i)
      if (chance(2)) {
        axes.push_back(static_cast<int64_t>(i));
        n *= x->node.shape()[i];
      }
    if (axes.empty()) return;
    const DType dt = x->node.dtype();
    const UOp u = reduce_axes(x->node, monoid, axes);
    if (!is_float(dt)) {
      keep(u, 0, false);
      return;
    }
    if (monoid == "max" || monoid == "min") {
      keep(u, x->tolerance, true);
      return;
    }
    if (monoid == "add" && x->tolerance == 0 && sums_exactly(x->value)) {
      keep(u, 0, true);
      return;
    }
    const Extent e = extent(x->value);
    if (!e.finite || e.sum > 1e4) return;
    const double count = static_cast<double>(n);
    if (monoid == "add") {
      keep(u, count * x->tolerance + 2 * count * rounding(dt, e.sum), true);
    } else {
      double bound = 1;
      for (int64_t i = 0, m = x->value.shape.numel(); i < m; ++i) bound *= std::max(1.0, std::fabs(x->value.at(i).f) + x->tolerance);
      if (bound > 1e6 || x->tolerance > 0) return;
      keep(u, 2 * count * rounding(dt, bound), true);
    }
  }

  // What kernels are tuned for: products of matrices, convolutions, softmax.
  void pattern() {
    const auto x = choose([](const Known& k) {
      return k.node.shape().numel() > 1 && k.tolerance == 0 && (is_float(k.node.dtype()) || is_int(k.node.dtype())) && !is_weak(k.node.dtype());
    });
    if (!x) return;
    const DType dt = x->node.dtype();
    switch (pick(0, 2)) {
      case 0: {
        const int64_t m = pick(1, 17), n = pick(1, 33), k = pick(1, 20);
        if (m * n * k > 4 * o_.max_elems) return;
        const auto a = fit(*x, Dims{m, k});
        const auto y = choose_exact(dt);
        const auto b = y ? fit(*y, Dims{n, k}) : std::nullopt;
        if (!a || !b) return;
        sum_of_products(reshape(a->node, Dims{m, 1, k}), reshape(b->node, Dims{1, n, k}), Dims{m, n, k}, Dims{2}, *a, *b);
        return;
      }
      case 1: {
        const int64_t h = pick(3, 9), w = pick(3, 9), c = pick(1, 3), o = pick(1, 4), stride = pick(1, 2);
        const auto a = fit(*x, Dims{c, h, w});
        const auto y = choose_exact(dt);
        const auto b = y ? fit(*y, Dims{o, c, 1, 1, 3, 3}) : std::nullopt;
        if (!a || !b) return;
        const UOp patches = window(window(a->node, 1, 3, stride, 1), 2, 3, stride, 1);  // (c, h', w', 3, 3)
        const Shape& s = patches.shape();
        const Dims all{o, s[0], s[1], s[2], s[3], s[4]};
        if (Shape(all).numel() > 8 * o_.max_elems) return;
        sum_of_products(reshape(patches, Dims{1, s[0], s[1], s[2], s[3], s[4]}), b->node, all, Dims{1, 4, 5}, *a, *b);
        return;
      }
      default: {
        if (!is_float(dt) || x->node.shape().empty() || epsilon(dt) > 1e-2) return;
        const Extent e = extent(x->value);
        if (!e.finite || e.largest > 50) return;
        const Dims axis{static_cast<int64_t>(x->node.shape().size()) - 1}, d(x->node.shape());
        const UOp top = expand(reduce_axes(x->node, "max", axis), d), y = UOp::make(Op::Exp2, dt, {x->node - top});
        const UOp sum = expand(reduce_axes(y, "add", axis), d);
        keep(y * UOp::make(Op::Recip, dt, {sum}), 8 * (static_cast<double>(d.back()) + 16) * epsilon(dt), true);
      }
    }
  }

  void sum_of_products(const UOp& a, const UOp& b, const Dims& all, const Dims& axes, const Known& x, const Known& y) {
    const UOp product = expand(a, all) * expand(b, all);
    const HostTensor value = g_.evaluate(product);
    const bool exact = sums_exactly(value) && sums_exactly(x.value) && sums_exactly(y.value);
    const Extent e = extent(value);
    if (!exact && (!e.finite || e.sum > 1e6)) return;
    keep(reduce_axes(product, "add", axes), exact ? 0 : 2 * static_cast<double>(value.shape.numel()) * rounding(product.dtype(), e.largest), true);
  }

  // Indices for n rows: an int32 or int64 tensor, mostly inside.
  std::optional<Known> indices(int64_t n) {
    const DType dt = chance(2) ? DType::Int32 : DType::Int64;
    if (chance(2))
      if (auto k = choose_exact(dt)) return k;
    Dims shape;
    for (int64_t rank = pick(0, 2); rank > 0; --rank) shape.push_back(pick(1, 9));
    const int64_t count = Shape(shape).numel();
    UOp b = buffer(dt, count, o_.device);
    Bytes bytes(static_cast<size_t>(count * n_bytes(dt)));
    for (int64_t i = 0; i < count; ++i)
      write_element(dt, bytes.data(), i, Scalar::of(dt, chance(8) ? pick(-2, n + 2) : pick(0, std::max<int64_t>(n - 1, 0))));
    g_.inputs[b.node()] = std::move(bytes);
    if (const Known* k = keep(reshape(b, shape), 0, false)) return *k;
    return {};
  }

  void gather() {
    const auto x = choose([](const Known& k) { return !k.node.shape().empty() && k.node.dtype() != DType::WeakInt; });
    if (!x) return;
    const auto i = indices(x->node.shape()[0]);
    if (!i) return;
    keep(UOp::make(Op::Gather, x->node.dtype(), {x->node, i->node}), x->tolerance, x->any_zero);
  }

  void scatter() {
    const auto x =
        choose([](const Known& k) { return !k.node.shape().empty() && k.node.dtype() != DType::WeakInt && k.node.dtype() != DType::Bool; });
    if (!x) return;
    const auto i = indices(x->node.shape()[0]);
    if (!i) return;
    Dims d(i->node.shape().begin(), i->node.shape().end());
    d.append(x->node.shape().begin() + 1, x->node.shape().end());
    if (Shape(d).numel() > o_.max_elems) return;
    const auto src = operand(x->node.dtype(), d, false);
    if (!src || !(src->node.shape() == Shape(d))) return;
    const bool add = chance(2);
    double tolerance = std::max(x->tolerance, src->tolerance);
    if (add && is_float(x->node.dtype()) && (tolerance > 0 || !sums_exactly(x->value) || !sums_exactly(src->value))) {
      const Extent e = extent(x->value), f = extent(src->value);
      if (!e.finite || !f.finite || e.largest + f.sum > 1e6) return;
      const double n = static_cast<double>(src->value.shape.numel()) + 1;
      tolerance = n * (tolerance + rounding(x->node.dtype(), e.largest + f.sum));
    }
    keep(UOp::make(Op::Scatter, x->node.dtype(), {x->node, i->node, src->node}, add ? "add" : "set"), tolerance, add || x->any_zero || src->any_zero);
  }

  void lanes() {
    const int64_t n = pick(1, 40);
    const UOp u = UOp::make(Op::Lanes, DType::WeakInt, {}, n);
    if (const Known* k = keep(u, 0, false)) {
      const Known copy = *k;
      keep(cast(copy.node, chance(2) ? DType::Int32 : DType::Float32), 0, false);
    }
  }

  const GraphOptions& o_;
  OpCounts* counts_;
  std::mt19937_64 rng_;
  KnownGraph g_;
};

bool can_be_root(const UOp& u) { return u.dtype() != DType::Void && !is_weak(u.dtype()) && u.node()->device != 0 && u.shape().numel() > 0; }

}  // namespace

HostInputs KnownGraph::host_inputs() {
  HostInputs in;
  for (auto& [node, bytes] : inputs) in.memory[node] = bytes.data();
  return in;
}

HostTensor KnownGraph::evaluate(const UOp& root) { return evaluate_tensor(root, host_inputs()); }

KnownGraph random_graph(const GraphOptions& options, OpCounts* counts) { return Maker(options, counts).make(); }

std::vector<Op> reachable_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    const bool left_out = OpSet{Op::MulAcc, Op::Shard, Op::Unshard}.has(op);  // of a rule; of several devices
    if ((is_elementwise(op) || is_movement(op)) && !left_out) ops.push_back(op);
  }
  for (const Op op : {Op::Const, Op::Lanes, Op::Contiguous, Op::ContiguousBackward, Op::Detach, Op::Reduce, Op::Reduce, Op::Gather, Op::Scatter})
    if (std::find(ops.begin(), ops.end(), op) == ops.end() || op == Op::Reduce) ops.push_back(op);
  return ops;
}

std::string difference(const Known& want, const Bytes& got) {
  const HostTensor& w = want.value;
  const int64_t n = w.shape.numel();
  if (static_cast<int64_t>(got.size()) != n * n_bytes(w.dtype)) return fmt::format("{} bytes instead of {}", got.size(), n * n_bytes(w.dtype));
  for (int64_t i = 0; i < n; ++i) {
    const Scalar a = w.at(i), b = read_element(w.dtype, got.data(), i);
    bool same = false;
    if (!is_float(w.dtype)) {
      same = a.i == b.i;
    } else if (std::isnan(a.f) || std::isnan(b.f)) {
      same = std::isnan(a.f) && std::isnan(b.f);
    } else if (a.f == b.f) {
      same = std::signbit(a.f) == std::signbit(b.f) || want.any_zero || want.tolerance > 0;
    } else {
      same = std::fabs(a.f - b.f) <= want.tolerance;
    }
    if (!same)
      return fmt::format("element {} of {} {}: expected {}, got {} (allowed difference {})", i, name(w.dtype), w.shape.str(),
                         is_float(w.dtype) ? fmt::format("{:.17g}", a.f) : fmt::format("{}", a.i),
                         is_float(w.dtype) ? fmt::format("{:.17g}", b.f) : fmt::format("{}", b.i), want.tolerance);
  }
  return "";
}

std::vector<Bytes> run_graph(const KnownGraph& graph, const std::vector<UOp>& roots, const std::string& device) {
  std::unordered_map<const Node*, UOp> fresh;
  std::vector<Tensor> alive;
  for (const auto& [node, bytes] : graph.inputs) {
    const int64_t n = node->shape.numel();
    alive.push_back(Tensor::from_bytes(bytes.data(), node->dtype, n, {.device = device}));
    fresh[node] = reshape(alive.back().uop(), Dims{n});
  }
  std::vector<Tensor> out;
  for (const UOp& r : roots) out.emplace_back(substitute(r, fresh));
  Tensor::realize_all(out);
  std::vector<Bytes> result;
  for (const Tensor& t : out) result.push_back(t.bytes());
  return result;
}

std::string smallest_failure(KnownGraph& graph, const std::string& device) {
  std::string what;
  auto fails = [&](const Known& k) {
    try {
      const std::vector<Bytes> got = run_graph(graph, {k.node}, device);
      what = difference(k, got[0]);
    } catch (const std::exception& e) {
      what = e.what();
    }
    return !what.empty();
  };
  // The first node that fails alone; then its sources become inputs wherever it fails still.
  const Known* found = nullptr;
  for (const Known& k : graph.nodes)
    if (can_be_root(k.node) && fails(k)) {
      found = &k;
      break;
    }
  if (!found) return "the roots fail only together";
  Known best = *found;
  for (bool smaller = true; smaller;) {
    smaller = false;
    const NodeList below = toposort(best.node);
    for (auto it = below.rbegin(); it != below.rend() && !smaller; ++it) {
      const UOp n(*it);
      if (n == best.node || !can_be_root(n) || n.op() == Op::Buffer) continue;
      if (n.op() == Op::Reshape && n.src(0).op() == Op::Buffer) continue;
      const HostTensor v = graph.evaluate(n);
      const UOp b = buffer(n.dtype(), v.shape.numel(), device);
      graph.inputs[b.node()] = v.bytes;
      Known next = best;
      next.node = substitute(best.node, {{n.node(), reshape(b, v.shape)}});
      if (toposort(next.node).size() < below.size() && fails(next)) {
        best = next;
        smaller = true;
      } else {
        graph.inputs.erase(b.node());
      }
    }
  }
  fails(best);
  std::string text = what + "\n" + to_text(best.node);
  int number = 0;
  for (const Node* n : toposort(best.node)) {
    if (n->op == Op::Buffer) {
      text += fmt::format("; BUFFER {}:", number);
      const Bytes& bytes = graph.inputs[n];
      for (int64_t i = 0; i < std::min<int64_t>(n->shape.numel(), 24); ++i) {
        const Scalar s = read_element(n->dtype, bytes.data(), i);
        text += is_float(n->dtype) ? fmt::format(" {:.9g}", s.f) : fmt::format(" {}", s.i);
      }
      text += "\n";
    }
    ++number;
  }
  return text;
}

}  // namespace whit::fuzz
