// How it works. The walk visits nodes sources first. A node none of whose sources is batched stays as it is; another is
// made again by the row of its op from sources with the batch axis in front.
#include "rules/batch.h"

#include <array>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "base/lists.h"
#include "base/ptr_map.h"
#include "ir/build.h"
#include "ir/remake.h"
#include "rules/gradient.h"

namespace whit {
namespace {

// What a row sees: the node, what became of each source, and which of them have the batch axis.
struct Row {
  const UOp& node;
  std::vector<UOp> src;
  std::vector<bool> has_axis;
  const UOp& iota;
  int64_t n = iota.shape()[0];
};
using RowFn = UOp (*)(const Row&);

UOp repeated(const UOp& x, int64_t n) { return expand(reshape(x, with_front(1, x.shape())), with_front(n, x.shape())); }

// Source i with the batch axis.
UOp full(const Row& r, size_t i) { return r.has_axis[i] ? r.src[i] : repeated(r.src[i], r.n); }

UOp same_arg(const Row& r, std::span<const UOp> src) { return UOp::make(r.node.op(), r.node.dtype(), src, r.node.arg()); }

// Scalars stay scalars where they can: they are spread over any shape.
UOp elementwise(const Row& r) {
  const Shape& shape = r.node.shape();
  std::vector<UOp> src;
  for (size_t i = 0; i < r.src.size(); ++i) {
    const Shape& from = r.node.src(i).shape();
    UOp x = r.has_axis[i] || from.empty() ? r.src[i] : full(r, i);
    if (r.has_axis[i] && from.empty() && !shape.empty()) {
      Sints sizes = sizes_of(shape), begin(shape.size() + 1, 0);
      sizes.insert(sizes.begin(), r.n);
      x = shrink_to(expand(reshape(x, along(shape.size() + 1, 0, r.n)), with_front(r.n, shape)), begin, sizes);
    }
    src.push_back(std::move(x));
  }
  return same_arg(r, src);
}

UOp with_arg(const Row& r, const Arg& arg) { return UOp::make(r.node.op(), r.node.dtype(), r.src, arg); }
UOp unary(const Row& r) { return with_arg(r, r.node.arg()); }

// ---- movement: the first axis stays what it is
UOp with_dims(const Row& r) { return with_arg(r, with_front(r.n, r.node.arg().as_ints())); }
UOp with_pair(const Row& r, int64_t begin, int64_t end) {
  Dims arg{begin, end};
  const auto old = r.node.arg().as_ints();
  arg.append(old.begin(), old.end());
  return with_arg(r, arg);
}
UOp pad_row(const Row& r) { return with_pair(r, 0, 0); }
UOp shrink_row(const Row& r) { return with_pair(r, 0, r.n); }
Dims shifted(std::span<const int64_t> axes) {
  Dims out;
  for (const int64_t a : axes) out.push_back(a + 1);
  return out;
}
UOp permute_row(const Row& r) { return with_arg(r, with_front(0, shifted(r.node.arg().as_ints()))); }
UOp flip_row(const Row& r) { return flip(r.src[0], shifted(r.node.arg().as_ints())); }
UOp window_row(const Row& r) {
  const auto old = r.node.arg().as_ints();
  Dims arg(old.begin(), old.end());
  ++arg[0];
  return with_arg(r, arg);
}
// x with axis `from` put first.
UOp to_front(const UOp& x, size_t from) { return permute(x, moved_axis(x.shape().size(), from, 0)); }
UOp tuple_row(const Row& r) {
  std::vector<UOp> src;
  for (size_t i = 0; i < r.src.size(); ++i) src.push_back(full(r, i));
  return same_arg(r, src);
}
UOp stack_row(const Row& r) { return to_front(tuple_row(r), 1); }
UOp reduce_row(const Row& r) { return reduce_axes(r.src[0], r.node.arg().at(0).as_str(), shifted(axes_of(r.node))); }

// ---- access by index: examples lie one after the other on the indexed axis
UOp rows_of_all(const UOp& x) { return reshape(x, with_front(x.shape()[0] * x.shape()[1], std::span<const int64_t>(x.shape()).subspan(2))); }
// Index i of example b becomes b * n_rows + i; one outside [0, n_rows) stays outside everything.
UOp index_of_all(const Row& r, const UOp& index, int64_t n_rows) {
  const UOp start = expand(reshape(r.iota * n_rows, along(index.shape().size(), 0, r.n)), index.shape());
  const UOp i = cast(index, DType::Int64);
  return where(ge(i, 0) & lt(i, n_rows), i + start, constant(DType::Int64, -1));
}
UOp gather_row(const Row& r) {
  if (!r.has_axis[0]) return same_arg(r, r.src);
  if (r.has_axis[1]) {
    const UOp index = index_of_all(r, r.src[1], r.src[0].shape()[1]);
    return gather(rows_of_all(r.src[0]), index);
  }
  // One index for all examples: they go behind the indexed axis, and come to the front again.
  return to_front(gather(to_front(r.src[0], 1), r.src[1]), r.src[1].shape().size());
}
UOp scatter_row(const Row& r) {
  const UOp base = full(r, 0), index = index_of_all(r, full(r, 1), base.shape()[1]);
  return reshape(same_arg(r, std::array{rows_of_all(base), index, full(r, 2)}), base.shape());
}

// ---- state: AFTER(buffer, STORE(view, value)); a state's value is its flat memory as (n, elements)
UOp store_row(const Row& r) {
  WHIT_USER(r.has_axis[0], Runtime,
            "[vmap] a value that differs between the {} examples is stored into a tensor of shape {} that was made "
            "outside the function; expected one that is made inside",
            r.n, r.node.src(0).shape());
  return UOp::make(Op::Store, DType::Void, {r.src[0], full(r, 1)});
}
UOp state_of(const UOp& memory, int64_t n) { return reshape(memory, std::array{n, memory.shape()[0] / n}); }
UOp after_row(const Row& r) {
  std::vector<UOp> src = r.src;
  const bool is_memory = src[0].op() == Op::Reshape && (src[0].src(0).op() == Op::Buffer || src[0].src(0).op() == Op::After);
  if (is_memory) src[0] = src[0].src(0);
  const UOp state = UOp::make(Op::After, r.node.dtype(), src);
  return is_memory ? state_of(state, r.n) : state;
}

UOp call_row(const Row& r);

constexpr struct {
  OpSet ops;
  RowFn fn;
} kTable[] = {
    {OpSet{Op::Reshape, Op::Expand}, with_dims},
    {Op::Permute, permute_row},
    {Op::Pad, pad_row},
    {Op::Shrink, shrink_row},
    {Op::Flip, flip_row},
    {OpSet{Op::Window, Op::Unwindow}, window_row},
    {Op::Stack, stack_row},
    {Op::Gather, gather_row},
    {Op::Scatter, scatter_row},
    {Op::Reduce, reduce_row},
    {OpSet{Op::Contiguous, Op::ContiguousBackward, Op::Detach, Op::Copy, Op::Bitcast, Op::GetTuple}, unary},
    {Op::Store, store_row},
    {Op::After, after_row},
    {Op::Tuple, tuple_row},
    {Op::Call, call_row},
    {kElementwise, elementwise},  // after those that have a row of their own
};
RowFn row_of(Op op) {
  for (const auto& [ops, fn] : kTable)
    if (ops.has(op)) return fn;
  return nullptr;
}

int64_t buffer_id(const Node* n) { return n->arg.int_at(0); }

const Node* memory_below(const Node* n) {
  while (n->op == Op::After || is_movement(n->op)) n = n->src_begin()[0];
  return n;
}

// Which nodes depend on a leaf. Memory does, with all its states, when a value that depends on one is stored into it;
// that may make other values depend, so it is asked again until nothing changes.
PtrMap<Node, bool> dependent_nodes(const NodeList& order, const Replacements& leaves, int64_t first) {
  PtrMap<Node, bool> depends;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Node* n : order) {
      bool any = leaves.contains(n) || depends.find(n);
      for (size_t i = n->op == Op::Call ? 1 : 0; i < n->n_src; ++i) any |= depends.find(n->src_begin()[i]) != nullptr;
      if (!any) continue;
      depends[n] = true;
      if (n->op != Op::Store) continue;
      const Node* memory = memory_below(n->src_begin()[0]);
      if (memory->op != Op::Buffer || buffer_id(memory) <= first || depends.find(memory)) continue;
      depends[memory] = changed = true;
    }
  }
  return depends;
}

// Memory for all examples, with what the memory holds now.
UOp memory_of_all(const UOp& memory, int64_t n) {
  UOp all = buffer(memory.dtype(), n * memory.shape()[0], device_name(memory->device));
  if (payload(memory)) {
    const UOp old = reshape(repeated(memory, n), all.shape());
    all = UOp::make(Op::After, all.dtype(), {all, UOp::make(Op::Store, DType::Void, {all, old})});
  }
  return state_of(all, n);
}

}  // namespace

bool has_batch_rule(Op op) { return op == Op::Buffer || row_of(op); }

UOp tracer(DType dtype, std::span<const int64_t> dims, std::string_view device) {
  const int64_t id = -buffer_id(buffer(DType::Bool, 0, "").node());
  const UOp leaf = UOp::make(Op::Buffer, dtype, {}, Arg::list({id, device, Shape(dims).numel()}));
  return UOp::make(Op::Reshape, dtype, {leaf}, Arg(dims));
}

UOp tracer(const UOp& like) {
  WHIT_USER(!like.shape().is_symbolic(), NotImplemented, "a transform of a function with a value of shape {}; expected sizes that are numbers",
            like.shape());
  return tracer(like.dtype(), like.shape(), device_name(like->device));
}

void replace_tracer(Replacements& map, const UOp& tracer, const UOp& value) {
  const UOp leaf = tracer.src(0);
  const int64_t n = leaf.shape()[0];
  map.emplace(leaf.node(), value.shape() == tracer.shape() ? reshape(value, leaf.shape()) : reshape(value, std::array{value.shape()[0], n}));
}

bool has_tracer(const UOp& graph) {
  for (const Node* n : toposort(graph))
    if (n->op == Op::Buffer && buffer_id(n) < 0) return true;
  return false;
}

std::vector<UOp> batched(std::span<const UOp> roots, const Replacements& leaves, const UOp& iota, const UOp& first) {
  const int64_t n = iota.shape()[0];
  const NodeList order = toposort_outside_calls(roots);
  PtrMap<Node, bool> depends = dependent_nodes(order, leaves, -buffer_id(first.src(0).node()));
  Remade done;
  for (const Node* at : order) {
    if (!depends.find(at)) continue;
    const UOp node(at);
    if (const auto leaf = leaves.find(at); leaf != leaves.end()) {
      done.set(at, leaf->second);
    } else if (at->op == Op::Buffer) {
      done.set(at, memory_of_all(node, n));
    } else {
      Row row{.node = node, .src = done.src(at), .has_axis = {}, .iota = iota};
      for (const Node* s : at->src()) row.has_axis.push_back(done.has(s));
      const RowFn fn = row_of(at->op);
      WHIT_USER(fn, NotImplemented, "[vmap] {} has no row in the batch table", at->op);
      done.set(at, fn(row));
    }
  }
  return mapped(roots, [&](const UOp& r) { return done.has(r.node()) ? done.of(r.node()) : repeated(r, n); });
}

namespace {

// The gradient of a batched CALL by the maker of the call, who sees one example. `ones` has a tracer for each argument
// with the batch axis, null for the others.
CustomGradient gradient_of_all(int64_t id, const UOp& body, std::vector<UOp> ones, const UOp& iota) {
  return [=](std::span<const UOp> out_grads, const UOp& call) {
    Replacements leaves;
    const UOp first = tracer(iota);
    std::vector<UOp> grads, src{body}, given;
    for (size_t i = 0; i < out_grads.size(); ++i) {
      grads.push_back(out_grads[i] ? tracer(body.src(i)) : UOp());
      if (out_grads[i]) replace_tracer(leaves, grads[i], out_grads[i]);
    }
    for (size_t i = 0; i < ones.size(); ++i) {
      src.push_back(ones[i] ? ones[i] : call.src(i + 1));
      if (ones[i]) replace_tracer(leaves, ones[i], call.src(i + 1));
    }
    std::vector<UOp> out = custom_gradient(id)(grads, UOp::make(Op::Call, DType::Void, src, Arg(id)));
    for (const UOp& g : out)
      if (g) given.push_back(g);
    given = batched(given, leaves, iota, first);
    size_t next = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (!out[i]) continue;
      const Shape shape = out[i].shape();
      out[i] = given[next++];
      // An argument that all examples share gets the sum.
      if (!ones[i]) out[i] = reshape(sum_axes(out[i], std::array<int64_t, 1>{0}), shape);
    }
    return out;
  };
}

// Equal calls share one: gradients are registered for the life of the process.
int64_t batched_gradient(int64_t id, const Row& r) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::tuple<int64_t, const Node*, std::vector<bool>, int64_t>, int64_t>;
  const std::lock_guard lock(mutex);
  int64_t& all = known[{id, r.node.src(0).node(), r.has_axis, r.n}];  // the entry keeps the body alive
  if (all) return all;
  std::vector<UOp> ones;
  for (size_t i = 1; i < r.src.size(); ++i) ones.push_back(r.has_axis[i] ? tracer(r.node.src(i)) : UOp());
  return all = add_custom_gradient(gradient_of_all(id, r.node.src(0), std::move(ones), r.iota));
}

UOp call_row(const Row& r) {
  const UOp body = r.node.src(0);
  Replacements leaves;
  for (size_t i = 1; i < r.src.size(); ++i) {
    if (!r.has_axis[i]) continue;
    const UOp& one = r.node.src(i);
    const auto slot = static_cast<int64_t>(i) - 1;
    leaves.emplace(param(slot, one.dtype(), one.shape()).node(), param(slot, one.dtype(), r.src[i].shape()));
  }
  std::vector<UOp> src = r.src;
  src[0] = UOp::make(Op::Tuple, DType::Void, batched(body.srcs(), leaves, r.iota, tracer(r.iota)));
  const Arg& arg = r.node.arg();
  return UOp::make(Op::Call, DType::Void, src, arg.is_int() ? Arg(batched_gradient(arg.as_int(), r)) : arg);
}

}  // namespace
}  // namespace whit
