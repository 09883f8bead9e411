// Graphs from Python: UOp, and what `function` needs.
#include "convert.h"
#include "ir/build.h"
#include "ir/text.h"

namespace whit::python {

void bind_graph(nb::module_& m) {
  nb::class_<UOp>(m, "UOp", "A node of the graph: immutable, and the same object when its parts are the same.")
      .def_prop_ro("op", [](const UOp& u) { return std::string(name(u.op())); })
      .def_prop_ro("dtype", [](const UOp& u) { return dtype_object(u.dtype()); })
      .def_prop_ro("shape", [](const UOp& u) { return to_tuple(u.shape()); })
      .def_prop_ro("src",
                   [](const UOp& u) {
                     nb::list l;
                     for (const UOp& s : u.srcs()) l.append(s);
                     return nb::tuple(l);
                   })
      .def_prop_ro("vmin", &UOp::vmin)
      .def_prop_ro("vmax", &UOp::vmax)
      .def_prop_ro("key", [](const UOp& u) { return u.key().hex(); })
      .def("toposort",
           [](const UOp& u) {
             nb::list l;
             for (const Node* n : toposort(u)) l.append(UOp(n));
             return l;
           })
      .def(
          "__eq__",
          [](const UOp& a, nb::handle b) {
            UOp* o = nullptr;
            return nb::try_cast<UOp*>(b, o, false) && o && *o == a;
          },
          nb::arg().none())
      .def("__hash__", [](const UOp& u) { return static_cast<Py_ssize_t>(reinterpret_cast<uintptr_t>(u.node()) >> 4); })
      .def("__repr__", [](const UOp& u) { return to_text(u); });
  m.def("live_nodes", &live_nodes, "Number of graph nodes alive in the process.");

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
