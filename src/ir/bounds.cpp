// Interval arithmetic over int64, saturating. Only ints and bools have bounds; a sized integer whose exact interval
// does not fit its width gets the full width (it may have wrapped).
#include <algorithm>
#include <limits>

#include "ir/uop.h"

namespace whit::detail {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

struct Interval {
  int64_t lo = kMin, hi = kMax;
};

int64_t saturate(__int128 v) { return v < kMin ? kMin : v > kMax ? kMax : static_cast<int64_t>(v); }
// An end at the limit of int64 stands for "unbounded": sums with it stay there.
int64_t add(int64_t a, int64_t b) {
  if (a == kMin || b == kMin) return kMin;
  if (a == kMax || b == kMax) return kMax;
  return saturate(static_cast<__int128>(a) + b);
}
int64_t mul(int64_t a, int64_t b) {
  if (a != 0 && b != 0 && (a == kMin || a == kMax || b == kMin || b == kMax)) return (a < 0) == (b < 0) ? kMax : kMin;
  return saturate(static_cast<__int128>(a) * b);
}
int64_t neg(int64_t a) { return a == kMin ? kMax : a == kMax ? kMin : -a; }
int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Interval of(const UOp& u) { return {u.vmin(), u.vmax()}; }

Interval corners(Interval x, Interval y, int64_t (*f)(int64_t, int64_t)) {
  const int64_t v[] = {f(x.lo, y.lo), f(x.lo, y.hi), f(x.hi, y.lo), f(x.hi, y.hi)};
  return {*std::min_element(v, v + 4), *std::max_element(v, v + 4)};
}

Interval exact(Op op, std::span<const UOp> src) {
  const Interval x = of(src[0]);
  const Interval y = src.size() > 1 ? of(src[1]) : Interval{};
  // A whole interval at a limit of int64 is a number, not "unbounded", and would be taken for that.
  if (x.lo == kMax || x.hi == kMin || y.lo == kMax || y.hi == kMin) return {};
  switch (op) {
    case Op::Neg: return {neg(x.hi), neg(x.lo)};
    case Op::Add: return {add(x.lo, y.lo), add(x.hi, y.hi)};
    case Op::Sub: return {add(x.lo, neg(y.hi)), add(x.hi, neg(y.lo))};
    case Op::Mul: return corners(x, y, mul);
    case Op::Max: return {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
    case Op::Min: return {std::min(x.lo, y.lo), std::min(x.hi, y.hi)};
    case Op::FloorDiv:
    case Op::Cdiv: {
      if (y.lo <= 0 || x.lo == kMin || x.hi == kMax) break;  // the divisor may be 0 or change sign
      return corners(x, y, op == Op::FloorDiv ? floor_div : [](int64_t a, int64_t b) { return a / b; });
    }
    case Op::FloorMod:
      if (y.lo <= 0) break;
      if (y.lo == y.hi && x.lo != kMin && x.hi != kMax && floor_div(x.lo, y.lo) == floor_div(x.hi, y.lo))
        return {x.lo - floor_div(x.lo, y.lo) * y.lo, x.hi - floor_div(x.lo, y.lo) * y.lo};
      return {0, x.lo >= 0 ? std::min(x.hi, y.hi - 1) : y.hi - 1};
    case Op::Cmod:
      if (y.lo <= 0) break;
      if (x.lo >= 0) {
        if (y.lo == y.hi && x.hi != kMax && x.lo / y.lo == x.hi / y.lo) return {x.lo % y.lo, x.hi % y.lo};
        return {0, std::min(x.hi, y.hi - 1)};
      }
      return {std::max(x.lo, -(y.hi - 1)), std::max<int64_t>(0, std::min(x.hi, y.hi - 1))};
    case Op::And:
      if (x.lo >= 0 && y.lo >= 0) return {0, std::min(x.hi, y.hi)};
      if (y.lo >= 0) return {0, y.hi};
      if (x.lo >= 0) return {0, x.hi};
      break;
    case Op::Shl:
      if (y.lo == y.hi && y.lo >= 0 && y.lo < 62) return {mul(x.lo, int64_t{1} << y.lo), mul(x.hi, int64_t{1} << y.lo)};
      break;
    case Op::Shr:
      if (y.lo == y.hi && y.lo >= 0 && y.lo < 63) return {x.lo >> y.lo, x.hi >> y.lo};
      break;
    case Op::Where: return {std::min(of(src[1]).lo, of(src[2]).lo), std::max(of(src[1]).hi, of(src[2]).hi)};
    default: break;
  }
  return {};
}

constexpr OpSet kSameElements = kViews | OpSet{Op::Contiguous, Op::ContiguousBackward, Op::Detach, Op::Copy, Op::Lane};

Interval compare(Op op, const UOp& a, const UOp& b) {
  if (a.dtype() == DType::UInt64 || is_float(a.dtype())) return {0, 1};
  const Interval x = of(a), y = of(b);
  const bool disjoint = x.hi < y.lo || y.hi < x.lo, same = x.lo == x.hi && y.lo == y.hi && x.lo == y.lo;
  if (op == Op::CmpLt) return {x.hi < y.lo, x.lo < y.hi};
  const bool is_ne = op == Op::CmpNe;
  if (disjoint) return {is_ne, is_ne};
  return same || a == b ? Interval{!is_ne, !is_ne} : Interval{0, 1};
}

Interval boolean(Op op, std::span<const UOp> src) {
  const Interval x = of(src[0]), y = src.size() > 1 ? of(src[1]) : Interval{0, 1};
  switch (op) {
    case Op::Mul:
    case Op::Min:
    case Op::And: return {x.lo & y.lo, x.hi & y.hi};
    case Op::Add:
    case Op::Max:
    case Op::Or: return {x.lo | y.lo, x.hi | y.hi};
    case Op::Xor:
      if (x.lo == x.hi && y.lo == y.hi) return {x.lo ^ y.lo, x.lo ^ y.lo};
      return {0, 1};
    case Op::Where: return {std::min(of(src[1]).lo, of(src[2]).lo), std::max(of(src[1]).hi, of(src[2]).hi)};
    default: return {0, 1};
  }
}

}  // namespace

void infer_bounds(Op op, DType dtype, std::span<const UOp> src, const Arg& arg, int64_t* vmin, int64_t* vmax) {
  *vmin = kMin;
  *vmax = kMax;
  if (!is_int(dtype) && dtype != DType::Bool) return;
  Interval r;  // all values, where nothing better is known
  const Interval full{dtype == DType::UInt64 ? kMin : int_min(dtype), int_max(dtype)};
  switch (op) {
    case Op::Const: r = arg.is_invalid() ? r : Interval{arg.to_int(), arg.to_int()}; break;
    case Op::Range: r = {0, std::max<int64_t>(0, arg.int_at(2) - 1)}; break;
    case Op::Lanes: r = {0, arg.as_int() - 1}; break;
    case Op::Variable: r = {arg.int_at(1), arg.int_at(2)}; break;
    case Op::Bind: r = of(src[0]); break;
    case Op::Shrink:
    case Op::Pad:
      r = of(src[0]);
      if (op == Op::Shrink && src.size() == 1) break;  // past a symbolic size there may be zeros
      r = {std::min<int64_t>(0, src[0].vmin()), std::max<int64_t>(0, src[0].vmax())};
      break;
    case Op::Vec:
    case Op::Stack:
      r = of(src[0]);
      for (const UOp& s : src) r = {std::min(r.lo, s.vmin()), std::max(r.hi, s.vmax())};
      break;
    case Op::Cast: {
      const DType from = src[0].dtype();
      if (!is_float(from) && from != DType::UInt64) r = of(src[0]);
      if (dtype == DType::Bool) r = {r.lo > 0 || r.hi < 0, r.lo != 0 || r.hi != 0};
      break;
    }
    default:
      if (kSameElements.has(op)) r = of(src[0]);
      else if (is_comparison(op)) r = compare(op, src[0], src[1]);
      else if (is_elementwise(op) && op != Op::Bitcast && dtype != DType::UInt64) r = dtype == DType::Bool ? boolean(op, src) : exact(op, src);
  }
  const bool may_wrap = op == Op::Add || op == Op::Sub || op == Op::Mul || op == Op::Neg || op == Op::Shl;
  if (r.lo < full.lo || r.hi > full.hi) r = full;
  // An end of int64 may be where saturation stopped an interval that wraps.
  if (dtype == DType::Int64 && may_wrap && (r.lo == kMin || r.hi == kMax)) r = full;
  *vmin = r.lo;
  *vmax = r.hi;
}

}  // namespace whit::detail
