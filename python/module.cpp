// The extension module whit._whit: thin bindings of the C++ API. Names and defaults that Python users see are set here.
#include <cerrno>
#include <cstring>

#include "base/flags.h"
#include "convert.h"

namespace whit::python {
namespace {

struct ErrorClasses {
  nb::object internal, device, compile, jit;
};
ErrorClasses* classes() {
  static ErrorClasses* c = new ErrorClasses;
  return c;
}

PyObject* python_class(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Value: return PyExc_ValueError;
    case ErrorKind::Index: return PyExc_IndexError;
    case ErrorKind::Type: return PyExc_TypeError;
    case ErrorKind::Key: return PyExc_KeyError;
    case ErrorKind::Attribute: return PyExc_AttributeError;
    case ErrorKind::Runtime: return PyExc_RuntimeError;
    case ErrorKind::Assertion: return PyExc_AssertionError;
    case ErrorKind::Overflow: return PyExc_OverflowError;
    case ErrorKind::ZeroDivision: return PyExc_ZeroDivisionError;
    case ErrorKind::NotImplemented: return PyExc_NotImplementedError;
    case ErrorKind::Memory: return PyExc_MemoryError;
    case ErrorKind::Io: return PyExc_OSError;
    case ErrorKind::Device: return classes()->device.ptr();
    case ErrorKind::Compile: return classes()->compile.ptr();
    case ErrorKind::Jit: return classes()->jit.ptr();
    case ErrorKind::Internal: return classes()->internal.ptr();
  }
  return PyExc_RuntimeError;
}

nb::object flag_object(const FlagValue& v) {
  if (const auto* i = std::get_if<int64_t>(&v)) return nb::int_(*i);
  return nb::str(std::get<std::string>(v).c_str());
}

FlagValue to_flag(nb::handle h) {
  if (nb::isinstance<nb::bool_>(h)) return int64_t{nb::cast<bool>(h)};
  if (nb::isinstance<nb::int_>(h)) return to_int(h, "flag");
  return std::string(nb::str(h).c_str());
}

nb::object make_class(nb::module_& m, const char* name, PyObject* base) {
  nb::object c = nb::steal(PyErr_NewException((std::string("whit.") + name).c_str(), base, nullptr));
  m.attr(name) = c;
  return c;
}

}  // namespace

namespace {
// nanobind says itself what arguments a function does not take. Its functions are called through a pointer in each of them,
// which is replaced, so that the text of that error reads like all others (whit/arguments.py).
using Call = PyObject* (*)(PyObject*, PyObject* const*, size_t, PyObject*);
Call originals[8];  // nanobind has a few kinds of functions

void reword_type_error() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const nb::object text = nb::steal(PyObject_Str(value));
  nb::object said = text;
  if (std::string_view(nb::str(text).c_str()).find("(): incompatible function arguments") != std::string_view::npos)
    said = nb::module_::import_("whit.arguments").attr("explain")(text);
  if (said.is(text)) PyErr_Restore(type, value, trace);
  else {
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace);
    PyErr_SetObject(PyExc_TypeError, said.ptr());
  }
}
template <int kI> PyObject* call(PyObject* f, PyObject* const* args, size_t n, PyObject* names) {
  PyObject* out = originals[kI](f, args, n, names);
  if (!out && PyErr_ExceptionMatches(PyExc_TypeError)) try {
      reword_type_error();
    } catch (nb::python_error& e) {
      e.restore();
    }
  return out;
}
constexpr Call kCalls[] = {call<0>, call<1>, call<2>, call<3>, call<4>, call<5>, call<6>, call<7>};

void reword_errors_of(nb::handle f) {
  if (f.type().is(reinterpret_cast<PyObject*>(&PyProperty_Type))) {
    for (const char* part : {"fget", "fset"}) reword_errors_of(f.attr(part));
    return;
  }
  const auto kind = nb::cast<std::string>(f.type().attr("__name__"));
  if (kind != "nb_func" && kind != "nb_method") return;
  constexpr size_t kOffset = sizeof(PyVarObject);  // where nanobind has the pointer; the stable ABI hides what the type says
#ifndef Py_LIMITED_API
  WHIT_CHECK(Py_TYPE(f.ptr())->tp_vectorcall_offset == kOffset, "a call of nanobind at offset {}", Py_TYPE(f.ptr())->tp_vectorcall_offset);
#endif
  auto& slot = *reinterpret_cast<Call*>(reinterpret_cast<char*>(f.ptr()) + kOffset);
  for (size_t i = 0; i < std::size(originals); ++i) {
    if (slot == kCalls[i]) return;
    if (!originals[i]) originals[i] = slot;
    if (originals[i] != slot) continue;
    slot = kCalls[i];
    return;
  }
}
void reword_errors(nb::handle holder) {
  for (nb::handle value : nb::list(holder.attr("__dict__").attr("values")())) {
    reword_errors_of(value);
    if (PyType_Check(value.ptr()) && nb::cast<std::string>(value.attr("__module__")) == "whit._whit") reword_errors(value);
  }
}
}  // namespace

void reword_all_errors(nb::module_& m) { reword_errors(m); }

nb::object error_class(ErrorKind kind) { return nb::borrow(python_class(kind)); }

}  // namespace whit::python

NB_MODULE(_whit, m) {
  using namespace whit;
  using namespace whit::python;
  m.doc() = "The C++ half of whit.";
  m.attr("__version__") = "0.1.0";
  nb::set_leak_warnings(false);  // tensors held by module globals outlive the module; that is not a leak

  classes()->internal = make_class(m, "InternalError", PyExc_RuntimeError);
  classes()->device = make_class(m, "DeviceError", PyExc_RuntimeError);
  classes()->compile = make_class(m, "CompileError", PyExc_RuntimeError);
  classes()->jit = make_class(m, "JitError", PyExc_RuntimeError);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      // A message may quote a file that is no text.
      const std::string_view what = e.what();
      nb::object text = nb::steal(PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "backslashreplace"));
      const bool missing = e.kind() == ErrorKind::Io && what.ends_with(std::strerror(ENOENT));
      if (text.is_valid()) PyErr_SetObject(missing ? PyExc_FileNotFoundError : python_class(e.kind()), text.ptr());
    } catch (const nb::cast_error&) {
      PyErr_SetString(PyExc_TypeError, "an argument has a type that this call does not take");
    }
  });

  m.def("has_flag", [](std::string_view name) {
    for (const FlagInfo& f : flag_infos())
      if (name == f.name) return true;
    return false;
  });
  m.def("flag_names", [] {
    nb::list names;
    for (const FlagInfo& f : flag_infos()) names.append(f.name);
    return names;
  });
  m.def("flag", [](std::string_view name) { return flag_object(flag_value(name)); });
  m.def("set_flag", [](std::string_view name, nb::handle v) { set_flag(name, to_flag(v)); });
  check_flags();

  bind_dtype(m);
  bind_uop(m);
  TensorClass tensor(m, "Tensor", nb::is_weak_referenceable(), nb::dynamic_attr(), nb::type_slots(tensor_slots()),
                     "A lazy, differentiable, n-dimensional array. Building runs nothing; realize, numpy, "
                     "tolist, item and printing run it.");
  bind_tensor(m, tensor);
  bind_tensor_ops(tensor);
  bind_tensor_nn(tensor);
  bind_interop(tensor);
  bind_runtime(m);
  bind_io(m);
  bind_nn(m);
  bind_rewrite(m);
  bind_lower(m);
  bind_graph(m);
  bind_jit(m);
  bind_transform(m);
  bind_extend(m);
  reword_all_errors(m);
}
