// Transforms. A function is called with tracers; what it gives is a graph over them, in which the tracers are replaced
// by values (jvp, vjp) or by values with one axis more (vmap).
#include "whit/transform.h"

#include "base/lists.h"
#include "rules/batch.h"
#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

std::vector<UOp> tracers_like(const std::vector<UOp>& values) {
  return mapped(values, [&](const UOp& v) { return tracer(v); });
}

// What every tensor is before a function is traced: one that the function wrote into must not stay with tracers in it.
class Outside {
 public:
  Outside() {
    for (const Tensor& t : live_tensors()) before_.emplace(key_of(t), t.impl()->state());
  }
  // Those that are others now, and the new ones, get their tracers replaced. One from before that depends on a tracer of
  // `examples` is undefined otherwise: it is given back, and all are as before.
  Tensor settle(const Replacements& map, const Replacements& examples = {}) {
    for (const Tensor& t : live_tensors()) {
      const UOp now = t.impl()->state();
      const auto it = before_.find(key_of(t));
      if (it != before_.end() && it->second == now) continue;
      if (it != before_.end() && t.impl()->storage)
        for (const Node* n : toposort(now))
          if (examples.contains(n)) return restore(), t;
      set(t, substitute(now, map));
    }
    before_.clear();
    return {};
  }
  void restore() {
    for (const Tensor& t : live_tensors())
      if (const auto it = before_.find(key_of(t)); it != before_.end()) set(t, it->second);
    before_.clear();
  }

 private:
  static const void* key_of(const Tensor& t) { return t.impl()->storage ? static_cast<const void*>(t.impl()->storage.get()) : t.impl().get(); }
  static void set(const Tensor& t, const UOp& state) { t.impl()->storage ? t.impl()->storage->settle(state) : t.impl()->take(*wrap(state).impl()); }
  std::unordered_map<const void*, UOp> before_;
};

// A function's graph over tracers.
struct Trace {
  std::vector<UOp> inputs, outputs;
  UOp first;  ///< a tracer older than all that the function makes
  Outside outside;

  Trace(const TensorFn& fn, std::vector<UOp> tracers) : inputs(std::move(tracers)), first(tracer(idx(0))) {
    std::vector<Tensor> args = mapped(inputs, [&](const UOp& x) { return wrap(x); });
    struct Depth {
      Depth() { ++n_traces; }
      ~Depth() { --n_traces; }
    } depth;
    try {
      for (const Tensor& t : fn(args)) outputs.push_back(must_be_defined("trace", t).uop());
    } catch (...) {
      outside.restore();
      throw;
    }
  }
};

std::vector<Tensor> replaced(const std::vector<UOp>& values, const Replacements& map) {
  return mapped(values, [&](const UOp& v) { return wrap(substitute(v, map)); });
}

// Gradients of all targets, which are tracers; zeros where none arrives.
std::vector<UOp> pull(const std::vector<UOp>& roots, const std::vector<UOp>& seeds, const std::vector<UOp>& targets) {
  std::vector<UOp> leaves = mapped(targets, [&](const UOp& t) { return t.src(0); });
  std::vector<UOp> grads = gradients(roots, seeds, leaves);
  for (size_t i = 0; i < grads.size(); ++i) grads[i] = grads[i] ? shaped(grads[i], targets[i].shape()) : zeros_like(targets[i]);
  return grads;
}

// J v by transposing twice: v J is linear in v, so its gradient in the direction of the tangents is J times them.
std::vector<UOp> push(const std::vector<UOp>& inputs, const std::vector<UOp>& outputs, const std::vector<UOp>& tangents) {
  const std::vector<UOp> cotangents = tracers_like(outputs);
  std::vector<UOp> out = pull(pull(outputs, cotangents, inputs), tangents, cotangents);
  // What is linear has a gradient that does not depend on where it is taken; zeros remove what is left of the tracers.
  Replacements zeros;
  for (const UOp& c : cotangents) replace_tracer(zeros, c, zeros_like(c));
  for (UOp& t : out) t = substitute(t, zeros);
  return out;
}

std::vector<UOp> float_values(const char* op, std::span<const Tensor> tensors) {
  std::vector<UOp> out;
  for (const Tensor& t : tensors) {
    WHIT_USER(must_be_defined(op, t).is_floating_point(), Runtime, "[{}] an argument is {}; expected a float dtype", op, t.dtype());
    out.push_back(is_weak(t.dtype()) ? cast_value(t.uop(), default_float()) : t.uop());
  }
  return out;
}

// Values given for others of known shape, in their dtype.
std::vector<UOp> values_for(const char* op, const char* what, std::span<const Tensor> given, const std::vector<UOp>& likes) {
  WHIT_USER(given.size() == likes.size(), Value, "[{}] {} {}s for {} values", op, given.size(), what, likes.size());
  std::vector<UOp> out;
  for (size_t i = 0; i < likes.size(); ++i) {
    WHIT_USER(must_be_defined(op, given[i]).shape() == likes[i].shape(), Value, "[{}] {} {} has shape {}; expected {}", op, what, i, given[i].shape(),
              likes[i].shape());
    out.push_back(cast_value(given[i].uop(), likes[i].dtype()));
  }
  return out;
}

UOp iota(int64_t n) { return Tensor::arange(0, n, 1, DType::Int64).uop(); }

// The trace of a function that is to be differentiated at `x`.
struct TraceAt : Trace {
  std::vector<UOp> x;
  Replacements map;  ///< the inputs by x

  TraceAt(const char* op, const TensorFn& fn, const std::vector<UOp>& at) : Trace(fn, tracers_like(at)), x(at) {
    for (const UOp& y : outputs) WHIT_USER(is_float(y.dtype()), Runtime, "[{}] a result is {}; expected a float dtype", op, y.dtype());
    for (size_t i = 0; i < x.size(); ++i) replace_tracer(map, inputs[i], x[i]);
    outside.settle(map);
  }
};

// A tracer replaced by the unit vectors of its elements: (numel, shape...).
Replacements basis_of(const UOp& x) {
  const int64_t n = x.shape().numel();
  Replacements map;
  replace_tracer(map, x, shaped(Tensor::eye(n, {}, x.dtype()).uop(), with_front(n, x.shape())));
  return map;
}

}  // namespace

bool is_tracing() { return n_traces > 0; }

std::vector<Tensor> vmap(const TensorFn& fn, std::span<const Tensor> inputs, const VmapOptions& o) {
  const auto check_count = [](const char* what, size_t have, size_t want) {
    WHIT_USER(have <= 1 || have == want, Value, "[vmap] {} has {} entries for {} tensors", what, have, want);
  };
  check_count("in_axes", o.in_axes.size(), inputs.size());
  std::vector<UOp> tracers;
  Replacements leaves, shared;
  std::optional<int64_t> n;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const UOp x = must_be_defined("vmap", inputs[i]).uop();
    const auto axis = o.in_axes.empty() ? 0 : o.in_axes[o.in_axes.size() == 1 ? 0 : i];
    const UOp one = tracer(x);
    if (!axis) {
      tracers.push_back(one);
      replace_tracer(shared, tracers[i], x);
      continue;
    }
    WHIT_USER(!x.shape().empty(), Index, "[vmap] argument {} has shape (); it has no axis to map", i);
    const int64_t a = resolve_axis("vmap", *axis, x.shape());
    const int64_t size = x.shape()[static_cast<size_t>(a)];
    WHIT_USER(!n || *n == size, Value, "[vmap] argument {} has {} examples on axis {} of shape {}; others have {}", i, size, a, x.shape(), *n);
    n = size;
    const UOp front = permuted(x, moved_axis(x.shape().size(), a, 0));
    tracers.push_back(tracer(x.dtype(), std::span<const int64_t>(front.shape()).subspan(1), device_of(x)));
    replace_tracer(leaves, tracers[i], front);
  }
  WHIT_USER(n, Value, "[vmap] none of {} arguments is mapped", inputs.size());
  Trace trace(fn, std::move(tracers));
  check_count("out_axes", o.out_axes.size(), trace.outputs.size());
  const Tensor written = trace.outside.settle(shared, leaves);
  WHIT_USER(!written.defined(), Runtime,
            "[vmap] a value that differs between the {} examples is stored into a tensor of shape {} that was made outside the function; "
            "expected one that is made inside",
            *n, written.shape());
  std::vector<Tensor> out = replaced(batched(trace.outputs, leaves, iota(*n), trace.first), shared);
  for (size_t i = 0; i < out.size(); ++i) {
    if (o.out_axes.empty()) break;
    const int64_t to = resolve_axis("vmap", o.out_axes[o.out_axes.size() == 1 ? 0 : i], out[i].shape());
    out[i] = out[i].permute(moved_axis(out[i].ndim(), 0, to));
  }
  return out;
}

std::vector<Tensor> pmap(const TensorFn& fn, std::span<const Tensor> inputs, std::span<const std::string> devices, const VmapOptions& o) {
  std::vector<Tensor> parts(inputs.begin(), inputs.end());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (must_be_defined("pmap", parts[i]).devices().size() > 1) continue;
    const size_t at = o.in_axes.size() > 1 ? i : 0;
    parts[i] = parts[i].shard(devices, o.in_axes.empty() ? 0 : at < o.in_axes.size() ? o.in_axes[at] : std::nullopt);
  }
  return vmap(fn, parts, o);
}

Jvp jvp(const TensorFn& fn, std::span<const Tensor> primals, std::span<const Tensor> tangents) {
  const std::vector<UOp> x = float_values("jvp", primals), v = values_for("jvp", "tangent", tangents, x);
  const TraceAt trace("jvp", fn, x);
  return {replaced(trace.outputs, trace.map), replaced(push(trace.inputs, trace.outputs, v), trace.map)};
}

Vjp vjp(const TensorFn& fn, std::span<const Tensor> primals) {
  const TraceAt trace("vjp", fn, float_values("vjp", primals));
  return {replaced(trace.outputs, trace.map), [trace](std::span<const Tensor> cotangents) {
            const std::vector<UOp> seeds = values_for("vjp", "cotangent", cotangents, trace.outputs);
            return replaced(pull(trace.outputs, seeds, trace.inputs), trace.map);
          }};
}

TensorFn grad(TensorFn fn) {
  return [fn = std::move(fn)](std::span<const Tensor> inputs) {
    const Vjp v = vjp([&](std::span<const Tensor> args) { return std::vector<Tensor>{fn(args).at(0)}; }, inputs);
    WHIT_USER(v.outputs[0].ndim() == 0, Assertion, "[grad] the result has shape {}; expected a scalar", v.outputs[0].shape());
    return v.pullback(std::vector<Tensor>{Tensor::constant(1.0, v.outputs[0].dtype())});
  };
}

std::vector<std::vector<Tensor>> jacobian(const TensorFn& fn, std::span<const Tensor> inputs) {
  const TraceAt trace("jacobian", fn, float_values("jacobian", inputs));
  const std::vector<UOp>& x = trace.x;
  int64_t n_in = 0;
  for (const UOp& u : x) n_in += u.shape().numel();
  std::vector<std::vector<Tensor>> out;
  for (const UOp& y : trace.outputs) {
    std::vector<UOp> row;  // (examples, ...)
    const int64_t n_out = y.shape().numel();
    const bool forward = n_in < n_out;
    if (!forward) {
      const UOp seed = tracer(y);
      row = batched(pull({y}, {seed}, trace.inputs), basis_of(seed), iota(n_out), trace.first);
    }
    for (size_t i = 0; forward && i < x.size(); ++i) {
      const UOp seed = tracer(x[i]);
      const std::vector<UOp> columns = batched(push({trace.inputs[i]}, {y}, {seed}), basis_of(seed), iota(x[i].shape().numel()), trace.first);
      row.push_back(permuted(columns[0], moved_axis(y.shape().size() + 1, 0, y.shape().size())));
    }
    for (size_t i = 0; i < row.size(); ++i) {
      Dims dims(y.shape().begin(), y.shape().end());
      dims.append(x[i].shape().begin(), x[i].shape().end());
      row[i] = shaped(row[i], dims);
    }
    out.push_back(replaced(row, trace.map));
  }
  return out;
}

std::vector<std::vector<Tensor>> hessian(const TensorFn& fn, std::span<const Tensor> inputs) { return jacobian(grad(fn), inputs); }

std::vector<Tensor> checkpoint(const TensorFn& fn, std::span<const Tensor> inputs) {
  // Whatever there is before the call is an argument where the body reads it: weights too, computed or not.
  std::unordered_map<const Node*, UOp> existing;
  for (const Tensor& t : live_tensors())
    if (const UOp u = t.uop(); u->device) existing.emplace(u.node(), u);
  std::vector<Tensor> args;
  const std::vector<Tensor> outputs = fn(inputs);
  std::vector<UOp> roots = mapped(outputs, [&](const Tensor& t) { return must_be_defined("checkpoint", t).uop(); });
  const auto ends = [&](const Node* n) { return std::pair(0u, existing.contains(n) ? 0u : n->n_src); };
  for (const Node* n : post_order(roots, ends))
    if (const auto it = existing.find(n); it != existing.end()) args.push_back(wrap(it->second));
  return make_call(args, outputs, true, kRecompute);
}

}  // namespace whit
