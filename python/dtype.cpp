// DType objects: one a dtype, made once, so `is` works.
#include <cmath>

#include "convert.h"
#include "ir/eval.h"

namespace whit::python {
namespace {

nb::object* singletons() {
  static nb::object* all = new nb::object[kNumDTypes];
  return all;
}

const char* format_of(DType dt) {
  switch (dt) {
    case DType::Bool: return "?";
    case DType::Int8: return "b";
    case DType::UInt8: return "B";
    case DType::Int16: return "h";
    case DType::UInt16: return "H";
    case DType::Int32: return "i";
    case DType::UInt32: return "I";
    case DType::Int64: return "q";
    case DType::UInt64: return "Q";
    case DType::Float16: return "e";
    case DType::Float32: return "f";
    case DType::Float64: return "d";
    default: return nullptr;
  }
}

nb::object limit(DType dt, bool high) {
  if (is_float(dt)) return nb::float_(high ? INFINITY : -INFINITY);
  if (dt == DType::Bool) return nb::bool_(high);
  const int bits = info(dt).bits;
  nb::object one = nb::int_(1);
  if (is_unsigned(dt)) return high ? (one << nb::int_(bits)) - one : nb::object(nb::int_(0));
  nb::object half = one << nb::int_(bits - 1);
  return high ? half - one : nb::int_(0) - half;
}

nb::object const_of(DType dt, nb::handle v) {
  if (nb::isinstance<nb::sequence>(v) && !nb::isinstance<nb::str>(v)) {
    nb::list out;
    for (nb::handle x : nb::borrow<nb::sequence>(v)) out.append(const_of(dt, x));
    return nb::tuple(out);
  }
  if (is_float(dt)) return nb::float_(round_to(dt, nb::cast<double>(nb::float_(v))));
  if (dt == DType::Bool) return nb::bool_(PyObject_IsTrue(v.ptr()) == 1);
  return nb::int_(nb::borrow(v));
}

}  // namespace

DTypeObject dtype_object(DType dt) { return singletons()[static_cast<size_t>(dt)]; }

DType to_dtype(nb::handle h) {
  PyDType* p = nullptr;
  if (nb::try_cast<PyDType*>(h, p) && p) return p->dt;
  if (nb::isinstance<nb::str>(h)) return dtype_by_name(nb::cast<std::string>(h));
  raise(ErrorKind::Type, fmt::format("[dtype] expected a dtype or its name, got {}", nb::type_name(h.type()).c_str()));
}

void bind_dtype(nb::module_& m) {
  nb::class_<PyDType>(m, "DType", "An element type.")
      .def_prop_ro("name", [](const PyDType& d) { return nb::str(info(d.dt).name); })
      .def_prop_ro("itemsize", [](const PyDType& d) { return n_bytes(d.dt); })
      .def_prop_ro("bitsize", [](const PyDType& d) { return info(d.dt).bits; })
      .def_prop_ro("priority", [](const PyDType& d) { return info(d.dt).priority; })
      .def_prop_ro("fmt",
                   [](const PyDType& d) -> nb::object {
                     const char* f = format_of(d.dt);
                     return f ? nb::object(nb::str(f)) : nb::object(nb::none());
                   })
      .def_prop_ro("min", [](const PyDType& d) { return limit(d.dt, false); })
      .def_prop_ro("max", [](const PyDType& d) { return limit(d.dt, true); })
      .def_prop_ro("base", [](nb::handle self) { return nb::borrow(self); })
      .def("scalar", [](nb::handle self) { return nb::borrow(self); })
      .def(
          "const", [](const PyDType& d, nb::handle v) { return const_of(d.dt, v); }, nb::arg("v"),
          "A Python number (or tuple of them) as this dtype holds it.")
      .def("__repr__", [](const PyDType& d) { return std::string("dtypes.") + info(d.dt).alias; })
      .def("__hash__", [](const PyDType& d) { return static_cast<int>(d.dt) + 1; })
      .def(
          "__eq__",
          [](const PyDType& d, nb::handle o) {
            PyDType* p = nullptr;
            return nb::try_cast<PyDType*>(o, p) && p && p->dt == d.dt;
          },
          nb::arg().none())
      .def("__lt__",
           [](const PyDType& d, const PyDType& o) {
             return std::make_pair(info(d.dt).priority, info(d.dt).bits) < std::make_pair(info(o.dt).priority, info(o.dt).bits);
           })
      .def("__reduce__",
           [](const PyDType& d) { return nb::make_tuple(nb::module_::import_("whit.dtype").attr("to_dtype"), nb::make_tuple(info(d.dt).name)); });
  for (int i = 0; i < kNumDTypes; ++i) singletons()[i] = nb::cast(PyDType{static_cast<DType>(i)});

  m.def("dtype", [](nb::handle h) { return dtype_object(to_dtype(h)); });
  m.def(
      "bits_of",
      [](nb::handle value, nb::handle dtype) {
        const DType dt = to_dtype(dtype);
        uint64_t bits = 0;
        write_element(dt, &bits, 0, is_float(dt) ? Scalar::of(dt, nb::cast<double>(nb::float_(value))) : Scalar::of(dt, to_int(value, "bits_of")));
        return bits;
      },
      "How memory holds a number, as an unsigned integer.");
  m.def("from_bits", [](uint64_t bits, nb::handle dtype) -> nb::object {
    const DType dt = to_dtype(dtype);
    const Scalar v = read_element(dt, &bits, 0);
    if (is_float(dt)) return nb::float_(v.f);
    if (dt == DType::Bool) return nb::bool_(v.i != 0);
    return is_unsigned(dt) ? nb::object(nb::int_(static_cast<uint64_t>(v.i))) : nb::object(nb::int_(v.i));
  });
  m.def("default_float", [] { return dtype_object(default_float()); });
  m.def("default_int", [] { return dtype_object(default_int()); });
  m.def("is_float", [](nb::handle d) { return is_float(to_dtype(d)); });
  m.def("is_int", [](nb::handle d) { return is_int(to_dtype(d)); });
  m.def("is_unsigned", [](nb::handle d) { return is_unsigned(to_dtype(d)); });
  m.def("is_weak", [](nb::handle d) { return is_weak(to_dtype(d)); });
  m.def("finfo", [](nb::handle d) {
    const DTypeInfo& i = info(to_dtype(d));
    return nb::make_tuple(i.exponent_bits, i.mantissa_bits);
  });
  m.def(
      "least_upper_dtype",
      [](nb::args ds) {
        if (ds.size() == 0) raise(ErrorKind::Value, "[least_upper_dtype] expected at least one dtype");
        DType d = to_dtype(ds[0]);
        for (nb::handle h : ds) d = least_upper_dtype(d, to_dtype(h));
        return dtype_object(d);
      },
      nb::arg("ds"));
  m.def("least_upper_float", [](nb::handle d) { return dtype_object(least_upper_float(to_dtype(d), default_float())); }, nb::arg("dt"));
  m.def("strong_dtype", [](nb::handle d) { return dtype_object(strong_dtype(to_dtype(d), default_int(), default_float())); }, nb::arg("dtype"));
  m.def("weak_dtype", [](nb::handle d) { return dtype_object(weak_dtype(to_dtype(d))); }, nb::arg("dtype"));
  m.def("can_lossless_cast", [](nb::handle a, nb::handle b) { return can_lossless_cast(to_dtype(a), to_dtype(b)); }, nb::arg("dt0"), nb::arg("dt1"));
  m.def("sum_acc_dtype", [](nb::handle d) { return dtype_object(sum_acc_dtype(to_dtype(d))); }, nb::arg("dt"));
}

}  // namespace whit::python
