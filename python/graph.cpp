// Functions as nodes: what `function` needs.
#include "convert.h"
#include "engine/realize.h"
#include "tensor/impl.h"
#include "uop_caster.h"

namespace whit::python {
namespace {
bool is_node(nb::handle h) {
  UOp u;
  return nb::try_cast<UOp>(h, u, false);
}
}  // namespace

void bind_graph(nb::module_& m) {
  // A gradient that is a Python function of (gradients of the results.., call=); call.src[1:] are the inputs.
  m.def("register_gradient", [](nb::callable fn) {
    return register_gradient([fn](std::span<const Tensor> grads, std::span<const Tensor> inputs) {
      const nb::gil_scoped_acquire locked;
      nb::list gs, src;
      src.append(nb::none());
      for (const Tensor& g : grads) gs.append(nb::cast(g));
      for (const Tensor& x : inputs) src.append(nb::cast(x));
      nb::object call = nb::module_::import_("types").attr("SimpleNamespace")(nb::arg("src") = nb::tuple(src));
      nb::object given = fn(*nb::tuple(gs), nb::arg("call") = call);
      if (!PyTuple_Check(given.ptr()) && !PyList_Check(given.ptr())) given = nb::make_tuple(given);
      std::vector<Tensor> out;
      for (nb::handle h : nb::borrow<nb::sequence>(given))
        out.push_back(h.is_none() ? Tensor() : is_node(h) ? Tensor(nb::cast<UOp>(h)) : to_tensor(h, "grad_fxn"));
      return out;
    });
  });

  m.def("call_function", [](nb::handle inputs, nb::callable body, bool allow_implicit, int64_t gradient) -> nb::object {
    const std::vector<Tensor> in = to_tensors(inputs, "function");
    nb::object ret = body();
    const bool single = nb::isinstance<Tensor>(ret);
    if (!single && !PyTuple_Check(ret.ptr()) && !PyList_Check(ret.ptr()))
      raise(ErrorKind::Runtime,
            fmt::format("[function] expected a Tensor or a tuple of Tensors to be returned, got {}", nb::type_name(ret.type()).c_str()));
    const std::vector<Tensor> out = single ? std::vector<Tensor>{nb::cast<Tensor&>(ret)} : to_tensors(ret, "function");
    const std::vector<Tensor> called = make_call(in, out, allow_implicit, gradient);
    if (single) return nb::cast(called[0]);
    return tensors_to_tuple(called);
  });
  m.def("call_body", [](nb::handle args, nb::handle body, int64_t gradient) {
    return tensors_to_tuple(Tensor::call(to_tensors(args, "call"), to_tensors(body, "call"), gradient));
  });
  m.def("as_param", &Tensor::as_param);
  m.def("callify", [](nb::handle tensors) { Tensor::callify(to_tensors(tensors, "callify")); });
  m.def("custom_kernel", [](nb::handle tensors, nb::callable kernel, int64_t gradient) {
    return tensors_to_tuple(Tensor::custom_kernel(
        to_tensors(tensors, "custom_kernel"),
        [&](std::span<const UOp> params) {
          nb::list l;
          for (const UOp& p : params) l.append(p);
          nb::object sink = kernel(*nb::tuple(l));
          UOp u;
          if (!nb::try_cast<UOp>(sink, u, false))
            raise(ErrorKind::Type,
                  fmt::format("[custom_kernel] the function returned a {}; expected a SINK (UOp)", nb::type_name(sink.type()).c_str()));
          return u;
        },
        gradient));
  });
  m.def("schedule_linear", [](nb::handle tensors) {
    std::vector<UOp> roots;
    for (const Tensor& t : to_tensors(tensors, "schedule_linear")) {
      if (!t.device()) continue;
      WHIT_USER(!is_weak(t.dtype()), Runtime, "[schedule_linear] a tensor of {} has no storage; cast it first", name(t.dtype()));
      if (t.numel() != 0 && !t.is_realized()) roots.push_back(t.impl()->storage ? t.impl()->storage->state() : t.uop());
    }
    return roots.empty() ? UOp::make(Op::Linear, DType::Void, {}) : engine::schedule(roots).schedule->to_linear();
  });
}

}  // namespace whit::python
