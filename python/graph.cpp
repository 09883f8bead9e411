// Functions as nodes: what `function` needs.
#include "convert.h"

namespace whit::python {

void bind_graph(nb::module_& m) {
  m.def("call_function", [](nb::handle inputs, nb::callable body, bool allow_implicit) -> nb::object {
    const std::vector<Tensor> in = to_tensors(inputs, "function");
    nb::object ret = body();
    const bool single = nb::isinstance<Tensor>(ret);
    if (!single && !PyTuple_Check(ret.ptr()) && !PyList_Check(ret.ptr()))
      raise(ErrorKind::Runtime, fmt::format("[function] expected a Tensor or a tuple of Tensors to be returned, got {}",
                                            nb::type_name(ret.type()).c_str()));
    const std::vector<Tensor> out = single ? std::vector<Tensor>{nb::cast<Tensor&>(ret)} : to_tensors(ret, "function");
    const std::vector<Tensor> called = make_call(in, out, allow_implicit);
    if (single) return nb::cast(called[0]);
    return tensors_to_tuple(called);
  });
}

}  // namespace whit::python
