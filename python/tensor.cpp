// Tensor: construction, properties, running, state, creation, movement, indexing.
#include <numeric>

#include "convert.h"
#include "ir/build.h"
#include "rules/rules.h"
#include "tensor/impl.h"
#include "uop_caster.h"

namespace whit::python {
namespace {

TensorOptions options(nb::handle device, nb::handle dtype, bool buffer = true) {
  return {.device = to_device(device), .dtype = to_optional_dtype(dtype), .buffer = buffer};
}

// requires_grad=, as PyTorch's programs say is_param.
Tensor with_grad(Tensor t, nb::handle requires_grad) {
  if (!requires_grad.is_none()) t.is_param_(nb::cast<bool>(requires_grad));
  return t;
}
#define WHIT_GRAD nb::arg("requires_grad") = nb::none()

using Pair = std::pair<Sint, Sint>;

// None, or (begin, end), for each axis.
std::vector<std::optional<Pair>> to_pairs(nb::handle h, const char* op) {
  std::vector<std::optional<Pair>> out;
  for (nb::handle x : nb::borrow<nb::iterable>(h)) {
    if (x.is_none()) {
      out.emplace_back();
      continue;
    }
    const IntList p = to_ints(x, op);
    WHIT_USER(p.size() == 2, Value, "[{}] expected (begin, end) for an axis, got {} numbers", op, p.size());
    out.emplace_back(Pair{p.at(0), p.at(1)});
  }
  return out;
}

std::vector<std::optional<Sint>> to_optional_ints(nb::tuple args, const char* op) {
  std::vector<std::optional<Sint>> out;
  nb::object seq = args.size() == 1 && (PyTuple_Check(args[0].ptr()) || PyList_Check(args[0].ptr())) ? nb::object(args[0]) : nb::object(args);
  for (nb::handle x : nb::borrow<nb::iterable>(seq)) {
    if (x.is_none()) out.emplace_back();
    else out.emplace_back(to_sint(x, op));
  }
  return out;
}

Tensor arange(nb::handle start, nb::handle stop, nb::handle step, nb::handle dtype) {
  nb::object zero = nb::int_(0);
  nb::handle first = stop.is_none() ? nb::handle(zero) : start, last = stop.is_none() ? start : stop;
  const auto dt = to_optional_dtype(dtype);
  if (UOp size; nb::try_cast<UOp>(last, size)) {
    // From start on in steps of step: as many as fit.
    const int64_t from = to_int(first, "arange"), by = to_int(step, "arange");
    WHIT_USER(by > 0, Value, "[arange] a symbolic end with step {}; expected a positive one", by);
    const Tensor lanes = Tensor::arange(simplify(floor_div(size + (by - 1 - from), by)), dt);
    return by == 1 && from == 0 ? lanes : lanes * Tensor(by) + Tensor(from);
  }
  if (PyFloat_Check(first.ptr()) || PyFloat_Check(last.ptr()) || PyFloat_Check(step.ptr()))
    return Tensor::arange_float(nb::cast<double>(nb::float_(first)), nb::cast<double>(nb::float_(last)), nb::cast<double>(nb::float_(step)), dt);
  auto to_i64 = [](nb::handle h) -> int64_t {
    WHIT_USER(nb::hasattr(h, "__index__"), Type, "[arange] a bound is {}; expected a number",
              nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(h.ptr()))).attr("__name__")));
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
    if (overflow != 0) raise(ErrorKind::Overflow, "[arange] a bound does not fit into int64");
    if (v == -1 && PyErr_Occurred()) throw nb::python_error();
    return v;
  };
  return Tensor::arange(to_i64(first), to_i64(last), to_i64(step), dt);
}

std::vector<Tensor> collect(const Tensor* self, nb::args rest, const char* op) {
  std::vector<Tensor> all;
  if (self) all.push_back(*self);
  for (nb::handle h : rest) {
    if (PyTuple_Check(h.ptr()) || PyList_Check(h.ptr()))
      for (nb::handle x : nb::borrow<nb::iterable>(h)) all.push_back(to_tensor(x, op));
    else all.push_back(to_tensor(h, op));
  }
  return all;
}

Tensor pad(const Tensor& self, nb::handle padding, const std::string& mode, nb::handle value) {
  const PadOptions o{.mode = mode, .value = nb::cast<double>(nb::float_(value))};
  bool grouped = false, flat = true;
  for (nb::handle x : nb::borrow<nb::iterable>(padding)) {
    const bool single = nb::hasattr(x, "__index__");
    grouped |= !single;
    flat &= single;
  }
  WHIT_USER(!grouped || !flat, Value, "[pad] mixed flat and grouped padding");
  if (!grouped) return self.pad(to_ints(padding, "pad"), o);
  return self.pad_axes(to_pairs(padding, "pad"), o);
}

TensorPair pair_to_tuple(const std::pair<Tensor, Tensor>& p) { return nb::make_tuple(p.first, p.second); }

}  // namespace

void bind_tensor(nb::module_& m, TensorClass& t) {
  nb::class_<Slice>(m, "Slice").def(nb::init<>());
  t.def(
      "__init__",
      [](Tensor* self, nb::handle data, nb::handle device, nb::handle dtype, nb::handle grad) {
        if (nb::isinstance<nb::str>(dtype)) to_dtype(dtype);
        new (self) Tensor(with_grad(make_tensor(data, device, dtype), grad));
      },
      nb::arg("data").none(), nb::arg("device") = nb::none(), nb::arg("dtype") = nb::none(), WHIT_GRAD);

  // What it is
  t.def_prop_ro("uop", [](const Tensor& x) { return x.uop(); })
      .def_prop_ro("shape", [](const Tensor& x) { return to_tuple(x.shape()); })
      .def_prop_ro("max_shape", [](const Tensor& x) { return to_tuple(Shape(std::span<const int64_t>(x.shape()))); })
      .def_prop_ro("dtype", [](const Tensor& x) { return dtype_object(x.dtype()); })
      .def_prop_ro(
          "device", [](const Tensor& x) { return device_object(x.devices()); },
          nb::for_getter(nb::sig("def device(self) -> str | tuple[str, ...] | None")))
      .def_prop_ro("ndim", [](const Tensor& x) { return x.ndim(); })
      .def_prop_ro("T", [](const Tensor& x) { return x.T(); })
      .def("numel",
           [](const Tensor& x) -> AnyObject {
             Dims axes(x.ndim(), 0);
             std::iota(axes.begin(), axes.end(), 0);
             return x.shape().is_symbolic() ? uop_object(detail::product(x.shape(), axes).uop()) : nb::int_(x.numel());
           })
      .def("max_numel", &Tensor::numel)
      .def(
          "size",
          [](const Tensor& x, nb::handle dim) -> AnyObject {
            if (dim.is_none()) return to_tuple(x.shape());
            return to_tuple(x.shape())[detail::must_have_axis("size", to_int(dim, "size"), x.shape())];
          },
          nb::arg("dim") = nb::none())
      .def("nbytes", &Tensor::nbytes)
      .def("element_size", &Tensor::element_size)
      .def("is_floating_point", &Tensor::is_floating_point)
      .def("__repr__", &Tensor::repr)
      .def("__len__",
           [](const Tensor& x) {
             WHIT_USER(x.ndim() > 0, Type, "len() of a 0-d tensor");
             return x.size(0);
           })
      // Without these, int() and float() would read the bytes of the memory as text.
      .def("__int__", [](const Tensor&) -> int { raise(ErrorKind::Type, "__int__ on Tensor is not defined; use item()"); })
      .def("__float__", [](const Tensor&) -> double { raise(ErrorKind::Type, "__float__ on Tensor is not defined; use item()"); })
      .def("__bool__", [](const Tensor&) -> bool { raise(ErrorKind::Type, "__bool__ on Tensor is not defined; use item()"); })
      .def("__hash__", [](const Tensor& x) { return static_cast<Py_ssize_t>(reinterpret_cast<uintptr_t>(x.id()) >> 4); })
      .def("__delitem__", [](const Tensor&, nb::handle) { raise(ErrorKind::Type, "Tensor does not support deleting items"); })
      .def_prop_rw(
          "is_param", [](const Tensor& x) { return x.is_param(); }, [](Tensor& x, bool v) { x.is_param_(v); })
      .def_prop_rw(
          "requires_grad", [](const Tensor& x) { return x.is_param(); }, [](Tensor& x, bool v) { x.is_param_(v); })
      .def(
          "is_param_", [](nb::object self, bool v) -> TensorObject { return nb::cast<Tensor&>(self).is_param_(v), self; }, nb::arg("is_param") = true)
      .def(
          "requires_grad_", [](nb::object self, bool v) -> TensorObject { return nb::cast<Tensor&>(self).is_param_(v), self; },
          nb::arg("requires_grad") = true)
      .def_prop_rw(
          "grad",
          [](const Tensor& x) -> nb::typed<nb::object, std::optional<Tensor>> {
            const Tensor g = x.grad();
            if (g.defined()) return nb::cast(g);
            if (x.is_cut_off() &&
                PyErr_WarnEx(PyExc_UserWarning,
                             "[grad] there is none: backward found only a value that was computed from this tensor and realised, which is "
                             "a leaf; call backward before realize, or detach that value",
                             1) < 0)
              throw nb::python_error();
            return nb::none();
          },
          [](Tensor& x, nb::handle g) {
            WHIT_USER(g.is_none() || nb::isinstance<Tensor>(g), Type, "[grad] expected a Tensor or None, got {}", nb::repr(g.type()).c_str());
            x.set_grad(g.is_none() ? Tensor() : nb::cast<Tensor>(g));
          },
          nb::for_setter(nb::arg("grad").none()));

  // Running
  t.def(
       "realize",
       [](nb::object self, nb::args rest, bool) -> TensorObject {
         std::vector<Tensor> all = collect(&nb::cast<Tensor&>(self), rest, "realize");
         unlocked([&] { Tensor::realize_all(all); });
         return self;
       },
       nb::arg("lst"), nb::kw_only(), nb::arg("do_update_stats") = true)
      .def("numpy", &to_numpy)
      .def("tolist", &to_list)
      .def("item", &to_item)
      .def("__array__", [](const Tensor& x, nb::args, nb::kwargs) { return to_numpy(x); })
      .def(
          "backward",
          [](nb::object self, nb::handle gradient) -> TensorObject {
            nb::cast<Tensor&>(self).backward(gradient.is_none() ? Tensor() : to_tensor(gradient, "backward"));
            return self;
          },
          nb::arg("gradient") = nb::none())
      .def(
          "gradient",
          [](const Tensor& x, nb::args targets, nb::handle gradient) -> TensorList {
            std::vector<Tensor> ts = collect(nullptr, targets, "gradient");
            nb::list out;
            for (const Tensor& g : x.gradient(ts, gradient.is_none() ? Tensor() : to_tensor(gradient, "gradient"))) out.append(g);
            return out;
          },
          nb::arg("targets"), nb::kw_only(), nb::arg("gradient") = nb::none());

  // State
  t.def(
       "assign",
       [](nb::object self, nb::handle x) -> TensorObject {
         Tensor& target = nb::cast<Tensor&>(self);
         return target.assign(to_value(x, target, "assign")), self;
       },
       nb::arg("x"))
      .def(
          "replace", [](nb::object self, const Tensor& x) -> TensorObject { return nb::cast<Tensor&>(self).replace(x), self; }, nb::arg("x"))
      .def(
          "clone", [](const Tensor& x, nb::handle d) { return x.clone(to_device(d)); }, nb::arg("device") = nb::none())
      .def("detach", &Tensor::detach)
      .def("contiguous", [](const Tensor& x, nb::kwargs) { return x.contiguous(); })
      .def("contiguous_backward", &Tensor::contiguous_backward)
      .def(
          "to",
          [](nb::object self, nb::handle d) -> TensorObject {
            const Tensor& x = nb::cast<Tensor&>(self);
            const Tensor moved = x.to(to_device(d));
            return moved.device() == x.device() ? self : nb::cast(moved);
          },
          nb::arg("device").none())
      .def(
          "to_", [](nb::object self, nb::handle d) -> TensorObject { return nb::cast<Tensor&>(self).to_(to_device(d)), self; },
          nb::arg("device").none());

  t.def(
       "shard", [](const Tensor& x, nb::handle d, std::optional<int64_t> axis) { return x.shard(to_device_list(d), axis); }, nb::arg("devices"),
       nb::arg("axis") = nb::none())
      .def(
          "shard_",
          [](nb::object self, nb::handle d, std::optional<int64_t> axis) -> TensorObject {
            return nb::cast<Tensor&>(self).shard_(to_device_list(d), axis), self;
          },
          nb::arg("devices"), nb::arg("axis") = nb::none())
      .def("shard_like", &Tensor::shard_like, nb::arg("y"));

  // Creation. EXPR sees `shape` and `o`; MORE are the parameters between shape and device.
  const nb::object int32 = dtype_object(DType::Int32);
  const auto device = nb::arg("device") = nb::none(), dtype = nb::arg("dtype") = nb::none();
#define WHIT_MAKE(NAME, FLAG, EXPR)                                          \
  def_static(                                                                \
      #NAME,                                                                 \
      [](nb::args s, nb::handle d, nb::handle dt, bool flag, nb::handle g) { \
        const IntList shape = to_ints_args(s, #NAME);                        \
        const TensorOptions o = options(d, dt, flag);                        \
        return with_grad(EXPR, g);                                           \
      },                                                                     \
      nb::arg("shape"), nb::kw_only(), device, dtype, nb::arg(FLAG) = true, WHIT_GRAD)
#define WHIT_MAKE_BY(NAME, A, A_VALUE, B, B_VALUE, EXPR)                                    \
  def_static(                                                                               \
      #NAME,                                                                                \
      [](nb::args s, double a, double b, nb::handle d, nb::handle dt, bool, nb::handle g) { \
        const IntList shape = to_ints_args(s, #NAME);                                       \
        const TensorOptions o = options(d, dt);                                             \
        return with_grad(EXPR, g);                                                          \
      },                                                                                    \
      nb::arg("shape"), nb::kw_only(), nb::arg(A) = A_VALUE, nb::arg(B) = B_VALUE, device, dtype, nb::arg("contiguous") = true, WHIT_GRAD)
#define WHIT_KAIMING(NAME)                                                            \
  def_static(                                                                         \
      #NAME,                                                                          \
      [](nb::args s, double a, nb::handle d, nb::handle dt, bool, nb::handle g) {     \
        return with_grad(Tensor::NAME(to_ints_args(s, #NAME), a, options(d, dt)), g); \
      },                                                                              \
      nb::arg("shape"), nb::kw_only(), nb::arg("a") = 0.01, device, dtype, nb::arg("contiguous") = true, WHIT_GRAD)
#define WHIT_LIKE(NAME, FLAG, ...)                                                                                                             \
  def(                                                                                                                                         \
      #NAME, [](const Tensor& x, nb::handle dt, nb::handle d, bool flag, nb::handle g) { return with_grad(x.NAME(options(d, dt, flag)), g); }, \
      __VA_ARGS__, nb::arg(FLAG) = true, WHIT_GRAD)
  t.WHIT_MAKE(zeros, "buffer", Tensor::zeros(shape, o))
      .WHIT_MAKE(ones, "buffer", Tensor::ones(shape, o))
      .WHIT_MAKE(rand, "contiguous", Tensor::rand(shape, o))
      .WHIT_MAKE(randn, "contiguous", Tensor::randn(shape, o))
      .WHIT_MAKE(scaled_uniform, "contiguous", Tensor::scaled_uniform(shape, o))
      .WHIT_MAKE(glorot_uniform, "contiguous", Tensor::glorot_uniform(shape, o))
      .WHIT_MAKE_BY(normal, "mean", 0.0, "std", 1.0, Tensor::normal(shape, a, b, o))
      .WHIT_MAKE_BY(uniform, "low", 0.0, "high", 1.0, Tensor::uniform(shape, a, b, o))
      .WHIT_KAIMING(kaiming_uniform)
      .WHIT_KAIMING(kaiming_normal)
      .WHIT_LIKE(zeros_like, "buffer", nb::kw_only(), dtype, device)
      .WHIT_LIKE(ones_like, "buffer", nb::kw_only(), dtype, device)
      .WHIT_LIKE(rand_like, "contiguous", nb::kw_only(), dtype, device)
      .WHIT_LIKE(randn_like, "contiguous", dtype, nb::kw_only(), device);
#undef WHIT_MAKE
#undef WHIT_MAKE_BY
#undef WHIT_KAIMING
#undef WHIT_LIKE
  for (const char* name : {"empty", "invalids"})
    t.def_static(
        name,
        [](nb::args s, nb::handle d, nb::handle dt, nb::handle g) { return with_grad(Tensor::empty(to_ints_args(s, "empty"), options(d, dt)), g); },
        nb::arg("shape"), nb::kw_only(), device, dtype, WHIT_GRAD);
  t.def_static(
       "full",
       [](nb::handle s, nb::handle v, nb::handle dt, nb::handle d, bool buffer, nb::handle g) {
         return with_grad(Tensor::full(to_ints(s, "full"), to_tensor(v, "full"), options(d, dt, buffer)), g);
       },
       nb::arg("shape"), nb::arg("fill_value"), dtype, device, nb::arg("buffer") = true, nb::kw_only(), WHIT_GRAD)
      .def(
          "full_like",
          [](const Tensor& x, nb::handle v, nb::handle dt, nb::handle d, bool b) {
            return x.full_like(to_tensor(v, "full_like"), options(d, dt, b));
          },
          nb::arg("fill_value"), dtype, device, nb::arg("buffer") = true)
      .def(
          "empty_like", [](const Tensor& x, nb::handle dt, nb::handle d) { return x.empty_like(options(d, dt)); }, dtype, device)
      .def(
          "const_like", [](const Tensor& x, nb::handle v, nb::handle dt) { return x.const_like(to_tensor(v, "const_like"), to_optional_dtype(dt)); },
          nb::arg("b"), dtype)
      .def_static(
          "const", [](nb::handle v, nb::handle dt) { return make_tensor(v, nb::none(), dt); }, nb::arg("b"), dtype)
      .def_static("arange", &arange, nb::arg("start"), nb::arg("stop") = nb::none(), nb::arg("step") = 1, dtype)
      .def_static(
          "linspace",
          [](nb::handle a, nb::handle b, int64_t n, nb::handle dt) {
            return Tensor::linspace(nb::cast<double>(nb::float_(a)), nb::cast<double>(nb::float_(b)), n, to_optional_dtype(dt));
          },
          nb::arg("start"), nb::arg("stop"), nb::arg("steps"), dtype)
      .def_static(
          "eye", [](int64_t n, std::optional<int64_t> k, nb::handle dt) { return Tensor::eye(n, k, to_optional_dtype(dt)); }, nb::arg("n"),
          nb::arg("m") = nb::none(), dtype)
      .def_static(
          "from_blob",
          [](uintptr_t ptr, nb::handle s, nb::handle d, nb::handle dt) {
            return Tensor::from_blob(reinterpret_cast<void*>(ptr), to_ints(s, "from_blob"), options(d, dt));
          },
          nb::arg("ptr"), nb::arg("shape"), nb::kw_only(), device, dtype)
      .def_static(
          "manual_seed", [](int64_t s) { Tensor::manual_seed(static_cast<uint64_t>(s)); }, nb::arg("seed") = 0)
      .def_static("random_bits", &Tensor::random_bits, nb::arg("key"), nb::arg("counter"), nb::arg("num"))
      .def_static(
          "randint",
          [](nb::args s, nb::handle low, nb::handle high, nb::handle dt, nb::handle d, bool) {
            if (!PyLong_Check(low.ptr()) || !PyLong_Check(high.ptr())) raise(ErrorKind::Type, "[randint] low and high must be integers");
            return Tensor::randint(
                to_ints_args(s, "randint"),
                {.low = to_int(low, "randint"), .high = to_int(high, "randint"), .dtype = to_optional_dtype(dt), .device = to_device(d)});
          },
          nb::arg("shape"), nb::kw_only(), nb::arg("low") = 0, nb::arg("high") = 10, nb::arg("dtype").none() = int32, device,
          nb::arg("contiguous") = true)
      .def_static(
          "randperm", [](int64_t n, nb::handle d, nb::handle dt, bool) { return Tensor::randperm(n, options(d, dt)); }, nb::arg("n"), device,
          nb::arg("dtype").none() = int32, nb::kw_only(), nb::arg("contiguous") = true)
      .def("multinomial", &Tensor::multinomial, nb::arg("num_samples") = 1, nb::arg("replacement") = false)
      .def("dropout", &Tensor::dropout, nb::arg("p") = 0.5);

  // Movement
  auto reshape = [](const Tensor& x, nb::handle shape, nb::args rest) {
    // None keeps the axis.
    nb::tuple a = joined(shape, rest);
    nb::object seq = a.size() == 1 && (PyTuple_Check(a[0].ptr()) || PyList_Check(a[0].ptr())) ? nb::object(a[0]) : nb::object(a);
    Sints dims;
    size_t i = 0;
    for (nb::handle h : nb::borrow<nb::iterable>(seq)) {
      if (h.is_none()) dims.push_back(IntList(x.shape()).at(i));
      else dims.push_back(to_sint(h, "reshape"));
      ++i;
    }
    return x.reshape(dims);
  };
#define WHIT_INTS(NAME, FIRST, EXPR)                         \
  def(                                                       \
      #NAME,                                                 \
      [](const Tensor& x, nb::handle first, nb::args rest) { \
        const nb::tuple a = joined(first, rest);             \
        return EXPR;                                         \
      },                                                     \
      nb::arg(FIRST).none(), nb::arg("args"))
  t.def("reshape", reshape, nb::arg("shape").none(), nb::arg("args"))
      .def("view", reshape, nb::arg("shape").none(), nb::arg("args"))
      .WHIT_INTS(expand, "shape", x.expand(to_ints_args(a, "expand")))
      .WHIT_INTS(permute, "order", x.permute(to_ints_args(a, "permute")))
      .WHIT_INTS(flip, "axis", x.flip(to_ints_args(a, "flip")))
      .WHIT_INTS(repeat, "repeats", x.repeat(to_ints_args(a, "repeat")))
      .WHIT_INTS(shrink_to, "shape", x.shrink_to(to_optional_ints(a, "shrink_to")))
#undef WHIT_INTS
      .def(
          "shrink", [](const Tensor& x, nb::handle a) { return x.shrink(to_pairs(a, "shrink")); }, nb::arg("arg"))
      .def("pad", &pad, nb::arg("padding"), nb::arg("mode") = "constant", nb::arg("value") = 0.0)
      .def(
          "pad_to",
          [](const Tensor& x, nb::handle first, nb::args rest, double value) {
            return x.pad_to(to_optional_ints(joined(first, rest), "pad_to"), value);
          },
          nb::arg("shape").none(), nb::arg("args"), nb::arg("value") = 0)
      .def("squeeze", &Tensor::squeeze, nb::arg("dim") = nb::none())
      .def("unsqueeze", &Tensor::unsqueeze, nb::arg("dim"))
      .def("transpose", &Tensor::transpose, nb::arg("dim0") = 1, nb::arg("dim1") = 0)
      .def("flatten", &Tensor::flatten, nb::arg("start_dim") = 0, nb::arg("end_dim") = -1)
      .def(
          "unflatten", [](const Tensor& x, int64_t dim, nb::handle s) { return x.unflatten(dim, to_ints(s, "unflatten")); }, nb::arg("dim"),
          nb::arg("sizes"))
      .def(
          "rearrange",
          [](const Tensor& x, const std::string& formula, nb::kwargs sizes) {
            std::vector<std::pair<std::string, int64_t>> s;
            for (auto [k, v] : sizes) s.emplace_back(nb::cast<std::string>(k), to_int(v, "rearrange"));
            return x.rearrange(formula, s);
          },
          nb::arg("formula"), nb::arg("sizes"))
      .def(
          "split", [](const Tensor& x, nb::handle s, int64_t dim) { return tensors_to_tuple(x.split(to_ints(s, "split"), dim)); }, nb::arg("sizes"),
          nb::arg("dim") = 0)
      .def(
          "chunk",
          [](const Tensor& x, int64_t n, int64_t dim) -> TensorList {
            nb::list l;
            for (const Tensor& y : x.chunk(n, dim)) l.append(y);
            return l;
          },
          nb::arg("chunks"), nb::arg("dim") = 0)
      .def(
          "meshgrid",
          [](const Tensor& x, nb::args a, const std::string& ix) { return tensors_to_tuple(Tensor::meshgrid(collect(&x, a, "meshgrid"), ix)); },
          nb::arg("args"), nb::kw_only(), nb::arg("indexing") = "ij")
      .def(
          "cat", [](const Tensor& x, nb::args a, int64_t dim) { return Tensor::cat(collect(&x, a, "cat"), dim); }, nb::arg("args"), nb::kw_only(),
          nb::arg("dim") = 0)
      .def(
          "stack", [](const Tensor& x, nb::args a, int64_t dim) { return Tensor::stack(collect(&x, a, "stack"), dim); }, nb::arg("args"),
          nb::kw_only(), nb::arg("dim") = 0)
      .def("repeat_interleave", &Tensor::repeat_interleave, nb::arg("repeats"), nb::arg("dim") = nb::none())
      .def(
          "roll",
          [](const Tensor& x, nb::handle s, nb::handle d) {
            return x.roll(to_ints(s, "roll"), d.is_none() ? std::nullopt : std::optional(to_ints(d, "roll")));
          },
          nb::arg("shifts"), nb::arg("dims") = nb::none())
      .def("unfold", &Tensor::unfold, nb::arg("dim"), nb::arg("size"), nb::arg("step"))
      .def("diag", &Tensor::diag)
      .def("diagonal", &Tensor::diagonal, nb::arg("offset") = 0, nb::arg("dim1") = 0, nb::arg("dim2") = 1)
      .def("triu", &Tensor::triu, nb::arg("diagonal") = 0)
      .def("tril", &Tensor::tril, nb::arg("diagonal") = 0);

  // Indexing
  t.def(
       "__getitem__", [](const Tensor& x, nb::handle i) { return x.get(to_indices(i, x)); }, nb::arg("indices").none())
      .def(
          "__setitem__", [](Tensor& x, nb::handle i, nb::handle v) { x.set(to_indices(i, x), to_value(v, x, "setitem")); }, nb::arg("indices").none(),
          nb::arg("v"))
      .def("gather", &Tensor::gather, nb::arg("dim"), nb::arg("index"))
      .def(
          "scatter",
          [](const Tensor& x, int64_t dim, const Tensor& index, nb::handle src, nb::handle reduce) {
            return x.scatter(dim, index, to_tensor(src, "scatter"), reduce.is_none() ? "" : nb::cast<std::string>(reduce));
          },
          nb::arg("dim"), nb::arg("index"), nb::arg("src"), nb::arg("reduce") = nb::none())
      .def("scatter_reduce", &Tensor::scatter_reduce, nb::arg("dim"), nb::arg("index"), nb::arg("src"), nb::arg("reduce"),
           nb::arg("include_self") = true)
      .def(
          "masked_fill", [](const Tensor& x, const Tensor& mask, nb::handle v) { return x.masked_fill(mask, to_tensor(v, "masked_fill")); },
          nb::arg("mask"), nb::arg("value"))
      .def(
          "masked_select",
          [](const Tensor& x, const Tensor& mask, std::optional<int64_t> size, nb::handle fill) {
            return x.masked_select(mask, size, to_tensor(fill, "masked_select"));
          },
          nb::arg("mask"), nb::arg("size") = nb::none(), nb::arg("fill_value") = 0)
      .def(
          "nonzero", [](const Tensor& x, std::optional<int64_t> size, nb::handle fill) { return x.nonzero(size, to_tensor(fill, "nonzero")); },
          nb::arg("size") = nb::none(), nb::arg("fill_value") = 0)
      .def(
          "unique",
          [](const Tensor& x, bool inverse, bool counts) -> AnyObject {
            const std::vector<Tensor> all = x.unique();
            if (!inverse && !counts) return nb::cast(all[0]);
            nb::list out;
            out.append(all[0]);
            if (inverse) out.append(all[1]);
            if (counts) out.append(all[2]);
            return nb::tuple(out);
          },
          nb::arg("return_inverse") = false, nb::arg("return_counts") = false)
      .def("one_hot", &Tensor::one_hot, nb::arg("num_classes"))
      .def(
          "sort", [](const Tensor& x, int64_t dim, bool descending) { return pair_to_tuple(x.sort(dim, descending)); }, nb::arg("dim") = -1,
          nb::arg("descending") = false)
      .def("argsort", &Tensor::argsort, nb::arg("dim") = -1, nb::arg("descending") = false)
      .def(
          "topk", [](const Tensor& x, int64_t k, int64_t dim, bool largest, bool sorted) { return pair_to_tuple(x.topk(k, dim, largest, sorted)); },
          nb::arg("k"), nb::arg("dim") = -1, nb::arg("largest") = true, nb::arg("sorted_") = true);
}

}  // namespace whit::python
