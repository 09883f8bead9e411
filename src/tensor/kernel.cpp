// custom_kernel: loops as tensor operations.
//
// How it works. Each range of a nest is an axis, and a value has size 1 in the axes that it does not depend on. A RANGE is
// LANES along its axis, a LOAD a GATHER from the flat tensor, a REDUCE one over axes, and the STORE a SCATTER; or a
// reshape, when its index counts the elements of the whole buffer in the order of the ranges.
#include <algorithm>
#include <unordered_map>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

class Nest {
 public:
  Nest(const UOp& end, const std::vector<Tensor>& flat) : flat_(flat) {
    for (size_t i = 1; i < end.n_src(); ++i) ranges_.push_back(end.src(i).node());
    for (const Node* n : toposort(end))
      if (n->op == Op::Range && axis_of(n) == ranges_.size()) ranges_.push_back(n);
    for (const Node* n : toposort(end))
      if (n->op != Op::End && n->op != Op::Store && n->op != Op::Param) values_.emplace(n, lift(n));
  }

  // Changes the flat tensor that the nest stores to.
  void store_into(std::vector<Tensor>& after, const UOp& end) const {
    const UOp store = end.src(0), index = store.src(0);
    const size_t slot = slot_of(index.node());
    const size_t n_out = end.n_src() - 1;
    Dims dims(ranges_.size(), 1), counted;
    UOp in_order = idx(0);
    for (size_t i = 0; i < n_out; ++i) {
      dims[i] = range_size(ranges_[i]);
      in_order = in_order * dims[i] + UOp(ranges_[i]);
    }
    Tensor& old = after[slot];
    const Tensor value = broadcast_to("custom_kernel", value_of(store.src(1).node()), dims).flatten();
    WHIT_USER(value.dtype() == old.dtype(), Runtime, "[custom_kernel] a {} is stored to tensor {}, which is {}", value.dtype(), slot, old.dtype());
    if (index.n_src() == 2 && index.src(1) == in_order && detail::prod(dims) == old.numel()) {
      old = value;
      return;
    }
    Tensor where = at(index.src(1).node());
    if (index.n_src() > 2) where = at(index.src(2).node()).where(where, -1);
    const UOp place = broadcast_to("custom_kernel", where.cast(DType::Int64), dims).flatten().uop();
    old = wrap(UOp::make(Op::Scatter, old.dtype(), {old.uop(), place, value.uop()}, Arg("set")));
  }

 private:
  size_t axis_of(const Node* range) const { return static_cast<size_t>(std::ranges::find(ranges_, range) - ranges_.begin()); }
  const Tensor& at(const Node* n) const { return values_.at(n); }
  // An INDEX that arithmetic uses is read.
  Tensor value_of(const Node* n) const { return n->op == Op::Index ? read(n) : at(n); }
  Tensor read(const Node* index) const {
    const Tensor x = flat_[slot_of(index)];
    const Tensor v = wrap(UOp::make(Op::Gather, x.dtype(), {x.uop(), at(index->src_begin()[1]).cast(DType::Int64).uop()}));
    return index->n_src > 2 ? at(index->src_begin()[2]).where(v, Tensor::constant(0, x.dtype())) : v;
  }
  size_t slot_of(const Node* index) const {
    const Node* p = index->src_begin()[0];
    WHIT_USER(index->op == Op::Index && p->op == Op::Param, NotImplemented, "[custom_kernel] an access to {}; expected INDEX of a placeholder",
              p->op);
    const auto slot = static_cast<size_t>(p->arg.int_at(0));
    WHIT_USER(slot < flat_.size(), Index, "[custom_kernel] placeholder {} of {}", slot, flat_.size());
    return slot;
  }

  Tensor lift(const Node* n) {
    const Dims ones(ranges_.size(), 1);
    const UOp node(n);
    switch (n->op) {
      case Op::Const: return wrap(shaped(node, ones));
      case Op::Range: return Tensor::arange(range_size(n)).cast(n->dtype).reshape(along(ranges_.size(), axis_of(n), range_size(n)));
      case Op::Index: return {};
      case Op::Load: return read(n->src_begin()[0]);
      case Op::Cast: return value_of(n->src_begin()[0]).cast(n->dtype);
      case Op::Reduce: {
        const Tensor x = value_of(n->src_begin()[0]);
        Dims dims(x.shape().begin(), x.shape().end()), axes;
        for (size_t i = 1; i < n->n_src; ++i) {
          axes.push_back(static_cast<int64_t>(axis_of(n->src_begin()[i])));
          dims[static_cast<size_t>(axes.back())] = range_size(n->src_begin()[i]);
        }
        std::ranges::sort(axes);
        return reduce_tensor(broadcast_to("custom_kernel", x, dims), n->arg.as_list()[0].as_str(), axes, true);
      }
      default: break;
    }
    WHIT_USER(is_elementwise(n->op), NotImplemented, "[custom_kernel] a kernel with {}; expected loads, arithmetic, reductions and one store a nest",
              n->op);
    std::vector<UOp> src;
    Shape dims = ones;
    for (const Node* s : n->src()) dims = broadcast_shapes("custom_kernel", {&dims, &value_of(s).shape()});
    for (const Node* s : n->src()) src.push_back(broadcast_to("custom_kernel", value_of(s), dims).uop());
    return wrap(alu(n->op, src));
  }

  const std::vector<Tensor>& flat_;
  std::vector<const Node*> ranges_;  // those of the END first
  std::unordered_map<const Node*, Tensor> values_;
};

}  // namespace

std::vector<Tensor> Tensor::custom_kernel(std::span<const Tensor> tensors, const KernelFn& kernel, int64_t gradient) {
  std::vector<UOp> params;
  std::vector<Tensor> flat, out;
  for (const Tensor& t : tensors) {
    const Shape& s = must_be_defined("custom_kernel", t).shape();
    params.push_back(param(static_cast<int64_t>(params.size()), t.dtype(), s.empty() ? Shape{1} : s));
    flat.push_back(t.flatten());
  }
  const UOp sink = kernel(params);
  WHIT_USER(sink.op() == Op::Sink && sink.n_src() > 0, Type, "[custom_kernel] the function gave {}; expected a SINK", sink.op());
  std::vector<Tensor> after = flat;
  for (const UOp& end : sink.srcs()) {
    WHIT_USER(end.op() == Op::End && end.src(0).op() == Op::Store, Type, "[custom_kernel] the SINK holds {}; expected END(STORE(..), ranges..)",
              end.op());
    Nest(end, flat).store_into(after, end);
  }
  for (size_t i = 0; i < tensors.size(); ++i) out.push_back(after[i].reshape(tensors[i].shape()));
  return gradient ? make_call(tensors, out, true, gradient) : out;
}

}  // namespace whit
