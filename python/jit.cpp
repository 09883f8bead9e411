// TinyJit for Python: finds the tensors in the arguments, gives results back in the shape of what was returned.
#include "engine/jit.h"

#include "base/flags.h"
#include "convert.h"
#include "ir/text.h"
#include "uop_caster.h"
#include "whit/jit.h"
#include "whit/transform.h"

namespace whit::python {
namespace {

class PyJit {
 public:
  PyJit(nb::object fxn, int64_t memory_budget)
      : fxn_(std::move(fxn)), jit_([](std::span<const Tensor>) { return std::vector<Tensor>(); }, memory_budget) {}

  AnyObject call(nb::args args, nb::kwargs kwargs) {
    if (is_tracing()) return fxn_(*args, **kwargs);
    std::vector<Tensor> inputs;
    std::vector<nb::object> others;
    std::string form;  // of the arguments: where tensors are, names, lengths
    for (nb::handle a : args) collect(a, inputs, others, form);
    if (kwargs.size() != 0) {
      nb::object keys = nb::module_::import_("builtins").attr("sorted")(kwargs);
      for (nb::handle k : keys) {
        form += nb::str(k).c_str();
        form += '=';
        collect(nb::object(kwargs[k]), inputs, others, form);
      }
    }
    nb::object returned = nb::none();
    const auto body = [&](std::span<const Tensor>) {
      returned = fxn_(*args, **kwargs);
      std::vector<Tensor> leaves;
      flatten(returned, leaves);
      return leaves;
    };
    const bool replays = jit_.is_captured() && flag::JIT();
    if (replays) {
      // Number, shapes and dtypes of tensors are the business of jit_, which says more about them.
      WHIT_USER(form == form_ || inputs.size() != n_inputs_, Jit, "[jit] the arguments are {}; captured with {} (t is a tensor, o another object)",
                form, form_);
      for (size_t i = 0; i < others.size() && i < others_.size(); ++i)
        WHIT_USER(is_same(others[i], others_[i]), Jit,
                  "[jit] an argument that is no tensor is {}, and was {} when captured; replay would use the old one", nb::repr(others[i]).c_str(),
                  nb::repr(others_[i]).c_str());
      const std::vector<Tensor> out = flag::JIT_CHECK() ? jit_.call(inputs, body) : unlocked([&] { return jit_.call(inputs, {}); });
      size_t next = 0;
      return rebuild(structure_, out, next);
    }
    jit_.call(inputs, body);
    if (jit_.is_captured()) {
      structure_ = returned;
      form_ = std::move(form);
      others_ = std::move(others);
      n_inputs_ = inputs.size();
      size_t next = 0;
      structure_ = skeleton(returned, next);
    }
    return returned;
  }

  nb::object fxn() const { return fxn_; }
  int64_t cnt() const { return jit_.cnt(); }
  bool captured() const { return jit_.is_captured(); }
  int64_t n_kernels() const { return jit_.n_kernels(); }
  void reset() {
    jit_.reset();
    structure_ = nb::none();
    others_.clear();
  }

 private:
  static bool is_list(nb::handle h) { return PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()); }

  // Tensors among the arguments, also in lists, tuples and dicts; what else there is; and the form of it all.
  static void collect(nb::handle h, std::vector<Tensor>& out, std::vector<nb::object>& others, std::string& form, int depth = 0) {
    if (nb::isinstance<Tensor>(h)) {
      out.push_back(nb::cast<Tensor&>(h));
      form += "t,";
    } else if (UOp u; nb::try_cast<UOp>(h, u) && u.shape().empty() && u.dtype() == DType::WeakInt) {
      out.push_back(Tensor(u));  // a size: other values for its variables make no difference
      form += to_formula(u) + ",";
    } else if (depth < 8 && is_list(h)) {
      form += '[';
      for (nb::handle x : nb::borrow<nb::sequence>(h)) collect(x, out, others, form, depth + 1);
      form += "],";
    } else if (depth < 8 && PyDict_Check(h.ptr())) {
      form += '{';
      for (auto [k, v] : nb::borrow<nb::dict>(h)) {
        form += nb::repr(k).c_str();
        form += ':';
        collect(v, out, others, form, depth + 1);
      }
      form += "},";
    } else {
      others.push_back(nb::borrow(h));
      form += "o,";
    }
  }

  // Numbers, texts and None by value, all else by identity.
  static bool is_same(nb::handle a, nb::handle b) {
    if (a.is(b)) return true;
    if (!a.type().is(b.type())) return false;
    if (PyFloat_Check(a.ptr())) {
      const double x = PyFloat_AsDouble(a.ptr()), y = PyFloat_AsDouble(b.ptr());
      return x == y || (x != x && y != y);
    }
    const bool by_value = PyLong_CheckExact(a.ptr()) || PyUnicode_CheckExact(a.ptr()) || PyBytes_CheckExact(a.ptr()) || PySlice_Check(a.ptr()) ||
                          a.type().is(nb::module_::import_("types").attr("MethodType"));
    return by_value && a.equal(b);
  }

  static void flatten(nb::handle h, std::vector<Tensor>& out) {
    if (h.is_none()) return;
    if (nb::isinstance<Tensor>(h)) {
      out.push_back(nb::cast<Tensor&>(h));
    } else if (is_list(h)) {
      for (nb::handle x : nb::borrow<nb::sequence>(h)) flatten(x, out);
    } else if (PyDict_Check(h.ptr())) {
      for (auto [k, v] : nb::borrow<nb::dict>(h)) flatten(v, out);
    } else {
      raise(ErrorKind::Jit, fmt::format("[jit] the function returned a {}; expected tensors, or lists, tuples and dicts of them, or None",
                                        nb::type_name(h.type()).c_str()));
    }
  }

  // The returned object with numbers in the place of tensors, so that it keeps no tensor alive.
  static nb::object skeleton(nb::handle h, size_t& next) {
    if (nb::isinstance<Tensor>(h)) return nb::int_(next++);
    if (is_list(h)) {
      nb::list l;
      for (nb::handle x : nb::borrow<nb::sequence>(h)) l.append(skeleton(x, next));
      return PyTuple_Check(h.ptr()) ? nb::object(nb::tuple(l)) : nb::object(l);
    }
    if (PyDict_Check(h.ptr())) {
      nb::dict d;
      for (auto [k, v] : nb::borrow<nb::dict>(h)) d[k] = skeleton(v, next);
      return d;
    }
    return nb::none();
  }

  static nb::object rebuild(nb::handle h, const std::vector<Tensor>& out, size_t& next) {
    if (PyLong_Check(h.ptr())) return nb::cast(out[next++]);
    if (is_list(h)) {
      nb::list l;
      for (nb::handle x : nb::borrow<nb::sequence>(h)) l.append(rebuild(x, out, next));
      return PyTuple_Check(h.ptr()) ? nb::object(nb::tuple(l)) : nb::object(l);
    }
    if (PyDict_Check(h.ptr())) {
      nb::dict d;
      for (auto [k, v] : nb::borrow<nb::dict>(h)) d[k] = rebuild(v, out, next);
      return d;
    }
    return nb::none();
  }

  nb::object fxn_;
  TinyJit jit_;
  nb::object structure_ = nb::none();
  std::string form_;
  std::vector<nb::object> others_;
  size_t n_inputs_ = 0;
};

}  // namespace

void bind_jit(nb::module_& m) {
  nb::class_<PyJit>(m, "TinyJit", nb::dynamic_attr(), nb::is_weak_referenceable(),
                    "Runs a function once, captures the kernels of its second call, and replays them afterwards.")
      .def(nb::init<nb::object, int64_t>(), nb::arg("fxn").none(), nb::arg("memory_budget") = 0)
      .def("__call__", &PyJit::call)
      .def(
          "__get__",
          [](nb::object self, nb::handle obj, nb::handle) -> AnyObject {
            if (obj.is_none()) return self;
            return nb::module_::import_("functools").attr("partial")(self, obj);
          },
          nb::arg("obj").none(), nb::arg("objtype") = nb::none())
      .def("reset", &PyJit::reset, "Forgets the captured kernels.")
      .def_prop_ro("fxn", &PyJit::fxn)
      .def_prop_ro("cnt", &PyJit::cnt)
      .def_prop_ro("n_kernels", &PyJit::n_kernels)
      .def_prop_ro("captured", [](nb::object self) -> nb::object { return nb::cast<PyJit&>(self).captured() ? self : nb::object(nb::none()); });
  m.def("is_capturing", &engine::is_capturing);
}

}  // namespace whit::python
