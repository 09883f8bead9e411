#include "rules/instance.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace whit::test {

using pat::PatKind;
using pat::PatNode;

namespace {
constexpr DType kTypes[] = {DType::Bool,    DType::WeakInt,  DType::WeakInt, DType::Int8,    DType::UInt8,    DType::Int16,
                            DType::Int32,   DType::UInt32,   DType::Int64,   DType::UInt64,  DType::Float32,  DType::Float16,
                            DType::Float64, DType::BFloat16, DType::Fp8E4M3, DType::Fp8E5M2, DType::WeakFloat};
constexpr DType kStrongTypes[] = {DType::Bool,    DType::Int8,    DType::UInt8,    DType::Int16,   DType::UInt16,      DType::Int32,
                                  DType::UInt32,  DType::Int64,   DType::UInt64,   DType::Float32, DType::Float64,     DType::Float16,
                                  DType::Fp8E4M3, DType::Fp8E5M2, DType::BFloat16, DType::Float32, DType::Fp8E4M3FNUZ, DType::Fp8E5M2FNUZ};

// The dtypes that a BITCAST turns `dtype` into.
pat::DTypes same_width(DType dtype) {
  pat::DTypes set = 0;
  for (const DType dt : kStrongTypes)
    if (dt != DType::Bool && n_bytes(dt) == n_bytes(dtype)) set |= pat::bit(dt);
  return set;
}

}  // namespace

DType Instances::pick(pat::DTypes allowed) {
  for (int tries = 0; tries < 200; ++tries) {
    const DType dt = strong_ ? kStrongTypes[below(std::ssize(kStrongTypes))] : kTypes[below(std::ssize(kTypes))];
    if (allowed & pat::bit(dt)) return dt;
  }
  return DType::Void;
}

UOp Instances::random_constant(DType dtype) {
  if (is_float(dtype)) {
    if (strong_ && chance(40)) return constant(dtype, chance(50) ? std::numbers::log2e : -std::numbers::log2e);
    const double special[] = {0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -4.0, 3.0, 0.1, INFINITY, -INFINITY, NAN, 1e-40, 65504.0};
    return constant(dtype, special[below(std::ssize(special))]);
  }
  if (dtype == DType::Bool) return const_bool(chance(50));
  if (strong_ && chance(20)) return constant(dtype, int64_t{1} << below(info(dtype).bits - 1));
  const int64_t common[] = {0, 1, -1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 28, -2, -3, 100};
  return constant(dtype, common[below(std::ssize(common))]);
}

UOp Instances::bounded(DType dtype) {
  const int64_t lo = is_unsigned(dtype) ? below(20) : below(40) - 20, hi = chance(15) ? lo : lo + below(30);
  return UOp::make(Op::Variable, dtype, {}, Arg::list({Arg(fmt::format("v{}", n_leaves_++)), lo, hi}));
}

UOp Instances::index_expression() {
  if (chance(20)) return bounded(DType::WeakInt);
  const int64_t sizes[] = {2, 3, 4, 5, 7, 8, 12, 28, 32, 100};
  auto loop = [&] { return range(sizes[below(std::ssize(sizes))], below(5), AxisType::Loop); };
  if (chance(30)) return loop();
  const int64_t factors[] = {1, 1, 2, 3, 4, 6, 7, 8, 12, 24, 28, 56, -1, -2, -4};
  UOp sum;
  for (int64_t left = 1 + below(3); left > 0; --left) {
    UOp term = loop();
    if (chance(15)) term = floor_mod(term, 1 + below(8));
    if (chance(15)) term = floor_div(term, 1 + below(8));
    term = term * factors[below(std::ssize(factors))];
    sum = sum ? sum + term : term;
  }
  if (chance(40)) sum = sum + (below(60) - 20);
  if (chance(10)) sum = floor_mod(sum, 2 + below(30));
  if (chance(10)) sum = floor_div(sum, 2 + below(30));
  return sum;
}

UOp Instances::leaf(DType dtype) {
  if (dtype == DType::WeakInt) return index_expression();
  if (strong_ && dtype == DType::Bool) return param(n_leaves_++, dtype, {});
  if (dtype == DType::Bool && chance(30)) {  // often about the same loop
    const UOp few = range(12, below(2), AxisType::Loop);
    return chance(50) ? lt(few, below(12)) : ge(few, below(12));
  }
  if (dtype == DType::Bool && chance(40)) return lt(index_expression(), below(40));
  if (dtype == DType::Bool && chance(20)) return ge(index_expression(), below(40));
  if (is_int(dtype) && chance(40)) return bounded(dtype);
  return param(n_leaves_++, dtype, {});
}

const PatNode* Instances::build(const PatNode* a, DType dtype, UOp* out) {
  *out = {};
  if ((a->dtypes & pat::bit(dtype)) == 0) return nullptr;
  const bool reused = a->slot != pat::kNoSlot && captured_.contains(a->slot);
  if (reused) {
    *out = captured_[a->slot];
    return (*out).dtype() == dtype && a->kind != PatKind::Node ? a + 1 : nullptr;
  }
  auto done = [&](const PatNode* next) {
    if (a->slot != pat::kNoSlot) captured_[a->slot] = *out;
    return next;
  };
  switch (a->kind) {
    case PatKind::Any: *out = chance(8) ? random_constant(dtype) : leaf(dtype); return done(a + 1);
    case PatKind::Const:
    case PatKind::AnyConst: *out = random_constant(dtype); return done(a + 1);
    case PatKind::IntLit: *out = constant(dtype, a->imm); return (*out).arg().to_int() == a->imm ? a + 1 : nullptr;
    case PatKind::FloatLit: *out = constant(dtype, __builtin_bit_cast(double, a->imm)); return a + 1;
    case PatKind::Node: break;
  }
  SmallVec<Op, 40> choices;
  for (int o = 0; o < kNumOps; ++o)
    if (a->ops.has_bit(static_cast<unsigned>(o))) choices.push_back(static_cast<Op>(o));
  const Op op = choices[static_cast<size_t>(below(std::ssize(choices)))];
  if (op == Op::Range) {
    *out = range(1 + below(3), below(5), AxisType::Loop);
    return done(a + 1);
  }
  if (op == Op::Variable) {
    *out = bounded(dtype);
    return done(a + 1);
  }
  if (op == Op::Index) {
    UOp flat, gate;
    const PatNode* next = a + 2;
    if (!(next = build(next, DType::WeakInt, &flat)) || !(next = build(next, DType::Bool, &gate))) return nullptr;
    const UOp memory = param(n_leaves_++, dtype, Dims{1000});
    if (a[1].slot != pat::kNoSlot) captured_[a[1].slot] = memory;
    *out = UOp::make(Op::Index, dtype, {memory, flat, gate});
    return done(next);
  }
  if (!is_elementwise(op) && op != Op::Load) return nullptr;
  if (op == Op::Bitcast && (is_weak(dtype) || dtype == DType::Bool)) return nullptr;
  if (is_comparison(op) && dtype != DType::Bool) return nullptr;
  const bool free_arity = a->has(PatNode::kRest) || a->has(PatNode::kAll);
  const int arity = free_arity ? info(op).n_src : a->n_src;
  if (arity != info(op).n_src) return nullptr;
  DType operand = dtype;
  if (is_comparison(op) || op == Op::Cast || op == Op::Bitcast) {
    pat::DTypes allowed = op == Op::Bitcast ? same_width(dtype) : pat::kAnyDType;
    const PatNode* s = a + 1;
    for (int n = 0; n < a->n_src && !a->has(PatNode::kAll); ++n) {
      allowed &= s->dtypes;
      if (s->kind == PatKind::Node) break;
      ++s;
    }
    operand = pick(allowed);
    if (operand == DType::Void) return nullptr;
  }
  SmallVec<UOp, 3> src;
  const PatNode* next = a + 1;
  for (int n = 0; n < arity; ++n) {
    const DType want = op == Op::Where && n == 0 ? DType::Bool : operand;
    UOp made;
    if (a->has(PatNode::kAll)) {
      if (!build(a + 1, want, &made)) return nullptr;
    } else if (n >= a->n_src) {
      made = chance(30) ? random_constant(want) : leaf(want);
    } else if (!(next = build(next, want, &made))) {
      return nullptr;
    }
    src.push_back(std::move(made));
  }
  if (a->has(PatNode::kAll)) next = a + 2;
  // What no graph has: arithmetic that its dtype does not know.
  const bool fl = is_float(operand), integer = is_int(operand);
  switch (op) {
    case Op::Recip:
    case Op::Sqrt:
    case Op::Exp2:
    case Op::Log2:
    case Op::Sin:
    case Op::Trunc:
    case Op::Fdiv:
      if (!fl) return nullptr;
      break;
    case Op::Cdiv:
    case Op::FloorDiv:
    case Op::Shl:
    case Op::Shr:
      if (!integer) return nullptr;
      break;
    case Op::Cmod:
    case Op::FloorMod:
    case Op::Pow:
    case Op::Neg:
    case Op::Sub:
    case Op::MulAcc:
      if (!integer && !fl) return nullptr;
      break;
    case Op::And:
    case Op::Or:
    case Op::Xor:
      if (fl) return nullptr;
      break;
    case Op::Threefry:
      if (operand != DType::UInt64) return nullptr;
      break;
    default: break;
  }
  *out = UOp::make(op, dtype, src);
  return done(next);
}

UOp Instances::make(const Pat& lhs) {
  captured_.clear();
  n_leaves_ = 0;
  const DType dtype = pick(lhs.node[0].dtypes);
  if (dtype == DType::Void) return {};
  UOp out;
  return build(lhs.node, dtype, &out) ? out : UOp();
}

Scalar Instances::random_value(const Node* n) {
  const DType dtype = n->dtype;
  if (is_float(dtype)) {
    const double special[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, NAN, 1e-45, -1e-40, 3e38, 0.5, 65504, 1e300};
    if (strong_ && chance(30)) {
      const uint64_t bits = random_();
      const Scalar any = read_element(dtype, &bits, 0);
      return std::isnan(any.f) ? Scalar::of(dtype, NAN) : any;  // libm tells signalling NaNs apart, whit does not
    }
    if (strong_ && chance(15)) {  // next to what lies between two narrow floats
      const double off = static_cast<double>(below(3) - 1) * 0x1p-40;
      return Scalar::of(dtype, std::ldexp(static_cast<double>(below(1024) - 512) + off, static_cast<int>(below(30)) - 20));
    }
    if (chance(45)) return Scalar::of(dtype, special[below(std::ssize(special))]);
    return Scalar::of(dtype, std::ldexp(static_cast<double>(below(1 << 20)) - (1 << 19), static_cast<int>(below(24)) - 20));
  }
  const int64_t lo = n->vmin, hi = n->vmax;
  if (n->op == Op::Param && dtype != DType::Bool) {
    if (chance(30)) return Scalar::of(dtype, chance(50) ? lo : hi);
    if (strong_ && chance(30)) return Scalar::of(dtype, ((below(1024) - 512) << below(54)) + below(3) - 1);
    if (chance(50)) return Scalar::of(dtype, below(20) - 10);
    return Scalar::of(dtype, static_cast<int64_t>(random_()));
  }
  if (chance(20)) return Scalar::of(dtype, chance(50) ? lo : hi);
  return Scalar::of(dtype, lo + below(hi - lo + 1));
}

Scalar evaluate(const UOp& root, Values& values, Instances& random) {
  std::unordered_map<const Node*, Scalar> done;
  for (const Node* n : toposort(root)) {
    Scalar out;
    if (n->op == Op::Const) {
      out = scalar_of(UOp(n));
    } else if (n->op == Op::Param || n->op == Op::Variable || n->op == Op::Range) {
      const auto found = values.find(n);
      out = found != values.end() ? found->second : values.emplace(n, random.random_value(n)).first->second;
    } else if (n->op == Op::Index) {
      const bool open = n->n_src < 3 || done.at(n->src_begin()[2]).truthy();
      out = Scalar::of(DType::WeakInt, open ? done.at(n->src_begin()[1]).i : int64_t{-1});
    } else if (n->op == Op::Load) {
      const int64_t at = done.at(n->src_begin()[0]).i;
      out = Scalar::of(n->dtype, at == -1 ? int64_t{0} : at * 7 % 19 + 1);
    } else if (n->op == Op::Vec) {
      continue;
    } else if (n->op == Op::Lane) {
      out = done.at(n->src_begin()[0]->src_begin()[n->arg.as_int()]);
    } else {
      SmallVec<Scalar, 3> src;
      for (const Node* s : n->src()) src.push_back(done.at(s));
      out = eval_scalar(n->op, n->dtype, src);
    }
    done.emplace(n, out);
  }
  return done.at(root.node());
}

bool same_value(const Scalar& a, const Scalar& b) {
  if (a.dtype != b.dtype) return false;
  if (!is_float(a.dtype)) return a.i == b.i;
  if (std::isnan(a.f) || std::isnan(b.f)) return std::isnan(a.f) && std::isnan(b.f);
  return std::memcmp(&a.f, &b.f, sizeof a.f) == 0;
}

std::string show(const Scalar& a) { return is_float(a.dtype) ? fmt::format("{}", a.f) : fmt::format("{}", a.i); }

int64_t cost(const UOp& root) {
  int64_t total = 0;
  for (const Node* n : toposort(root)) switch (n->op) {
      case Op::Const: break;
      case Op::FloorDiv:
      case Op::FloorMod:
      case Op::Cdiv:
      case Op::Cmod:
      case Op::Fdiv:
      case Op::Recip: total += 6; break;
      default: ++total;
    }
  return total;
}

}  // namespace whit::test
