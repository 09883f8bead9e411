#include "convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "engine/jit.h"
#include "ir/eval.h"
#include "ir/uop.h"
#include "tensor/impl.h"

namespace whit::python {
namespace {

std::string python_type(nb::handle h) { return nb::type_name(h.type()).c_str(); }

bool is_plain_int(nb::handle h) { return PyLong_Check(h.ptr()) && !PyBool_Check(h.ptr()); }

nb::module_ numpy() { return nb::module_::import_("numpy"); }

// Without importing NumPy for programs that do not use it.
bool is_numpy(nb::handle h) {
  const char* module = "";
  nb::object m = nb::getattr(h.type(), "__module__", nb::str(""));
  if (nb::isinstance<nb::str>(m)) module = nb::borrow<nb::str>(m).c_str();
  return std::strncmp(module, "numpy", 5) == 0;
}
bool is_ndarray(nb::handle h) { return is_numpy(h) && nb::hasattr(h, "__array_interface__") && nb::hasattr(h, "shape"); }

Tensor constant_from(nb::handle h, DType dt) {
  if (is_float(dt)) return Tensor::constant(nb::cast<double>(nb::float_(h)), dt);
  nb::object as_int = nb::int_(nb::borrow(h));
  if (dt == DType::UInt64) {
    const uint64_t v = PyLong_AsUnsignedLongLongMask(as_int.ptr());
    if (PyErr_Occurred()) throw nb::python_error();
    return Tensor::constant_int(static_cast<int64_t>(v), dt);
  }
  return Tensor::constant_int(static_cast<int64_t>(PyLong_AsUnsignedLongLongMask(as_int.ptr())), dt);
}

Tensor weak_int(nb::handle h) {
  int overflow = 0;
  const long long v = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
  if (overflow == 0) return Tensor(static_cast<int64_t>(v));
  if (overflow > 0) {
    const unsigned long long u = PyLong_AsUnsignedLongLong(h.ptr());
    if (!PyErr_Occurred()) return Tensor(static_cast<uint64_t>(u));
    PyErr_Clear();
  }
  raise(ErrorKind::Overflow, "[Tensor] an integer constant does not fit into 64 bits");
}

Tensor from_scalar(nb::handle h) {
  if (PyBool_Check(h.ptr())) return Tensor(h.ptr() == Py_True);
  if (PyLong_Check(h.ptr())) return weak_int(h);
  return Tensor(PyFloat_AsDouble(h.ptr()));
}

// A nested list, flattened: its shape and leaves in row-major order.
void flatten_list(nb::handle h, size_t depth, std::vector<int64_t>& shape, std::vector<nb::handle>& leaves, bool& leaf_seen) {
  const bool is_list = PyList_Check(h.ptr()) || PyTuple_Check(h.ptr());
  if (!is_list) {
    WHIT_USER(!leaf_seen || depth == shape.size(), Value, "[Tensor] inhomogeneous shape: an element at depth {} where the shape has {} axes", depth,
              shape.size());
    leaf_seen = true;
    leaves.push_back(h);
    return;
  }
  WHIT_USER(depth < 64, Value, "[Tensor] a list nested deeper than 64");
  const Py_ssize_t n = PySequence_Size(h.ptr());
  if (depth == shape.size()) {
    WHIT_USER(!leaf_seen, Value, "[Tensor] inhomogeneous shape: a list at depth {} where there are elements", depth);
    shape.push_back(n);
  } else {
    WHIT_USER(shape[depth] == n, Value, "[Tensor] inhomogeneous shape: lists of {} and {} elements at depth {}", shape[depth], n, depth);
  }
  for (Py_ssize_t i = 0; i < n; ++i)  // not the macros: the stable ABI has none
    flatten_list(PyList_Check(h.ptr()) ? PyList_GetItem(h.ptr(), i) : PyTuple_GetItem(h.ptr(), i), depth + 1, shape, leaves, leaf_seen);
}

Scalar scalar_from(nb::handle h, DType dt) {
  if (is_float(dt)) return Scalar::of(dt, PyFloat_AsDouble(nb::float_(h).ptr()));
  if (PyFloat_Check(h.ptr())) {
    const Scalar f = Scalar::of(DType::Float64, PyFloat_AsDouble(h.ptr()));
    return eval_scalar(Op::Cast, dt, std::span(&f, 1));
  }
  return Scalar::of(dt, static_cast<int64_t>(PyLong_AsUnsignedLongLongMask(h.ptr())));
}

Tensor from_array(nb::handle data, nb::handle device, nb::handle dtype) {
  nb::object np = numpy();
  nb::object arr = np.attr("asarray")(data);
  const std::string kind = nb::cast<std::string>(arr.attr("dtype").attr("name"));
  if (nb::cast<int>(arr.attr("ndim")) == 0) {
    const DType own = dtype_by_name(kind);
    Tensor t = constant_from(arr.attr("item")(), own);
    if (!dtype.is_none()) t = t.cast(to_dtype(dtype));
    return device.is_none() ? t : t.clone(to_device(device));
  }
  const DType own = dtype_by_name(kind);
  std::vector<int64_t> shape;
  for (nb::handle d : arr.attr("shape")) shape.push_back(nb::cast<int64_t>(d));
  arr = np.attr("ascontiguousarray")(arr, arr.attr("dtype").attr("newbyteorder")("="));
  Py_buffer view;
  if (PyObject_GetBuffer(arr.ptr(), &view, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  Tensor t;
  try {
    static const char nothing = 0;
    t = Tensor::from_bytes(view.buf ? view.buf : &nothing, own, shape, {.device = to_device(device)});
  } catch (...) {
    PyBuffer_Release(&view);
    throw;
  }
  PyBuffer_Release(&view);
  return dtype.is_none() ? t : t.cast(to_dtype(dtype));
}

Tensor from_list(nb::handle data, nb::handle device, nb::handle dtype) {
  std::vector<int64_t> shape;
  std::vector<nb::handle> leaves;
  bool leaf_seen = false;
  flatten_list(data, 0, shape, leaves, leaf_seen);
  bool any_float = leaves.empty(), any_int = false;
  for (nb::handle x : leaves) {
    if (is_numpy(x)) return from_array(numpy().attr("asarray")(data), device, dtype);
    if (!PyBool_Check(x.ptr()) && !PyLong_Check(x.ptr()) && !PyFloat_Check(x.ptr()))
      raise(ErrorKind::Runtime, fmt::format("[Tensor] Could not infer dtype of a list element of type {}", python_type(x)));
    any_float |= PyFloat_Check(x.ptr()) != 0;
    any_int |= is_plain_int(x);
  }
  const DType dt = !dtype.is_none() ? to_dtype(dtype) : any_float ? default_float() : any_int ? default_int() : DType::Bool;
  WHIT_USER(!is_weak(dt) && dt != DType::Void, Runtime, "[Tensor] a list needs storage, which {} has not", name(dt));
  std::vector<std::byte> bytes(leaves.size() * static_cast<size_t>(n_bytes(dt)) + 1);
  for (size_t i = 0; i < leaves.size(); ++i) write_element(dt, bytes.data(), static_cast<int64_t>(i), scalar_from(leaves[i], dt));
  return Tensor::from_bytes(bytes.data(), dt, shape, {.device = to_device(device)});
}

// The bytes of a file, on DISK: read when somebody wants them.
Tensor from_file(nb::handle data, nb::handle device, nb::handle dtype) {
  const std::string path = std::filesystem::absolute(nb::cast<std::string>(nb::str(data))).lexically_normal();
  std::error_code code;
  const uintmax_t n = std::filesystem::file_size(path, code);
  WHIT_USER(!code, Io, "[Tensor] {}: {}", path, code.message());
  const DType dt = dtype.is_none() ? DType::UInt8 : to_dtype(dtype);
  WHIT_USER(!is_weak(dt) && n % static_cast<uintmax_t>(n_bytes(dt)) == 0, Runtime, "[Tensor] {}: {} bytes are no whole number of {}", path, n,
            name(dt));
  const Tensor t = Tensor::empty(static_cast<int64_t>(n) / n_bytes(dt), {.device = "DISK:" + path, .dtype = dt});
  return device.is_none() ? t : t.to(to_device(device));
}

}  // namespace

std::vector<std::string> to_device_list(nb::handle h) {
  if (nb::isinstance<nb::str>(h)) return {nb::cast<std::string>(h)};
  if (!PyTuple_Check(h.ptr()) && !PyList_Check(h.ptr()))
    raise(ErrorKind::Type, fmt::format("[device] expected names of devices, got {}", python_type(h)));
  std::vector<std::string> out;
  for (nb::handle one : h) {
    if (!nb::isinstance<nb::str>(one)) raise(ErrorKind::Type, fmt::format("[device] expected a device name, got {}", python_type(one)));
    out.push_back(nb::cast<std::string>(one));
  }
  WHIT_USER(!out.empty(), Value, "[device] an empty list; expected at least one name");
  return out;
}

AnyObject device_object(const std::vector<std::string>& devices) {
  if (devices.empty()) return nb::none();
  if (devices.size() == 1) return nb::cast(devices[0]);
  return nb::tuple(nb::cast(devices));
}

std::optional<std::string> to_device(nb::handle h) {
  if (h.is_none()) return std::nullopt;
  if (nb::isinstance<nb::str>(h)) return nb::cast<std::string>(h);
  if ((PyTuple_Check(h.ptr()) || PyList_Check(h.ptr())) && nb::len(h) == 1) return to_device(nb::object(h[0]));
  if (PyTuple_Check(h.ptr()) || PyList_Check(h.ptr())) return join(to_device_list(h), ",");
  raise(ErrorKind::Type, fmt::format("[device] expected a device name, got {}", python_type(h)));
}

int64_t to_int(nb::handle h, const char* what) {
  if (PyFloat_Check(h.ptr()) || !nb::hasattr(h, "__index__"))
    raise(ErrorKind::Type, fmt::format("[{}] expected an integer, got {}", what, python_type(h)));
  nb::object i = nb::steal(PyNumber_Index(h.ptr()));
  if (!i.is_valid()) throw nb::python_error();
  int overflow = 0;
  const int64_t v = PyLong_AsLongLongAndOverflow(i.ptr(), &overflow);
  WHIT_USER(overflow == 0, Overflow, "[{}] {} does not fit in 64 bits", what, nb::repr(i).c_str());
  return v;
}

Sint to_sint(nb::handle h, const char* what) {
  UOp u;
  if (nb::try_cast<UOp>(h, u)) return u;
  return to_int(h, what);
}

IntList to_ints(nb::handle h, const char* what) {
  UOp u;
  if (nb::try_cast<UOp>(h, u)) return u;
  if (PyFloat_Check(h.ptr()) || nb::isinstance<nb::str>(h))
    raise(ErrorKind::Type, fmt::format("[{}] expected integers, got {}", what, python_type(h)));
  if (nb::hasattr(h, "__index__")) return to_int(h, what);
  Sints out;
  if (!nb::isinstance<nb::sequence>(h)) raise(ErrorKind::Type, fmt::format("[{}] expected integers, got {}", what, python_type(h)));
  for (nb::handle x : nb::borrow<nb::sequence>(h)) {
    if ((PyTuple_Check(x.ptr()) || PyList_Check(x.ptr()))) {
      const IntList inner = to_ints(x, what);
      for (size_t i = 0; i < inner.size(); ++i) out.push_back(inner.at(i));
      continue;
    }
    out.push_back(to_sint(x, what));
  }
  return out;
}

nb::tuple joined(nb::handle first, nb::args rest) { return nb::tuple(nb::make_tuple(first) + nb::object(rest)); }

IntList to_ints_args(nb::tuple args, const char* what, int64_t none_value) {
  auto convert = [&](nb::handle seq) {
    Sints out;
    for (nb::handle x : nb::borrow<nb::sequence>(seq)) {
      if (x.is_none()) {
        out.push_back(none_value);
        continue;
      }
      if (PyFloat_Check(x.ptr())) raise(ErrorKind::Type, fmt::format("[{}] expected integers, got float", what));
      out.push_back(to_sint(x, what));
    }
    return IntList(out);
  };
  if (args.size() >= 1 && (PyTuple_Check(args[0].ptr()) || PyList_Check(args[0].ptr()))) {
    WHIT_USER(args.size() == 1, Value, "[{}] bad arg: a list or single values, not both", what);
    return convert(args[0]);
  }
  return convert(args);
}

Axes to_axes(nb::handle h) {
  if (h.is_none()) return {};
  return to_ints(h, "axis");
}

IntTuple to_tuple(const Shape& shape) {
  nb::list l;
  for (size_t i = 0; i < shape.size(); ++i)
    if (const Node* symbol = shape.symbol(i)) l.append(uop_object(UOp(symbol)));
    else l.append(shape[i]);
  return nb::tuple(l);
}

Tensor to_tensor(nb::handle h, const char* op) {
  Tensor* t = nullptr;
  if (nb::try_cast<Tensor*>(h, t, false) && t) return *t;
  if (PyBool_Check(h.ptr()) || PyLong_Check(h.ptr()) || PyFloat_Check(h.ptr())) return from_scalar(h);
  if (UOp u; nb::try_cast<UOp>(h, u)) return Tensor(u);
  if (is_numpy(h)) {
    if (nb::hasattr(h, "shape") && nb::len(nb::object(h.attr("shape"))) == 0) return from_scalar(nb::object(h.attr("item")()));
    return make_tensor(h, nb::none(), nb::none());
  }
  if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr())) return make_tensor(h, nb::none(), nb::none());
  raise(ErrorKind::Type, fmt::format("[{}] expected a Tensor or a number, got {}", op, python_type(h)));
}

Tensor to_value(nb::handle h, const Tensor& target, const char* op) {
  const bool number = PyBool_Check(h.ptr()) || PyLong_Check(h.ptr()) || PyFloat_Check(h.ptr());
  const bool array = PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()) || is_numpy(h);
  if (is_weak(target.dtype()) || !(number || array)) return to_tensor(h, op);
  return make_tensor(h, nb::none(), dtype_object(target.dtype()));
}

std::vector<Tensor> to_tensors(nb::handle list, const char* op) {
  std::vector<Tensor> out;
  for (nb::handle h : nb::borrow<nb::iterable>(list)) out.push_back(to_tensor(h, op));
  return out;
}

TensorTuple tensors_to_tuple(const std::vector<Tensor>& ts) {
  nb::list l;
  for (const Tensor& t : ts) l.append(nb::cast(t));
  return nb::tuple(l);
}

Tensor make_tensor(nb::handle data, nb::handle device, nb::handle dtype) {
  Tensor* same = nullptr;
  if (data.is_none()) {
    Tensor t = Tensor(0.0);
    if (!dtype.is_none()) t = Tensor::constant(0, to_dtype(dtype));
    return device.is_none() ? t : t.clone(to_device(device));
  }
  if (UOp u; nb::try_cast<UOp>(data, u)) {
    const Tensor t = dtype.is_none() ? Tensor(u) : Tensor(u).cast(to_dtype(dtype));
    return device.is_none() ? t : t.clone(to_device(device));
  }
  // np.float64 is a Python float too.
  if (PyBool_Check(data.ptr()) || PyLong_Check(data.ptr()) || PyFloat_Check(data.ptr())) {
    Tensor t = dtype.is_none() ? from_scalar(data) : from_scalar(data).cast(to_dtype(dtype));
    return device.is_none() ? t : t.clone(to_device(device));
  }
  if (is_ndarray(data) || (is_numpy(data) && nb::hasattr(data, "item"))) return from_array(data, device, dtype);
  if (nb::isinstance<nb::bytes>(data)) {
    nb::bytes b = nb::borrow<nb::bytes>(data);
    const DType dt = dtype.is_none() ? DType::UInt8 : to_dtype(dtype);
    WHIT_USER(!is_weak(dt) && b.size() % static_cast<size_t>(n_bytes(dt)) == 0, Runtime, "[Tensor] {} bytes are no whole number of {}", b.size(),
              name(dt));
    return Tensor::from_bytes(b.data(), dt, static_cast<int64_t>(b.size()) / n_bytes(dt), {.device = to_device(device)});
  }
  if (PyList_Check(data.ptr()) || PyTuple_Check(data.ptr())) return from_list(data, device, dtype);
  if (nb::try_cast<Tensor*>(data, same, false) && same) {
    Tensor t = Tensor(same->uop());
    if (!dtype.is_none()) t = t.cast(to_dtype(dtype));
    return device.is_none() ? t : t.to(to_device(device));
  }
  UOp node;
  if (nb::try_cast<UOp>(data, node)) return Tensor(node);
  if (nb::hasattr(data, "__fspath__")) return from_file(data, device, dtype);
  if (nb::hasattr(data, "detach") && nb::hasattr(data, "numpy"))  // PyTorch
    return from_array(data.attr("detach")().attr("cpu")().attr("numpy")(), device, dtype);
  if (nb::hasattr(data, "__array__")) return from_array(data, device, dtype);
  raise(ErrorKind::Runtime,
        fmt::format("[Tensor] can't create Tensor from {}; expected a number, a list, bytes, an array, a path or a Tensor", python_type(data)));
}

Index to_index(nb::handle h, const Tensor& self) {
  if (h.is_none()) return NewAxis;
  if (h.ptr() == Py_Ellipsis) return Ellipsis;
  if (PySlice_Check(h.ptr())) {
    auto bound = [&](const char* which) -> std::optional<Sint> {
      nb::object v = h.attr(which);
      if (v.is_none()) return std::nullopt;
      if (UOp u; nb::try_cast<UOp>(v, u)) return u;
      if (!nb::hasattr(v, "__index__") || nb::isinstance<Tensor>(v))
        raise(ErrorKind::Type, fmt::format("[getitem] slice bounds must be integers, got {}", python_type(v)));
      // A bound beyond every axis is the end of it.
      int overflow = 0;
      nb::object i = nb::steal(PyNumber_Index(v.ptr()));
      if (!i.is_valid()) throw nb::python_error();
      const int64_t n = PyLong_AsLongLongAndOverflow(i.ptr(), &overflow);
      return Sint(overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : n);
    };
    const auto step = bound("step");
    return Slice{bound("start"), bound("stop"), step ? std::optional(step->number()) : std::nullopt};
  }
  Tensor* t = nullptr;
  if (nb::try_cast<Tensor*>(h, t, false) && t) return *t;
  if (PyBool_Check(h.ptr())) raise(ErrorKind::Index, "[getitem] a bool is no index; expected int, slice, None, ..., list or Tensor");
  if (is_ndarray(h) && nb::len(nb::object(h.attr("shape"))) > 0) return make_tensor(h, nb::none(), nb::none());
  if (UOp u; nb::try_cast<UOp>(h, u)) return u;
  if (nb::hasattr(h, "__index__")) return to_int(h, "getitem");
  if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr())) {
    std::vector<int64_t> shape;
    std::vector<nb::handle> leaves;
    bool leaf_seen = false, all_bool = true;
    flatten_list(h, 0, shape, leaves, leaf_seen);
    std::vector<int32_t> values;
    for (nb::handle x : leaves) {
      if (PyFloat_Check(x.ptr()) || !nb::hasattr(x, "__index__"))
        raise(ErrorKind::Index, fmt::format("[getitem] a list index holds a {}; expected integers", python_type(x)));
      all_bool &= PyBool_Check(x.ptr()) != 0;
      const int64_t v = to_int(x, "getitem");
      WHIT_USER(v >= INT32_MIN && v <= INT32_MAX, Index, "[getitem] index {} is out of range", v);
      values.push_back(static_cast<int32_t>(v));
    }
    if (all_bool && !leaves.empty()) raise(ErrorKind::Index, "[getitem] a list of bools is no index; expected integers, or a mask as a Tensor");
    return Tensor::from_bytes(values.data(), DType::Int32, shape, {.device = detail::home_of(self)});
  }
  raise(ErrorKind::Index, fmt::format("[getitem] a {} is no index; expected int, slice, None, ..., list or Tensor", python_type(h)));
}

std::vector<Index> to_indices(nb::handle h, const Tensor& self) {
  std::vector<Index> out;
  if (PyTuple_Check(h.ptr()))
    for (nb::handle x : nb::borrow<nb::tuple>(h)) out.push_back(to_index(x, self));
  else out.push_back(to_index(h, self));
  return out;
}

namespace {
Tensor strong(const Tensor& t) {
  const DType dt = strong_dtype(t.dtype(), default_int(), default_float());
  return dt == t.dtype() ? t : t.cast(dt);
}
nb::object element(DType dt, const void* data, int64_t i) {
  const Scalar s = read_element(dt, data, i);
  if (is_float(dt)) return nb::float_(s.f);
  if (dt == DType::Bool) return nb::bool_(s.i != 0);
  if (dt == DType::UInt64) return nb::int_(static_cast<uint64_t>(s.i));
  return nb::int_(s.i);
}
nb::object nested(DType dt, const void* data, const Shape& shape, size_t axis, int64_t& i) {
  if (axis == shape.size()) return element(dt, data, i++);
  nb::list l;
  for (int64_t k = 0; k < shape[axis]; ++k) l.append(nested(dt, data, shape, axis + 1, i));
  return l;
}
// Reading runs the graph, and what a capture records is only right when every call would read the same.
void check_not_capturing() {
  WHIT_USER(!engine::is_capturing(), Jit, "[jit] data of a tensor was read while a function is captured: a replay would not read it again");
}
std::vector<std::byte> read_bytes(const Tensor& t) {
  check_not_capturing();
  return unlocked([&] { return t.bytes(); });
}
}  // namespace

AnyObject to_list(const Tensor& self) {
  const Tensor t = strong(self);
  const Shape& shape = t.shape();
  double n_lists = 1;  // of a shape with a 0 at its end there may be any number
  for (size_t a = 0; a + 1 < shape.size() && shape[a] > 0; ++a) n_lists *= static_cast<double>(shape[a]);
  WHIT_USER(n_lists <= 1e9, Memory, "[tolist] shape {} has {:.3g} lists; expected at most 1e9", shape.str(), n_lists);
  const auto bytes = read_bytes(t);
  int64_t i = 0;
  return nested(t.dtype(), bytes.data(), t.shape(), 0, i);
}

AnyObject to_numpy(const Tensor& self) {
  check_not_capturing();
  WHIT_USER(!self.shape().is_symbolic(), Assertion, "[data] shape {} is symbolic; shrink it to numbers first", self.shape().str());
  Tensor t = strong(self);
  if (is_fp8(t.dtype()) || t.dtype() == DType::BFloat16) t = t.cast(DType::Float32);
  // Looked up once and never given back: they are modules' own.
  static PyObject* const empty = nb::object(numpy().attr("empty")).release().ptr();
  static PyObject* dtypes[kNumDTypes] = {};
  PyObject*& dtype = dtypes[static_cast<size_t>(t.dtype())];
  if (!dtype) dtype = nb::object(numpy().attr("dtype")(std::string(name(t.dtype())))).release().ptr();
  nb::object out = nb::handle(empty)(to_tuple(t.shape()), nb::handle(dtype));
  const size_t n = static_cast<size_t>(t.numel()) * static_cast<size_t>(n_bytes(t.dtype()));
  if (n != 0) {
    Py_buffer view;
    if (PyObject_GetBuffer(out.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> release(&view, PyBuffer_Release);
    unlocked([&] { t.copy_to(view.buf, n); });
  }
  return out;
}

AnyObject to_item(const Tensor& self) {
  WHIT_USER(self.numel() == 1, Assertion, "[item] must have one element for item, got shape {}", self.shape().str());
  const Tensor t = strong(self);
  const auto bytes = read_bytes(t);
  return element(t.dtype(), bytes.data(), 0);
}

}  // namespace whit::python
