// TinyJit for Python: finds the tensors in the arguments, gives results back in the shape of what was returned.
#include "engine/jit.h"

#include <algorithm>

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
    std::vector<Other> others;
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
      WHIT_USER(!is_replaying_, Jit, "[jit] called from a second thread while a first one replays it; each needs a TinyJit of its own");
      // Shapes and dtypes of tensors are the business of jit_, which says more about them.
      WHIT_USER(inputs.size() == n_inputs_, Jit, "[jit] {} input tensors and sizes; captured with {}", inputs.size(), n_inputs_);
      WHIT_USER(form == form_, Jit, "[jit] the arguments are {}; captured with {} (t is a tensor, o another object)", form, form_);
      for (size_t i = 0; i < others.size(); ++i) check_same(others[i], others_[i]);
      const Replaying replaying(is_replaying_);
      const std::vector<Tensor> out = flag::JIT_CHECK() ? jit_.call(inputs, body) : unlocked([&] { return jit_.call(inputs, {}); });
      return rebuild(structure_, out);
    }
    jit_.call(inputs, body);
    if (jit_.is_captured()) {
      form_ = std::move(form);
      others_ = std::move(others);
      n_inputs_ = inputs.size();
      std::vector<Tensor> seen;
      structure_ = skeleton(returned, seen);
    }
    return returned;
  }

  nb::object fxn() const { return fxn_; }
  int64_t cnt() const { return jit_.cnt(); }
  bool captured() const { return jit_.is_captured(); }
  int64_t n_kernels() const { return jit_.n_kernels(); }
  int64_t arena_bytes() const { return jit_.arena_bytes(); }
  int64_t lasting_bytes() const { return jit_.lasting_bytes(); }
  void reset() {
    jit_.reset();
    structure_ = nb::none();
    others_.clear();
  }

 private:
  static bool is_list(nb::handle h) { return PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()); }

  struct Replaying {
    explicit Replaying(bool& is) : is_replaying(is) { is_replaying = true; }
    ~Replaying() { is_replaying = false; }
    bool& is_replaying;
  };

  // An argument that is no tensor, and what tells whether it is the same as before.
  struct Other {
    nb::object object, key;
  };

  // Tensors among the arguments, also in lists, tuples and dicts; what else there is; and the form of it all.
  static void collect(nb::handle h, std::vector<Tensor>& out, std::vector<Other>& others, std::string& form, int depth = 0) {
    WHIT_USER(depth < 64, Jit, "[jit] the arguments are nested more than {} deep", depth);
    if (nb::isinstance<Tensor>(h)) {
      out.push_back(*nb::inst_ptr<Tensor>(h));
      form += "t,";
    } else if (UOp u; nb::try_cast<UOp>(h, u) && u.shape().empty() && u.dtype() == DType::WeakInt) {
      out.push_back(Tensor(u));  // a size: other values for its variables make no difference
      form += to_formula(u) + ",";
    } else if (is_list(h)) {
      form += '[';
      for (nb::handle x : nb::borrow<nb::sequence>(h)) collect(x, out, others, form, depth + 1);
      form += "],";
    } else if (PyDict_Check(h.ptr())) {
      form += '{';
      for (auto [k, v] : nb::borrow<nb::dict>(h)) {
        form += nb::repr(k).c_str();
        form += ':';
        collect(v, out, others, form, depth + 1);
      }
      form += "},";
    } else {
      others.push_back({nb::borrow(h), key_of(h)});
      form += "o,";
    }
  }

  // Numbers (-0.0 is not 0.0, NaN is NaN), texts and slices by value, arrays, buffers and sets by what they hold, all else by identity.
  static nb::object key_of(nb::handle h) {
    const nb::handle type = h.type();
    if (PyLong_CheckExact(h.ptr()) || PyUnicode_CheckExact(h.ptr()) || PyBytes_CheckExact(h.ptr())) return nb::make_tuple(type, h);
    if (PyFloat_CheckExact(h.ptr()) || PyComplex_CheckExact(h.ptr())) return nb::make_tuple(type, nb::repr(h));
    if (PySlice_Check(h.ptr()) || PyRange_Check(h.ptr()))
      return nb::make_tuple(type, key_of(h.attr("start")), key_of(h.attr("stop")), key_of(h.attr("step")));
    if (PyAnySet_CheckExact(h.ptr())) return nb::make_tuple(type, nb::steal(PyFrozenSet_New(h.ptr())));
    if (nb::hasattr(h, "__self__") && nb::hasattr(h, "__func__")) return nb::make_tuple(type, key_of(h.attr("__self__")), h.attr("__func__"));
    if (!PyType_Check(h.ptr()) && nb::hasattr(h, "__array__")) {
      const nb::object array = nb::module_::import_("numpy").attr("asarray")(h);
      return nb::make_tuple(type, array.attr("dtype"), array.attr("shape"), array.attr("tobytes")());
    }
    if (PyObject_CheckBuffer(h.ptr())) return nb::make_tuple(type, nb::steal(PyBytes_FromObject(h.ptr())));
    return nb::make_tuple(reinterpret_cast<uintptr_t>(h.ptr()));
  }

  static void check_same(const Other& now, const Other& captured) {
    if (now.key.equal(captured.key)) return;
    const std::string is = nb::repr(now.object).c_str(), was = nb::repr(captured.object).c_str();
    WHIT_USER(is != was, Jit, "[jit] an argument that is no tensor holds other values, or is another object, than when captured: {}", is);
    raise(ErrorKind::Jit, fmt::format("[jit] an argument that is no tensor is {}, and was {} when captured; replay would use the old one", is, was));
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

  // `h`, a list, tuple or dict, with what fn makes of its items. Classes derived from these, as named tuples, stay what they are.
  template <class Fn> static nb::object map_items(nb::handle h, Fn&& fn) {
    if (PyTuple_Check(h.ptr())) {
      nb::list l;
      for (nb::handle x : nb::borrow<nb::sequence>(h)) l.append(fn(x));
      return nb::hasattr(h, "_make") ? nb::object(h.type().attr("_make")(l)) : nb::object(nb::tuple(l));
    }
    nb::object copy = nb::module_::import_("copy").attr("copy")(h);
    if (PyDict_Check(h.ptr()))
      for (auto [k, v] : nb::borrow<nb::dict>(h)) copy[k] = fn(v);
    else
      for (size_t i = 0; i < nb::len(h); ++i) copy[i] = fn(h[i]);
    return copy;
  }

  // The returned object with numbers in the place of tensors, so that it keeps no tensor alive. A tensor that is there twice has
  // one number: both are views of one memory.
  static nb::object skeleton(nb::handle h, std::vector<Tensor>& seen) {
    if (h.is_none()) return nb::none();
    if (!nb::isinstance<Tensor>(h)) return map_items(h, [&](nb::handle x) { return skeleton(x, seen); });
    seen.push_back(nb::cast<Tensor&>(h));
    const auto first = std::ranges::find_if(seen, [&](const Tensor& t) { return t.is_same(seen.back()); });
    return nb::int_(first - seen.begin());
  }

  static nb::object rebuild(nb::handle h, const std::vector<Tensor>& out) {
    if (PyLong_Check(h.ptr())) return nb::cast(out[nb::cast<size_t>(h)]);
    if (h.is_none()) return nb::none();
    return map_items(h, [&](nb::handle x) { return rebuild(x, out); });
  }

  nb::object fxn_;
  TinyJit jit_;
  nb::object structure_ = nb::none();
  std::string form_;
  std::vector<Other> others_;
  size_t n_inputs_ = 0;
  bool is_replaying_ = false;

 public:
  // For Python's collector: a method that is jitted leads back to its object.
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    PyJit& jit = *nb::inst_ptr<PyJit>(self);
    Py_VISIT(jit.fxn_.ptr());
    Py_VISIT(jit.structure_.ptr());
    for (const Other& o : jit.others_) {
      Py_VISIT(o.object.ptr());
      Py_VISIT(o.key.ptr());
    }
    return 0;
  }
  static int clear(PyObject* self) {
    PyJit& jit = *nb::inst_ptr<PyJit>(self);
    nb::object fxn = std::move(jit.fxn_), structure = std::move(jit.structure_);
    const std::vector<Other> others = std::move(jit.others_);
    return 0;
  }
};

}  // namespace

void bind_jit(nb::module_& m) {
  PyType_Slot slots[] = {
      {Py_tp_traverse, reinterpret_cast<void*>(&PyJit::traverse)}, {Py_tp_clear, reinterpret_cast<void*>(&PyJit::clear)}, {0, nullptr}};
  nb::class_<PyJit>(m, "TinyJit", nb::type_slots(slots),
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
      .def_prop_ro("arena_bytes", &PyJit::arena_bytes, "Bytes of the temporaries of the captured kernels.")
      .def_prop_ro("lasting_bytes", &PyJit::lasting_bytes,
                   "Bytes of what is computed only when what it is computed from has changed: packed or transformed weights.")
      .def_prop_ro("captured", [](nb::object self) -> nb::object { return nb::cast<PyJit&>(self).captured() ? self : nb::object(nb::none()); });
  m.def("is_capturing", &engine::is_capturing);
}

}  // namespace whit::python
