// How it works. The table has a row an op: a function from (node, gradient of the node) to the gradients of the sources.
// The walk visits nodes users first and adds up what arrives.
//
// Requirements: (1) a row makes nodes of float dtype with the source's shape and dtype; (2) rows never look through a
// source, so that gradients of gradients find every node; (3) 0 * inf must not appear where the value is finite: rows
// choose with WHERE; (4) sums over broadcast axes run in the accumulation dtype.
#include "rules/gradient.h"

#include <algorithm>
#include <mutex>
#include <numbers>
#include <unordered_map>

#include "base/flags.h"
#include "base/lists.h"
#include "base/ptr_map.h"
#include "ir/build.h"

namespace whit {
namespace {

using Grads = std::vector<UOp>;

UOp num(const UOp& like, double v) { return constant(like.dtype(), v); }
bool is_one(const UOp& u) { return u.is_const() && is_float(u.dtype()) && u.arg().to_double() == 1.0; }
UOp times(const UOp& a, const UOp& b) { return is_one(a) ? b : is_one(b) ? a : a * b; }
UOp divided(const UOp& a, const UOp& b) { return alu(Op::Fdiv, {a, b}); }
UOp eq(const UOp& a, const UOp& b) { return alu(Op::CmpEq, {a, b}); }
UOp is_nan(const UOp& a) { return alu(Op::CmpNe, {a, a}); }

}  // namespace

DType sum_dtype(DType dt) {
  const std::string& text = flag::SUM_DTYPE();
  return sum_acc_dtype(dt, text == "float32" ? DType::Float32 : dtype_by_name(text));
}

Dims axes_of(const UOp& reduce) {
  Dims axes;
  for (const Arg& axis : reduce.arg().as_list().subspan(1)) axes.push_back(axis.as_int());
  return axes;
}

UOp sum_axes(const UOp& x, std::span<const int64_t> axes) {
  if (axes.empty()) return x;
  return cast(reduce_axes(cast(x, sum_dtype(x.dtype())), "add", axes), x.dtype());
}

namespace {

// A gradient with the shape of its source: a source without axes was spread over all of them, and a gradient without
// axes stands for equal elements.
UOp fit(const UOp& g, const Shape& want) {
  if (g.shape() == want) return g;
  if (g.shape().empty()) return broadcast_scalar(g, want);
  Dims axes;
  for (size_t i = 0; i < g.shape().size(); ++i) axes.push_back(static_cast<int64_t>(i));
  return shaped(sum_axes(whole(g), axes), Dims());
}

// ---- elementwise

Grads fdiv_row(const UOp& n, const UOp& g) {
  const UOp q = divided(g, n.src(1));
  return {q, -(q * n)};
}
Grads sin_row(const UOp& n, const UOp& g) {
  const UOp half = alu(Op::Sin, {n.src(0) * num(n, 0.5)});
  return {times(g, num(n, 1.0) - half * half * num(n, 2.0))};
}
Grads copy_row(const UOp& n, const UOp& g) {
  const std::string_view from = device_name(n.src(0)->device);
  return {g->device && !from.empty() ? UOp::make(Op::Copy, g.dtype(), {g}, Arg(from)) : g};
}
Grads where_row(const UOp& n, const UOp& g) {
  const UOp c = n.src(0), zero = num(n, 0.0);
  return {{}, where(c, g, zero), where(c, zero, g)};
}

// Ties share; a NaN operand is the result, so it gets all.
Grads extreme_row(const UOp& n, const UOp& g) {
  const bool largest = n.op() == Op::Max;
  const UOp x = n.src(0), y = n.src(1), zero = num(n, 0.0);
  const UOp tie = where(eq(x, y), times(g, num(n, 0.5)), zero);
  const UOp x_wins = (largest ? lt(y, x) : lt(x, y)) | is_nan(x);
  const UOp y_wins = ((largest ? lt(x, y) : lt(y, x)) | is_nan(y)) & logical_not(is_nan(x));
  return {where(x_wins, g, tie), where(y_wins, g, tie)};
}

Grads pow_row(const UOp& n, const UOp& g) {
  const UOp b = n.src(0), e = n.src(1), zero = num(n, 0.0), one = num(n, 1.0);
  const UOp e_zero = eq(e, zero), b_zero = eq(b, zero);
  const UOp safe_e = where(e_zero, one, e);
  const UOp db = where(e_zero, zero, e * alu(Op::Pow, {b, safe_e - one}));
  const UOp ln = alu(Op::Log2, {where(b_zero, one, b)}) * num(n, std::numbers::ln2);
  const UOp at_zero = where(lt(e, zero), num(n, -std::numeric_limits<double>::infinity()), zero);
  return {times(g, db), times(g, where(b_zero, at_zero, n * ln))};
}

UOp floor_of(const UOp& q) {
  const UOp t = alu(Op::Trunc, {q});
  return where(lt(q, t), t - num(q, 1.0), t);
}

// ---- reductions

Grads reduce_row(const UOp& n, const UOp& g) {
  const UOp x = n.src(0);
  const std::string_view monoid = n.arg().at(0).as_str();
  const UOp wide_g = expand(g, x.shape());
  if (monoid == "add") return {wide_g};
  const UOp all = expand(n, x.shape()), one = num(x, 1.0), zero = num(x, 0.0);
  const Dims axes = axes_of(n);
  if (monoid == "mul") {
    // With one zero the other factors' product is the gradient of the zero; with more all is 0.
    const UOp is_zero = eq(x, zero);
    const UOp n_zero = sum_axes(where(is_zero, one, broadcast_scalar(zero, x.shape())), axes);
    const UOp filled = where(is_zero, one, x);
    const UOp rest = reduce_axes(filled, "mul", axes);
    const UOp none = expand(eq(n_zero, zero), x.shape()), single = expand(eq(n_zero, one), x.shape());
    const UOp at_zero = where(is_zero & single, expand(rest, x.shape()), zero);
    // The product of all written through `filled` keeps second derivatives where there is no zero.
    return {times(wide_g, where(none, divided(all, filled), at_zero))};
  }
  const UOp hit = eq(x, all) | is_nan(x);
  const UOp count = sum_axes(where(hit, one, broadcast_scalar(zero, x.shape())), axes);
  return {where(hit, expand(divided(g, count), x.shape()), zero)};
}

// ---- movement

Grads stack_row(const UOp& n, const UOp& g) {
  Grads out;
  for (int64_t k = 0; k < g.shape()[0]; ++k) out.push_back(shaped(cut(g, 0, k, k + 1), n.src(0).shape()));
  return out;
}

// ---- memory

Grads gather_row(const UOp& n, const UOp& g) {
  const UOp x = n.src(0);
  const DType acc = sum_dtype(x.dtype());
  const UOp base = broadcast_scalar(constant(acc, 0.0), x.shape());
  return {cast(scatter(base, n.src(1), cast(g, acc), "add"), x.dtype()), {}};
}

Grads scatter_row(const UOp& n, const UOp& g) {
  const UOp base = n.src(0), index = n.src(1), src = n.src(2);
  if (n.arg().as_str() == "add") return {g, {}, gather(g, index)};
  const UOp base_grad = scatter(g, index, broadcast_scalar(num(g, 0.0), src.shape()), "set");
  // Of several writes to a row only the last one counts: rows remember who wrote them.
  const int64_t n_writes = index.shape().numel();
  const UOp writer = shaped(UOp::make(Op::Lanes, DType::WeakInt, {}, Arg(n_writes)), index.shape());
  const UOp id = cast(writer, DType::Int32);
  const int64_t rows[] = {base.shape()[0]};
  const UOp last = scatter(broadcast_scalar(constant(DType::Int32, -1), rows), index, id, "set");
  Dims wide(index.shape().begin(), index.shape().end());
  while (wide.size() < src.shape().size()) wide.push_back(1);
  const UOp won = expand(shaped(eq(gather(last, index), id), wide), src.shape());
  return {base_grad, {}, where(won, gather(g, index), num(g, 0.0))};
}

// What was stored gets the gradient of its place; what it replaced gets none there.
Grads after_row(const UOp& n, const UOp& g) {
  const UOp x = n.src(0);
  Grads out(n.n_src());
  UOp rest = g;
  for (size_t i = n.n_src(); i-- > 1;) {
    const UOp s = n.src(i);
    if (s.op() != Op::Store) continue;
    const UOp view = s.src(0);
    out[i] = rebuilt_chain(view, x, rest);
    if (view.shape().numel() == x.shape().numel()) {
      rest = {};
      break;
    }
    const UOp place = transpose_chain(view, x, broadcast_scalar(const_bool(true), view.shape()));
    rest = where(place, num(g, 0.0), rest);
  }
  out[0] = rest;
  return out;
}

struct Row {
  OpSet ops;
  Grads (*fn)(const UOp& node, const UOp& grad);
};

constexpr Row kRows[] = {
    {Op::Add, [](const UOp&, const UOp& g) -> Grads { return {g, g}; }},
    {Op::Sub, [](const UOp&, const UOp& g) -> Grads { return {g, -g}; }},
    {Op::Mul, [](const UOp& n, const UOp& g) -> Grads { return {times(g, n.src(1)), times(g, n.src(0))}; }},
    {Op::Neg, [](const UOp&, const UOp& g) -> Grads { return {-g}; }},
    {Op::Recip, [](const UOp& n, const UOp& g) -> Grads { return {-times(g, n * n)}; }},
    {Op::Fdiv, fdiv_row},
    {Op::Sqrt, [](const UOp& n, const UOp& g) -> Grads { return {divided(g, n * num(n, 2.0))}; }},
    {Op::Exp2, [](const UOp& n, const UOp& g) -> Grads { return {times(g, n * num(n, std::numbers::ln2))}; }},
    {Op::Log2, [](const UOp& n, const UOp& g) -> Grads { return {divided(g, n.src(0) * num(n, std::numbers::ln2))}; }},
    {Op::Sin, sin_row},
    {Op::Trunc, [](const UOp& n, const UOp&) -> Grads { return {num(n, 0.0)}; }},
    {Op::Cast, [](const UOp& n, const UOp& g) -> Grads { return {cast(g, n.src(0).dtype())}; }},
    {Op::Contiguous, [](const UOp&, const UOp& g) -> Grads { return {g}; }},
    {Op::ContiguousBackward, [](const UOp&, const UOp& g) -> Grads { return {UOp::make(Op::Contiguous, g.dtype(), {g})}; }},
    {Op::Copy, copy_row},
    {Op::Where, where_row},
    {Op::MulAcc, [](const UOp& n, const UOp& g) -> Grads { return {times(g, n.src(1)), times(g, n.src(0)), g}; }},
    {OpSet{Op::Max, Op::Min}, extreme_row},
    {Op::Pow, pow_row},
    {Op::FloorMod, [](const UOp& n, const UOp& g) -> Grads { return {g, -times(g, floor_of(divided(n.src(0), n.src(1))))}; }},
    {Op::Cmod, [](const UOp& n, const UOp& g) -> Grads { return {g, -times(g, alu(Op::Trunc, {divided(n.src(0), n.src(1))}))}; }},
    {Op::Reduce, reduce_row},
    {OpSet{Op::Reshape, Op::Expand, Op::Permute, Op::Pad, Op::Shrink, Op::Flip, Op::Window, Op::Unwindow, Op::Shard, Op::Unshard},
     [](const UOp& n, const UOp& g) -> Grads { return {transpose_movement(n, g)}; }},
    {Op::Stack, stack_row},
    {Op::Gather, gather_row},
    {Op::Scatter, scatter_row},
    {Op::After, after_row},
    {Op::Store, [](const UOp&, const UOp& g) -> Grads { return {{}, g}; }},
};

// Ops that are flat or integer everywhere, or stop gradients on purpose.
constexpr OpSet kStops{Op::Const,  Op::Buffer, Op::Param, Op::Variable, Op::Bind,    Op::Lanes,
                       Op::Detach, Op::CmpLt,  Op::CmpNe, Op::CmpEq,    Op::Bitcast, Op::Threefry};

struct CustomGradients {
  std::mutex mutex;
  std::vector<CustomGradient> fns;  // id i is fns[i - 1]; they live as long as the process, as nodes may name them
};
CustomGradients& custom_gradients() {
  static CustomGradients* const all = new CustomGradients;
  return *all;
}
}  // namespace

int64_t add_custom_gradient(CustomGradient fn) {
  CustomGradients& all = custom_gradients();
  const std::lock_guard lock(all.mutex);
  all.fns.push_back(std::move(fn));
  return static_cast<int64_t>(all.fns.size());
}

CustomGradient custom_gradient(int64_t id) {
  CustomGradients& all = custom_gradients();
  const std::lock_guard lock(all.mutex);
  return all.fns.at(static_cast<size_t>(id) - 1);
}

bool has_gradient(Op op) {
  const bool has_row = std::ranges::any_of(kRows, [&](const Row& row) { return row.ops.has(op); });
  return has_row || kStops.has(op) || op == Op::Call || op == Op::Tuple || op == Op::GetTuple;
}

bool passes_gradient(const Node* n) {
  if (kStops.has(n->op)) return false;
  return is_float(n->dtype) || n->dtype == DType::Void || n->op == Op::Call || n->op == Op::Tuple;
}

std::vector<UOp> source_gradients(const UOp& node, const UOp& grad) {
  for (const Row& row : kRows)
    if (row.ops.has(node.op())) return row.fn(node, grad);
  raise(ErrorKind::NotImplemented, "[gradient] {} has no gradient", node.op());
}

UOp on_each(const UOp& x, uint16_t device) {
  return x->device || !is_multi(device) ? x : UOp::make(Op::Copy, x.dtype(), {x}, Arg(device_name(device)));
}

UOp transpose_movement(const UOp& n, const UOp& g) {
  const Shape& in = n.src(0).shape();
  switch (n.op()) {
    case Op::Detach: return g;
    case Op::Reshape: return shaped(g, in);
    case Op::Expand: {
      Dims axes;
      for (size_t i = 0; i < in.size(); ++i)
        if (in[i] != n.shape()[i]) axes.push_back(static_cast<int64_t>(i));
      return sum_axes(g, axes);
    }
    case Op::Permute: {
      Dims inverse(in.size(), 0);
      for (size_t i = 0; i < in.size(); ++i) inverse[static_cast<size_t>(n.arg().int_at(i))] = static_cast<int64_t>(i);
      return permuted(g, inverse);
    }
    case Op::Pad:
    case Op::Shrink: {
      Sints begin;
      for (size_t i = 0; i < in.size(); ++i) begin.push_back(box_of(n.node(), i).first);
      return n.op() == Op::Pad ? shrink_to(g, begin, sizes_of(in)) : pad_to(g, begin, sizes_of(in));
    }
    case Op::Flip: return flip(g, n.arg().as_ints());
    case Op::Shard: return unshard(g, n.arg().int_at(0), n.arg().int_at(1));
    case Op::Unshard: return shard(on_each(g, n->device), n.arg().int_at(0), n.arg().int_at(1));
    case Op::Window: return unwindow(g, n.arg().int_at(0), in[static_cast<size_t>(n.arg().int_at(0))], n.arg().int_at(2), n.arg().int_at(3));
    case Op::Unwindow: return window(g, n.arg().int_at(0), in.back(), n.arg().int_at(2), n.arg().int_at(3));
    default: raise(ErrorKind::Internal, "{} is no movement with one source", n.op());
  }
}

UOp transpose_chain(const UOp& chain, const UOp& base, UOp grad) {
  for (UOp n = chain; n != base; n = n.src(0)) grad = transpose_movement(n, grad);
  return grad;
}

namespace {

// Gradients of the wanted arguments of a CALL, by a CALL of the body's gradient.
std::vector<UOp> call_gradients(const UOp& call, const std::unordered_map<int64_t, UOp>& out_grads, const std::vector<size_t>& wanted) {
  const UOp body = call.src(0);
  const size_t n_args = call.n_src() - 1;
  if (call.arg().is_int()) {
    std::vector<UOp> given(body.n_src());
    for (const auto& [k, g] : out_grads) given[static_cast<size_t>(k)] = g;
    std::vector<UOp> out = custom_gradient(call.arg().as_int())(given, call);
    out.resize(n_args);
    return out;
  }
  std::vector<UOp> params, roots, seeds, args;
  for (size_t i = 0; i < n_args; ++i) {
    args.push_back(call.src(i + 1));
    params.push_back(param(static_cast<int64_t>(i), args[i].dtype(), args[i].shape()));
  }
  for (size_t k = 0; k < body.n_src(); ++k) {
    const auto it = out_grads.find(static_cast<int64_t>(k));
    if (it == out_grads.end()) continue;
    roots.push_back(body.src(k));
    seeds.push_back(param(static_cast<int64_t>(args.size()), it->second.dtype(), it->second.shape()));
    args.push_back(it->second);
  }
  std::vector<UOp> targets, results;
  for (const size_t i : wanted) targets.push_back(params[i]);
  const std::vector<UOp> grads = gradients(roots, seeds, targets);
  std::vector<UOp> out(n_args);
  for (const UOp& g : grads)
    if (g) results.push_back(g);
  if (results.empty()) return out;
  const UOp body_grad = UOp::make(Op::Tuple, DType::Void, results);
  const UOp back = UOp::make(Op::Call, DType::Void, with_front(body_grad, args), call.arg() == Arg("precompile both") ? Arg("precompile") : Arg());
  int64_t r = 0;
  for (size_t t = 0; t < wanted.size(); ++t)
    if (const UOp& g = grads[t]) out[wanted[t]] = UOp::make(Op::GetTuple, g.dtype(), {back}, Arg(r++));
  return out;
}

}  // namespace

std::vector<UOp> gradients(std::span<const UOp> roots, std::span<const UOp> grads, std::span<const UOp> targets) {
  const NodeList order = toposort_outside_calls(roots);  // the body of a CALL has its own gradient
  PtrMap<Node, bool> needed;
  auto is_needed = [&](const Node* n) { return needed.find(n) != nullptr; };
  for (const UOp& t : targets) needed[t.node()] = true;
  for (const Node* n : order)
    if (passes_gradient(n) && std::ranges::any_of(n->src(), is_needed)) needed[n] = true;
  PtrMap<Node, UOp> sums;
  std::unordered_map<const Node*, std::unordered_map<int64_t, UOp>> tuple_sums;
  const auto add_to = [](UOp& have, const UOp& g) { have = have ? have + g : g; };
  const auto give = [&](const Node* to, const UOp& g) { add_to(sums[to], g); };
  for (size_t i = 0; i < roots.size(); ++i) give(roots[i].node(), grads[i]);
  for (size_t i = order.size(); i-- > 0;) {
    const Node* const n = order[i];
    if (!is_needed(n) || !passes_gradient(n)) continue;
    const UOp node(n);
    if (n->op == Op::Call) {
      const auto it = tuple_sums.find(n);
      if (it == tuple_sums.end()) continue;
      std::vector<size_t> wanted;
      for (size_t k = 1; k < n->n_src; ++k)
        if (is_needed(n->src_begin()[k])) wanted.push_back(k - 1);
      const std::vector<UOp> gs = call_gradients(node, it->second, wanted);
      for (size_t k = 0; k < gs.size(); ++k)
        if (gs[k]) give(n->src_begin()[k + 1], gs[k]);
      continue;
    }
    const UOp* const sum = sums.find(n);
    if (!sum) continue;
    const UOp g = *sum;
    if (n->op == Op::GetTuple) {
      const UOp from = node.src(0);
      if (from.op() == Op::Tuple) give(from.src(static_cast<size_t>(n->arg.as_int())).node(), g);
      else add_to(tuple_sums[from.node()][n->arg.as_int()], g);
      continue;
    }
    const std::vector<UOp> gs = source_gradients(node, g);
    for (size_t k = 0; k < gs.size(); ++k) {
      const Node* const s = n->src_begin()[k];
      if (!gs[k] || !is_needed(s)) continue;
      give(s, s->op == Op::Store ? gs[k] : fit(gs[k], s->shape));
    }
  }
  return mapped(targets, [&](const UOp& t) { return sums[t.node()]; });
}

}  // namespace whit
