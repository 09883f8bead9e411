// Transforms for Python: functions of lists of tensors. The package finds the tensors in nested arguments.
#include "whit/transform.h"

#include "convert.h"

namespace whit::python {
namespace {

TensorFn to_function(nb::callable fn) {
  return [fn](std::span<const Tensor> args) {
    nb::list l;
    for (const Tensor& t : args) l.append(nb::cast(t));
    return to_tensors(fn(l), "transform");
  };
}

}  // namespace

void bind_transform(nb::module_& m) {
  m.def("is_tracing", &is_tracing, "True while a transform traces a function in this thread.");
  m.def("vmap", [](nb::callable fn, nb::handle inputs, const std::vector<std::optional<int64_t>>& in_axes, const std::vector<int64_t>& out_axes) {
    return tensors_to_tuple(vmap(to_function(fn), to_tensors(inputs, "vmap"), {in_axes, out_axes}));
  });
  m.def("jvp", [](nb::callable fn, nb::handle primals, nb::handle tangents) {
    const Jvp r = jvp(to_function(fn), to_tensors(primals, "jvp"), to_tensors(tangents, "jvp"));
    return std::pair(tensors_to_tuple(r.outputs), tensors_to_tuple(r.tangents));
  });
  m.def("vjp", [](nb::callable fn, nb::handle primals) {
    const Vjp r = vjp(to_function(fn), to_tensors(primals, "vjp"));
    nb::object pullback =
        nb::cpp_function([back = r.pullback](nb::handle cotangents) { return tensors_to_tuple(back(to_tensors(cotangents, "vjp"))); });
    return nb::make_tuple(tensors_to_tuple(r.outputs), pullback);
  });
  m.def("checkpoint", [](nb::callable fn) { return tensors_to_tuple(checkpoint(to_function(fn), {})); });
  m.def("jacobian", [](nb::callable fn, nb::handle inputs) {
    nb::list rows;
    for (const auto& row : jacobian(to_function(fn), to_tensors(inputs, "jacobian"))) rows.append(tensors_to_tuple(row));
    return rows;
  });
}

}  // namespace whit::python
