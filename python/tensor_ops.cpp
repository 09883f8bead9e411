// Tensor: elementwise operations, operators, reductions.
#include "convert.h"

namespace whit::python {
namespace {

using Op2 = Tensor (Tensor::*)(const Tensor&) const;

// A binary method with `reverse`, as tinygrad programs call it.
template <Op2 F> void reversible(TensorClass& t, const char* name) {
  t.def(
      name,
      [name](const Tensor& a, nb::handle b, bool reverse) {
        const Tensor x = to_tensor(b, name);
        return reverse ? (x.*F)(a) : (a.*F)(x);
      },
      nb::arg("x"), nb::arg("reverse") = false);
}

template <Op2 F> void plain(TensorClass& t, const char* name, const char* arg = "x") {
  t.def(name, [name](const Tensor& a, nb::handle b) { return (a.*F)(to_tensor(b, name)); }, nb::arg(arg));
}

// What Python's data model needs: the other side may be something that answers by itself.
bool is_operand(nb::handle h) {
  return nb::isinstance<Tensor>(h) || nb::isinstance<PyUOp>(h) || PyBool_Check(h.ptr()) || PyLong_Check(h.ptr()) || PyFloat_Check(h.ptr()) ||
         PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()) || nb::hasattr(h, "__array_interface__") || nb::hasattr(h, "__array__");
}

template <Op2 F> void dunder(TensorClass& t, const char* name, const char* reflected) {
  t.def(
      name,
      [name](const Tensor& a, nb::handle b) -> TensorObject {
        if (!is_operand(b)) return nb::borrow(Py_NotImplemented);
        return nb::cast((a.*F)(to_tensor(b, name)));
      },
      nb::arg().none());
  if (reflected)
    t.def(
        reflected,
        [name](const Tensor& a, nb::handle b) -> TensorObject {
          if (!is_operand(b)) return nb::borrow(Py_NotImplemented);
          return nb::cast((to_tensor(b, name).*F)(a));
        },
        nb::arg().none());
}

template <Op2 F> void inplace(TensorClass& t, const char* name) {
  t.def(name, [name](nb::object self, nb::handle b) -> TensorObject {
    Tensor& a = nb::cast<Tensor&>(self);
    a.assign((a.*F)(to_tensor(b, name)));
    return self;
  });
}

std::optional<Tensor> optional_tensor(nb::handle h, const char* op) {
  if (h.is_none()) return std::nullopt;
  return to_tensor(h, op);
}

template <Tensor (Tensor::*F)(const Axes&, bool) const> void reduction(TensorClass& t, const char* name) {
  t.def(
      name, [](const Tensor& x, nb::handle axis, bool keepdim) { return (x.*F)(to_axes(axis), keepdim); }, nb::arg("axis") = nb::none(),
      nb::arg("keepdim") = false);
}

TensorPair pair_to_tuple(const std::pair<Tensor, Tensor>& p) { return nb::make_tuple(p.first, p.second); }
Tensor fold(nb::args args, const char* op, Op2 f) {
  WHIT_USER(args.size() > 0, Value, "[{}] expected at least one operand", op);
  Tensor x = to_tensor(args[0], op);
  for (size_t i = 1; i < args.size(); ++i) x = (x.*f)(to_tensor(args[i], op));
  return x;
}

}  // namespace

void bind_tensor_ops(TensorClass& t) {
#define WHIT_UNARY(NAME) t.def(#NAME, &Tensor::NAME)
  WHIT_UNARY(neg);
  WHIT_UNARY(logical_not);
  WHIT_UNARY(bitwise_not);
  WHIT_UNARY(reciprocal);
  WHIT_UNARY(trunc);
  WHIT_UNARY(ceil);
  WHIT_UNARY(floor);
  WHIT_UNARY(round);
  WHIT_UNARY(sqrt);
  WHIT_UNARY(rsqrt);
  WHIT_UNARY(square);
  WHIT_UNARY(sign);
  WHIT_UNARY(abs);
  WHIT_UNARY(exp);
  WHIT_UNARY(exp2);
  WHIT_UNARY(log);
  WHIT_UNARY(log2);
  WHIT_UNARY(log10);
  WHIT_UNARY(sin);
  WHIT_UNARY(cos);
  WHIT_UNARY(tan);
  WHIT_UNARY(asin);
  WHIT_UNARY(acos);
  WHIT_UNARY(atan);
  WHIT_UNARY(sinh);
  WHIT_UNARY(cosh);
  WHIT_UNARY(tanh);
  WHIT_UNARY(asinh);
  WHIT_UNARY(acosh);
  WHIT_UNARY(atanh);
  WHIT_UNARY(erf);
  WHIT_UNARY(isnan);
  WHIT_UNARY(isfinite);
  WHIT_UNARY(relu);
  WHIT_UNARY(relu6);
  WHIT_UNARY(sigmoid);
  WHIT_UNARY(logsigmoid);
  WHIT_UNARY(hardswish);
  WHIT_UNARY(quick_gelu);
  WHIT_UNARY(swish);
  WHIT_UNARY(silu);
  WHIT_UNARY(softsign);
  WHIT_UNARY(mish);
#undef WHIT_UNARY
  t.def("isinf", &Tensor::isinf, nb::arg("detect_positive") = true, nb::arg("detect_negative") = true)
      .def("hardsigmoid", &Tensor::hardsigmoid, nb::arg("alpha") = 1.0 / 6, nb::arg("beta") = 0.5)
      .def("hardtanh", &Tensor::hardtanh, nb::arg("min_val") = -1.0, nb::arg("max_val") = 1.0)
      .def("leaky_relu", &Tensor::leaky_relu, nb::arg("neg_slope") = 0.01)
      .def("elu", &Tensor::elu, nb::arg("alpha") = 1.0)
      .def("celu", &Tensor::celu, nb::arg("alpha") = 1.0)
      .def("selu", &Tensor::selu, nb::arg("alpha") = 1.67326, nb::arg("gamma") = 1.0507)
      .def("gelu", &Tensor::gelu, nb::arg("approximate") = "tanh")
      .def("softplus", &Tensor::softplus, nb::arg("beta") = 1.0);
  for (const char* name : {"clamp", "clip"})
    t.def(
        name, [](const Tensor& x, nb::handle lo, nb::handle hi) { return x.clamp(optional_tensor(lo, "clamp"), optional_tensor(hi, "clamp")); },
        nb::arg("min_") = nb::none(), nb::arg("max_") = nb::none());

  // dtypes
  t.def(
       "cast", [](const Tensor& x, nb::handle d) { return x.cast(to_dtype(d)); }, nb::arg("dtype"))
      .def(
          "bitcast", [](const Tensor& x, nb::handle d) { return x.bitcast(to_dtype(d)); }, nb::arg("dtype"))
      .def("float", [](const Tensor& x) { return x.cast(DType::Float32); })
      .def("half", [](const Tensor& x) { return x.cast(DType::Float16); })
      .def("int", [](const Tensor& x) { return x.cast(DType::Int32); })
      .def("bool", [](const Tensor& x) { return x.cast(DType::Bool); })
      .def("bfloat16", [](const Tensor& x) { return x.cast(DType::BFloat16); })
      .def("double", [](const Tensor& x) { return x.cast(DType::Float64); })
      .def("long", [](const Tensor& x) { return x.cast(DType::Int64); })
      .def("short", [](const Tensor& x) { return x.cast(DType::Int16); });

  // binary
  reversible<&Tensor::add>(t, "add");
  reversible<&Tensor::sub>(t, "sub");
  reversible<&Tensor::mul>(t, "mul");
  reversible<&Tensor::mod>(t, "mod");
  reversible<&Tensor::pow>(t, "pow");
  reversible<&Tensor::bitwise_and>(t, "bitwise_and");
  reversible<&Tensor::bitwise_or>(t, "bitwise_or");
  reversible<&Tensor::bitwise_xor>(t, "bitwise_xor");
  reversible<&Tensor::lshift>(t, "lshift");
  reversible<&Tensor::rshift>(t, "rshift");
  t.def(
      "div",
      [](const Tensor& a, nb::handle b, bool reverse, nb::handle mode) {
        const Tensor x = to_tensor(b, "div");
        const std::string m = mode.is_none() ? "" : nb::cast<std::string>(mode);
        return reverse ? x.div(a, m) : a.div(x, m);
      },
      nb::arg("x"), nb::arg("reverse") = false, nb::arg("rounding_mode") = nb::none());
  plain<&Tensor::fmod>(t, "fmod");
  plain<&Tensor::maximum>(t, "maximum");
  plain<&Tensor::minimum>(t, "minimum");
  plain<&Tensor::eq>(t, "eq");
  plain<&Tensor::ne>(t, "ne");
  plain<&Tensor::copysign>(t, "copysign", "other");
  plain<&Tensor::logaddexp>(t, "logaddexp", "other");
  plain<&Tensor::threefry>(t, "threefry", "seed");
  t.def(
       "lerp", [](const Tensor& a, nb::handle e, nb::handle w) { return a.lerp(to_tensor(e, "lerp"), to_tensor(w, "lerp")); }, nb::arg("end"),
       nb::arg("weight"))
      .def(
          "where", [](const Tensor& c, nb::handle x, nb::handle y) { return c.where(to_tensor(x, "where"), to_tensor(y, "where")); }, nb::arg("x"),
          nb::arg("y"))
      .def(
          "isclose",
          [](const Tensor& a, nb::handle b, double rtol, double atol, bool equal_nan) {
            return a.isclose(to_tensor(b, "isclose"), {.rtol = rtol, .atol = atol, .equal_nan = equal_nan});
          },
          nb::arg("other"), nb::arg("rtol") = 1e-5, nb::arg("atol") = 1e-8, nb::arg("equal_nan") = false)
      .def(
          "allclose",
          [](const Tensor& a, nb::handle b, double rtol, double atol, bool equal_nan) {
            return a.allclose(to_tensor(b, "allclose"), {.rtol = rtol, .atol = atol, .equal_nan = equal_nan});
          },
          nb::arg("other"), nb::arg("rtol") = 1e-5, nb::arg("atol") = 1e-8, nb::arg("equal_nan") = false)
      .def(
          "ufix",
          [](nb::handle self, nb::handle x) -> TensorObject {
            if (nb::isinstance<Tensor>(x)) return nb::borrow(x);
            return nb::cast(nb::cast<Tensor&>(self).const_like(to_tensor(x, "ufix")));
          },
          nb::arg("x"))
      .def(
          "usum", [](const Tensor& a, nb::args r) { return r.size() ? a.add(fold(r, "usum", &Tensor::add)) : a; }, nb::arg("uops"))
      .def("uprod", [](const Tensor& a, nb::args r) { return r.size() ? a.mul(fold(r, "uprod", &Tensor::mul)) : a; }, nb::arg("uops"));

  // operators
  dunder<&Tensor::add>(t, "__add__", "__radd__");
  dunder<&Tensor::sub>(t, "__sub__", "__rsub__");
  dunder<&Tensor::mul>(t, "__mul__", "__rmul__");
  dunder<&Tensor::floordiv>(t, "__floordiv__", "__rfloordiv__");
  dunder<&Tensor::mod>(t, "__mod__", "__rmod__");
  dunder<&Tensor::pow>(t, "__pow__", "__rpow__");
  dunder<&Tensor::bitwise_and>(t, "__and__", "__rand__");
  dunder<&Tensor::bitwise_or>(t, "__or__", "__ror__");
  dunder<&Tensor::bitwise_xor>(t, "__xor__", "__rxor__");
  dunder<&Tensor::lshift>(t, "__lshift__", "__rlshift__");
  dunder<&Tensor::rshift>(t, "__rshift__", "__rrshift__");
  dunder<&Tensor::lt>(t, "__lt__", nullptr);
  dunder<&Tensor::gt>(t, "__gt__", nullptr);
  dunder<&Tensor::le>(t, "__le__", nullptr);
  dunder<&Tensor::ge>(t, "__ge__", nullptr);
  dunder<&Tensor::eq>(t, "__eq__", nullptr);
  dunder<&Tensor::ne>(t, "__ne__", nullptr);
  t.def("__truediv__",
        [](const Tensor& a, nb::handle b) -> TensorObject {
          if (!is_operand(b)) return nb::borrow(Py_NotImplemented);
          return nb::cast(a.div(to_tensor(b, "div")));
        })
      .def("__rtruediv__",
           [](const Tensor& a, nb::handle b) -> TensorObject {
             if (!is_operand(b)) return nb::borrow(Py_NotImplemented);
             return nb::cast(to_tensor(b, "div").div(a));
           })
      .def("__matmul__", [](const Tensor& a, nb::handle b) { return a.dot(to_tensor(b, "matmul")); })
      .def("__rmatmul__", [](const Tensor& a, nb::handle b) { return to_tensor(b, "matmul").dot(a); })
      .def("__neg__", &Tensor::neg)
      .def("__invert__", &Tensor::bitwise_not)
      .def("__abs__", &Tensor::abs);
  inplace<&Tensor::add>(t, "__iadd__");
  inplace<&Tensor::sub>(t, "__isub__");
  inplace<&Tensor::mul>(t, "__imul__");
  inplace<&Tensor::floordiv>(t, "__ifloordiv__");
  inplace<&Tensor::pow>(t, "__ipow__");
  inplace<&Tensor::bitwise_and>(t, "__iand__");
  inplace<&Tensor::bitwise_or>(t, "__ior__");
  inplace<&Tensor::bitwise_xor>(t, "__ixor__");
  inplace<&Tensor::lshift>(t, "__ilshift__");
  inplace<&Tensor::rshift>(t, "__irshift__");
  t.def("__itruediv__", [](nb::object self, nb::handle b) -> TensorObject {
     Tensor& a = nb::cast<Tensor&>(self);
     a.assign(a.div(to_tensor(b, "div")));
     return self;
   }).def("__imatmul__", [](nb::object self, nb::handle b) -> TensorObject {
    Tensor& a = nb::cast<Tensor&>(self);
    a.assign(a.dot(to_tensor(b, "matmul")));
    return self;
  });

  // reductions
  t.def(
       "sum", [](const Tensor& x, nb::handle axis, bool keepdim, nb::handle dt) { return x.sum(to_axes(axis), keepdim, to_optional_dtype(dt)); },
       nb::arg("axis") = nb::none(), nb::arg("keepdim") = false, nb::arg("dtype") = nb::none())
      .def(
          "prod", [](const Tensor& x, nb::handle axis, bool keepdim, nb::handle dt) { return x.prod(to_axes(axis), keepdim, to_optional_dtype(dt)); },
          nb::arg("axis") = nb::none(), nb::arg("keepdim") = false, nb::arg("dtype") = nb::none());
  reduction<&Tensor::max>(t, "max");
  reduction<&Tensor::min>(t, "min");
  reduction<&Tensor::any>(t, "any");
  reduction<&Tensor::all>(t, "all");
  reduction<&Tensor::mean>(t, "mean");
  reduction<&Tensor::logsumexp>(t, "logsumexp");
#define WHIT_VARIANCE(NAME, RESULT)                                                                                                                \
  t.def(                                                                                                                                           \
      #NAME, [](const Tensor& x, nb::handle axis, bool keepdim, double correction) { return RESULT(x.NAME(to_axes(axis), keepdim, correction)); }, \
      nb::arg("axis") = nb::none(), nb::arg("keepdim") = false, nb::arg("correction") = 1.0)
  WHIT_VARIANCE(var, );
  WHIT_VARIANCE(std, );
  WHIT_VARIANCE(var_mean, pair_to_tuple);
  WHIT_VARIANCE(std_mean, pair_to_tuple);
#undef WHIT_VARIANCE
  t.def("argmax", &Tensor::argmax, nb::arg("axis") = nb::none(), nb::arg("keepdim") = false)
      .def("argmin", &Tensor::argmin, nb::arg("axis") = nb::none(), nb::arg("keepdim") = false)
      .def("normalize", &Tensor::normalize, nb::arg("p") = 2.0, nb::arg("dim") = 1, nb::arg("eps") = 1e-12)
      .def(
          "softmax", [](const Tensor& x, int64_t a, nb::handle d) { return x.softmax(a, to_optional_dtype(d)); }, nb::arg("axis") = -1,
          nb::arg("dtype") = nb::none())
      .def(
          "log_softmax", [](const Tensor& x, int64_t a, nb::handle d) { return x.log_softmax(a, to_optional_dtype(d)); }, nb::arg("axis") = -1,
          nb::arg("dtype") = nb::none())
      .def(
          "softmin", [](const Tensor& x, int64_t a, nb::handle d) { return x.softmin(a, to_optional_dtype(d)); }, nb::arg("axis") = -1,
          nb::arg("dtype") = nb::none())
      .def("cumsum", &Tensor::cumsum, nb::arg("axis") = 0)
      .def("cumprod", &Tensor::cumprod, nb::arg("axis"))
      .def(
          "cummax", [](const Tensor& x, int64_t a) { return pair_to_tuple(x.cummax(a)); }, nb::arg("axis") = 0)
      .def(
          "cummin", [](const Tensor& x, int64_t a) { return pair_to_tuple(x.cummin(a)); }, nb::arg("axis") = 0)
      .def("logcumsumexp", &Tensor::logcumsumexp, nb::arg("axis") = 0);
}

}  // namespace whit::python
