// gradient and backward; functions as nodes.
#include <algorithm>
#include <unordered_map>

#include "base/lists.h"
#include "base/profile.h"
#include "base/ptr_map.h"
#include "engine/buffers.h"
#include "engine/jit.h"
#include "schedule/multi.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

UOp seed_of(const char* op, const Tensor& self, const Tensor& gradient) {
  WHIT_USER(self.is_floating_point(), Runtime, "[{}] the result is {}; expected a float dtype", op, self.dtype());
  if (!gradient.defined()) {
    WHIT_USER(self.numel() == 1 && self.ndim() == 0, Assertion, "[{}] the result has shape {}; expected a scalar, or give `gradient`", op,
              self.shape());
    return constant(self.dtype(), 1.0);
  }
  WHIT_USER(gradient.shape() == self.shape(), Assertion, "[{}] gradient has shape {}, the result {}", op, gradient.shape(), self.shape());
  return cast_value(gradient.uop(), self.dtype());
}

// Is x a view of memory with an id among `ids`?
bool is_among(const std::vector<int64_t>& ids, const UOp& x) {
  const UOp memory = engine::buffer_below(x);
  return memory && std::ranges::binary_search(ids, memory.arg().int_at(0));
}

Tensor gradient_or_zeros(const UOp& grad, const UOp& of) { return wrap(grad ? grad : zeros_like(of)); }

// Which node of a graph stands for a tensor. The tensor may have been realised after the graph was built; then the graph
// has the node whose value lies in the tensor's memory.
class GraphNodes {
 public:
  explicit GraphNodes(const UOp& root) {
    for (const Node* n : toposort(root)) {
      in_graph_[n] = true;
      if (const UOp where = realized(UOp(n))) in_memory_[engine::memory_of(where.node())] = UOp(n);
    }
  }
  /// Null when the graph does not have it.
  UOp find(const Tensor& t) {
    const UOp u = t.uop();
    if (in_graph_.find(u.node())) return u;
    const auto& impl = *t.impl();
    if (!impl.storage) return {};
    const auto it = in_memory_.find(impl.storage->state().node());
    if (it == in_memory_.end()) return {};
    const UOp& n = it->second;
    if (n.shape() == impl.storage->state().shape()) {
      const UOp view = apply_chain(impl.value, n);
      if (in_graph_.find(view.node())) return view;
    }
    return n.shape() == t.shape() ? n : UOp();
  }

 private:
  PtrMap<Node, bool> in_graph_;
  std::unordered_map<const Node*, UOp> in_memory_;
};

}  // namespace

std::vector<Tensor> Tensor::gradient(std::span<const Tensor> targets, const Tensor& grad_out) const {
  const ProfileSpan span("gradient", "gradient");
  const UOp seed = seed_of("gradient", *this, grad_out);
  const UOp root = uop();
  GraphNodes graph(root);
  std::vector<UOp> nodes;
  for (const Tensor& t : targets) {
    WHIT_USER(t.is_floating_point(), Runtime, "[gradient] a target is {}; expected a float dtype", t.dtype());
    WHIT_USER(!is_weak(t.dtype()), Runtime, "[gradient] a target is {}, which has no width", t.dtype());
    const UOp node = graph.find(t);
    nodes.push_back(node ? node : t.uop());
  }
  const std::vector<UOp> grads = gradients(std::span(&root, 1), std::span(&seed, 1), nodes);
  const std::vector<int64_t> cut = engine::origins_below(root);
  std::vector<Tensor> out;
  for (size_t i = 0; i < grads.size(); ++i) {
    WHIT_USER(grads[i] || !is_among(cut, nodes[i]), Runtime,
              "[gradient] the result depends on target {} of shape {} only through a value that was realised before; "
              "ask for gradients first, or detach that value",
              i, targets[i].shape());
    out.push_back(gradient_or_zeros(grads[i], nodes[i]));
  }
  return out;
}

const Tensor& Tensor::backward(const Tensor& gradient) const {
  const UOp seed = seed_of("backward", *this, gradient), root = uop();
  const std::vector<int64_t> cut = engine::origins_below(root);
  // The live tensors whose values are in the graph.
  GraphNodes graph(root);
  std::vector<Tensor> found;
  std::vector<UOp> nodes;
  for (Tensor& t : live_tensors()) {
    if (!is_float(t.dtype()) || is_weak(t.dtype())) continue;
    if (!t.device()) continue;
    const UOp u = graph.find(t);
    if (!cut.empty() && is_among(cut, u ? u : t.uop())) t.impl_->is_cut_off = true;
    if (!u) continue;
    nodes.push_back(u);
    found.push_back(std::move(t));
  }
  WHIT_USER(found.size() != 1 || !found[0].is_same(*this) || !engine::buffer_below(root) || cut.empty(), Runtime,
            "[backward] the result was realised before, so that nothing leads from it to what it was computed from; "
            "call backward first");
  const std::vector<UOp> grads = gradients(std::span(&root, 1), std::span(&seed, 1), nodes);
  for (size_t i = 0; i < found.size(); ++i) {
    Impl& owner = *found[i].impl_;
    if (!grads[i] || owner.grad_use == Impl::GradUse::LeftOut) continue;
    Tensor g = wrap(grads[i]);
    if (!grads[i]->device) g = stored(grads[i], home_of(found[i]).value_or(default_device_name()), shard_axis(nodes[i]));
    if (owner.grad_use == Impl::GradUse::None && engine::is_capturing()) owner.grad_use = Impl::GradUse::Unread;
    if (owner.grad.defined()) {
      owner.grad.assign(owner.grad + g);
    } else {
      owner.grad = g;
      owner.is_cut_off = false;
    }
  }
  return *this;
}

int64_t register_gradient(GradientFn fn) {
  return add_custom_gradient([user = std::move(fn)](std::span<const UOp> out_grads, const UOp& call) {
    std::vector<Tensor> grads, inputs;
    const UOp body = call.src(0);
    for (size_t i = 0; i < out_grads.size(); ++i) grads.push_back(gradient_or_zeros(out_grads[i], body.src(i)));
    for (size_t i = 1; i < call.n_src(); ++i) inputs.push_back(wrap(call.src(i)));
    const std::vector<Tensor> given = user(grads, inputs);
    WHIT_USER(given.size() <= inputs.size(), Value, "[gradient] a custom gradient gave {} tensors for {} inputs", given.size(), inputs.size());
    std::vector<UOp> out;
    for (size_t i = 0; i < given.size(); ++i) {
      out.emplace_back();
      if (!given[i].defined()) continue;
      WHIT_USER(given[i].shape() == inputs[i].shape(), Value, "[gradient] a custom gradient has shape {}, its input {}", given[i].shape(),
                inputs[i].shape());
      out.back() = cast_value(given[i].uop(), inputs[i].dtype());
    }
    return out;
  });
}

// Results of a CALL: `body` is a TUPLE over PARAMs that stand for `args`.
static std::vector<Tensor> results_of(const UOp& body, std::span<const UOp> args, int64_t gradient) {
  const char* const words[] = {"precompile both", "precompile", "checkpoint"};
  const Arg how = gradient < 0 ? Arg(words[gradient - kPrecompileBoth]) : gradient ? Arg(gradient) : Arg();
  const UOp call = UOp::make(Op::Call, DType::Void, with_front(body, args), how);
  std::vector<Tensor> out;
  for (size_t i = 0; i < body.n_src(); ++i) out.push_back(wrap(UOp::make(Op::GetTuple, body.src(i).dtype(), {call}, Arg(static_cast<int64_t>(i)))));
  return out;
}

static UOp tuple_of(std::span<const Tensor> tensors) {
  std::vector<UOp> values = mapped(tensors, [&](const Tensor& t) { return t.uop(); });
  return UOp::make(Op::Tuple, DType::Void, values);
}

std::vector<Tensor> make_call(std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool allow_implicit, int64_t gradient) {
  std::unordered_map<const Node*, UOp> map;
  std::vector<UOp> args;
  for (const Tensor& t : inputs) {
    const UOp u = t.uop();
    if (map.try_emplace(u.node(), param(static_cast<int64_t>(args.size()), u.dtype(), u.shape())).second) args.push_back(u);
  }
  // Buffers that the body reads besides its arguments become arguments too.
  const UOp body = substitute(tuple_of(outputs), map);
  std::unordered_map<const Node*, UOp> implicit;
  for (const Node* n : toposort(body)) {
    if (n->op != Op::Buffer) continue;
    WHIT_USER(allow_implicit, Runtime, "[function] the body reads a buffer of shape {} that is no argument; pass it, or allow_implicit=True",
              n->shape);
    implicit.emplace(n, param(static_cast<int64_t>(args.size()), n->dtype, n->shape));
    args.push_back(UOp(n));
  }
  return results_of(substitute(body, implicit), args, gradient);
}

Tensor Tensor::as_param(int64_t slot) const {
  WHIT_USER(slot >= 0, Value, "[as_param] slot {}; expected none below 0", slot);
  return wrap(param(slot, dtype(), shape()));
}

std::vector<Tensor> Tensor::call(std::span<const Tensor> args, std::span<const Tensor> body, int64_t gradient) {
  std::vector<UOp> values = mapped(args, [&](const Tensor& t) { return must_be_defined("call", t).uop(); });
  const UOp tuple = tuple_of(body);
  for (const Node* n : toposort(tuple)) {
    WHIT_USER(n->op != Op::Buffer, Runtime, "[call] the body reads a buffer of shape {}; expected PARAMs (as_param)", n->shape);
    if (n->op != Op::Param) continue;
    const auto slot = static_cast<size_t>(n->arg.int_at(0));
    WHIT_USER(slot < values.size(), Runtime, "[call] the body has PARAM {}, {} arguments are given", slot, values.size());
    const UOp& v = values[slot];
    WHIT_USER(v.dtype() == n->dtype && v.shape() == n->shape, Runtime, "[call] argument {} is {} of {}, PARAM {} is {} of {}", slot, v.dtype(),
              v.shape(), slot, n->dtype, n->shape);
  }
  return results_of(tuple, values, gradient);
}

void Tensor::callify(std::span<const Tensor> tensors) {
  std::vector<Tensor> pending;
  for (const Tensor& t : tensors)
    if (!t.impl_->storage && t.device()) pending.push_back(t);
  if (pending.empty()) return;
  const std::vector<Tensor> out = make_call({}, pending, true);
  for (size_t i = 0; i < out.size(); ++i) pending[i].impl_->take(*out[i].impl_);
}

}  // namespace whit
