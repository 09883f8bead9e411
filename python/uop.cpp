// UOp, Ops and AxisType: graphs from Python.
#include "convert.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "rules/linear.h"
#include "rules/rules.h"
#include "schedule/multi.h"
#include "tensor/impl.h"

namespace whit::python {
namespace {

// expr / c when c > 0 certainly divides every value of it; null otherwise.
UOp divides(const UOp& expr, int64_t c) {
  if (c <= 0) return {};
  const Linear l = linear_of(expr);
  if (!l.ok || l.constant % c != 0) return {};
  Linear out;
  for (const auto& t : l.terms) {
    if (t.factor % c != 0) return {};
    out.add(t.node, t.factor / c);
  }
  out.constant = l.constant / c;
  return out.to_uop();
}

// The object of each node that Python holds. Borrowed references; the interpreter's lock guards the map.
std::unordered_map<const Node*, PyObject*>& objects() {
  static auto* const map = new std::unordered_map<const Node*, PyObject*>;
  return *map;
}

nb::object* invalid_object() {
  static auto* const invalid = new nb::object;
  return invalid;
}

struct PyInvalid {};

nb::object from_arg(const Arg& a) {
  switch (a.kind()) {
    case Arg::Kind::None: return nb::none();
    case Arg::Kind::Bool: return nb::bool_(a.as_bool());
    case Arg::Kind::Int: return nb::int_(a.as_int());
    case Arg::Kind::Float: return nb::float_(a.as_float());
    case Arg::Kind::Invalid: return *invalid_object();
    case Arg::Kind::Str: {
      const std::string_view text = a.as_str();
      const auto n = static_cast<Py_ssize_t>(text.size());
      nb::object out = nb::steal(PyUnicode_DecodeUTF8(text.data(), n, nullptr));
      if (out.is_valid()) return out;
      PyErr_Clear();  // machine code
      return nb::bytes(text.data(), text.size());
    }
    case Arg::Kind::Ints:
    case Arg::Kind::List: break;
  }
  nb::list l;
  if (a.kind() == Arg::Kind::Ints)
    for (const int64_t v : a.as_ints()) l.append(v);
  else
    for (const Arg& v : a.as_list()) l.append(from_arg(v));
  return nb::tuple(l);
}

Arg to_arg(nb::handle h) {
  if (h.is_none()) return {};
  if (PyBool_Check(h.ptr())) return h.ptr() == Py_True;
  AxisType axis{};
  if (nb::try_cast<AxisType>(h, axis)) return static_cast<int64_t>(axis);
  if (PyFloat_Check(h.ptr())) return PyFloat_AsDouble(h.ptr());
  if (nb::isinstance<PyInvalid>(h)) return Arg::invalid();
  if (nb::isinstance<nb::str>(h)) return Arg(std::string_view(nb::cast<std::string>(h)));
  if (nb::isinstance<nb::bytes>(h)) {
    const nb::bytes b = nb::borrow<nb::bytes>(h);
    return Arg(std::string_view(b.c_str(), b.size()));
  }
  if (PyLong_Check(h.ptr())) return to_int(h, "UOp");
  if (!PyTuple_Check(h.ptr()) && !PyList_Check(h.ptr()))
    raise(ErrorKind::Type, fmt::format("[UOp] arg is a {}; expected None, a bool, int, float, str, bytes, Invalid or a tuple of these",
                                       nb::type_name(h.type()).c_str()));
  Dims ints;
  SmallVec<Arg, 4> list;
  bool only_ints = true;
  for (nb::handle x : nb::borrow<nb::sequence>(h)) {
    Arg a = to_arg(x);
    only_ints &= a.is_int();
    if (only_ints) ints.push_back(a.as_int());
    list.push_back(std::move(a));
  }
  if (only_ints) return Arg(ints);
  return Arg(std::span<const Arg>(list.data(), list.size()));
}

// The argument as the op wants it: lists of ints where ints and lists look alike from Python.
Arg to_arg_of(Op op, DType dtype, nb::handle h) {
  if (op == Op::Const && !h.is_none() && !nb::isinstance<PyInvalid>(h)) {
    if (is_float(dtype)) return round_to(dtype, nb::cast<double>(nb::float_(h)));
    if (dtype == DType::Bool) return PyObject_IsTrue(h.ptr()) == 1;
    return wrap_to(dtype, to_int(h, "UOp"));
  }
  if ((is_movement(op) || op == Op::Range) && PyLong_Check(h.ptr())) return to_arg(nb::make_tuple(h));
  return to_arg(h);
}

nb::object arg_object(const UOp& u) {
  if (u.op() != Op::Range) return from_arg(u.arg());
  return nb::make_tuple(range_id(u.node()), axis_type(u.node()), range_size(u.node()));
}

bool is_number(nb::handle h) { return PyBool_Check(h.ptr()) || PyLong_Check(h.ptr()) || PyFloat_Check(h.ptr()); }

DType dtype_of_number(nb::handle h) { return PyBool_Check(h.ptr()) ? DType::Bool : PyLong_Check(h.ptr()) ? DType::WeakInt : DType::WeakFloat; }

UOp make_const(nb::handle value, nb::handle dtype) {
  if (PyTuple_Check(value.ptr()) || PyList_Check(value.ptr())) {
    std::vector<UOp> parts;
    for (nb::handle x : nb::borrow<nb::sequence>(value)) parts.push_back(make_const(x, dtype));
    WHIT_USER(!parts.empty(), Value, "[UOp.const] an empty tuple has no value");
    return UOp::make(Op::Stack, parts[0].dtype(), parts);
  }
  if (nb::isinstance<PyInvalid>(value)) return UOp::make(Op::Const, dtype.is_none() ? DType::WeakInt : to_dtype(dtype), {}, Arg::invalid());
  if (!is_number(value)) raise(ErrorKind::Type, fmt::format("[UOp.const] expected a number, got {}", nb::type_name(value.type()).c_str()));
  const DType dt = dtype.is_none() ? dtype_of_number(value) : to_dtype(dtype);
  return UOp::make(Op::Const, dt, {}, to_arg_of(Op::Const, dt, value));
}

std::vector<UOp> to_uops(nb::handle list) {
  std::vector<UOp> out;
  for (nb::handle h : nb::borrow<nb::iterable>(list)) out.push_back(to_uop(h));
  return out;
}

// The dtype of a node that names none, as builders choose it.
DType default_dtype(Op op, std::span<const UOp> src, nb::handle arg) {
  switch (op) {
    case Op::Const: return is_number(arg) ? dtype_of_number(arg) : DType::WeakInt;
    case Op::Range:
    case Op::Variable:
    case Op::Bind:
    case Op::Lanes: return DType::WeakInt;
    case Op::Where: return src[1].dtype();
    case Op::Store:
    case Op::End:
    case Op::If:
    case Op::EndIf:
    case Op::EndRange:
    case Op::Sink:
    case Op::Linear:
    case Op::Source:
    case Op::Binary:
    case Op::Program:
    case Op::Tuple: return DType::Void;
    case Op::GetTuple: {
      const UOp body = src[0].op() == Op::Call ? src[0].src(0) : src[0];
      const auto i = static_cast<size_t>(to_int(arg, "UOp"));
      return i < body.n_src() ? body.src(i).dtype() : DType::Void;
    }
    case Op::Cast:
    case Op::Bitcast:
    case Op::Buffer:
    case Op::Param:
    case Op::Reg:
    case Op::Scratch: raise(ErrorKind::Type, fmt::format("[UOp] a {} needs a dtype", name(op)));
    default: return is_comparison(op) ? DType::Bool : src.empty() ? DType::Void : src[0].dtype();
  }
}

UOp make_uop(Op op, nb::handle dtype, nb::handle src, nb::handle arg) {
  const std::vector<UOp> sources = to_uops(src);
  const int n = info(op).n_src, n_given = static_cast<int>(sources.size());
  WHIT_USER(n < 0 ? n_given >= -1 - n : n_given == n, Value, "[UOp] {} has {} sources, expected {}{}", name(op), n_given, n < 0 ? -1 - n : n,
            n < 0 ? " or more" : "");
  const DType dt = dtype.is_none() ? default_dtype(op, sources, arg) : to_dtype(dtype);
  return UOp::make(op, dt, sources, to_arg_of(op, dt, arg));
}

// An elementwise op as Tensor has it: dtypes promoted, shapes broadcast, numbers of the other operand's dtype.
UOp elementwise(Op op, std::span<const nb::handle> operands) {
  std::vector<UOp> src;
  for (nb::handle h : operands) src.push_back(to_uop(h));
  const std::string what(name(op));
  if (op == Op::Where) {
    const Tensor c(src[0]), x(src[1]), y(src[2]);
    std::vector<UOp> xy = detail::broadcasted(what.c_str(), {&x, &y, &c});
    const UOp cond = detail::broadcast_to(what.c_str(), c, xy[0].shape()).uop();
    return where(cond, xy[0], xy[1]);
  }
  if (src.size() == 2) {
    const Tensor a(src[0]), b(src[1]);
    src = detail::broadcasted(what.c_str(), {&a, &b});
  }
  if (op == Op::Fdiv && !is_float(src[0].dtype()))
    for (UOp& s : src) s = detail::to_float_dtype(Tensor(s)).uop();
  return alu(op, src);
}
UOp binary(Op op, nb::handle a, nb::handle b) {
  const nb::handle operands[] = {a, b};
  return elementwise(op, operands);
}
// A Tensor answers by itself.
UOp binary_operator(Op op, nb::handle a, nb::handle b) {
  if (nb::isinstance<Tensor>(a) || nb::isinstance<Tensor>(b)) throw nb::next_overload();
  return binary(op, a, b);
}
UOp not_of(const UOp& a) {
  if (a.dtype() == DType::Bool) return logical_not(a);
  return alu(Op::CmpEq, {a, detail::broadcast_to(constant(a.dtype(), 0), a.shape())});
}
UOp less_equal(nb::handle a, nb::handle b) {  // false with NaN
  const UOp less = binary_operator(Op::CmpLt, a, b);
  if (!is_float(less.src(0).dtype())) return logical_not(binary(Op::CmpLt, b, a));
  return alu(Op::Or, {less, binary(Op::CmpEq, a, b)});
}

// The number that a node certainly is.
Scalar must_be_number(const UOp& u, const char* what) {
  const UOp s = simplify(u);
  if (s.is_const() && !s.arg().is_invalid()) return scalar_of(s);
  if (!is_float(s.dtype()) && s.dtype() != DType::Void && s.vmin() == s.vmax()) return Scalar::of(s.dtype(), s.vmin());
  raise(ErrorKind::Value,
        fmt::format("[{}] a {} of dtype {} between {} and {} is no single number", what, name(s.op()), name(s.dtype()), s.vmin(), s.vmax()));
}

nb::dict node_set(std::span<const Node* const> nodes) {
  nb::dict d;
  for (const Node* n : nodes) d[uop_object(UOp(n))] = nb::none();
  return d;
}

nb::object replaced(const UOp& u, nb::kwargs kw) {
  nb::object op = nb::cast(u.op()), dtype = dtype_object(u.dtype()), src = nb::cast(u.srcs()), arg = arg_object(u);
  for (auto [k, v] : kw) {
    const std::string key = nb::cast<std::string>(k);
    if (key == "tag" && v.is_none()) continue;
    nb::object* field = key == "op" ? &op : key == "dtype" ? &dtype : key == "src" ? &src : key == "arg" ? &arg : nullptr;
    if (!field) raise(ErrorKind::Type, fmt::format("[UOp.replace] there is no field {}; there are op, dtype, src, arg", key));
    *field = nb::borrow(v);
  }
  return uop_object(make_uop(nb::cast<Op>(op), dtype, src, arg));
}

// A variable in multiples of n is n times one that has no multiples.
UOp bind_variable(const UOp& u, int64_t value) {
  if (u.op() != Op::Mul) return bind(u, value);
  const int64_t n = const_int(u.src(1));
  WHIT_USER(value % n == 0, Assertion, "[bind] {} is no multiple of {}", value, n);
  return bind(u.src(0), value / n) * n;
}
nb::object unbind_variable(const UOp& u) {
  WHIT_USER(u.op() == Op::Bind, Assertion, "[unbind] a {}; expected a variable that is bound", name(u.op()));
  return nb::make_tuple(uop_object(u.src(0)), u.arg().as_int());
}

nb::object bound(const UOp& u, bool high) {
  const DType dt = u.dtype();
  if (is_float(dt)) return u.is_const() && !u.arg().is_invalid() ? from_arg(u.arg()) : dtype_object(dt).attr(high ? "max" : "min");
  const int64_t v = high ? u.vmax() : u.vmin();
  return dt == DType::Bool ? nb::object(nb::bool_(v != 0)) : nb::object(nb::int_(v));
}

}  // namespace

PyUOp::~PyUOp() {
  const auto it = objects().find(u.node());
  if (it != objects().end() && nb::inst_ptr<PyUOp>(it->second) == this) objects().erase(it);
}

nb::object uop_object(const UOp& u) {
  if (!u) return nb::none();
  PyObject*& known = objects()[u.node()];
  if (known && Py_REFCNT(known) > 0) return nb::borrow(known);
  const nb::handle type = nb::type<PyUOp>();
  nb::object made = nb::inst_alloc(type);
  new (nb::inst_ptr<PyUOp>(made)) PyUOp(u);
  nb::inst_mark_ready(made);
  known = made.ptr();
  return made;
}

UOp to_uop(nb::handle h) {
  UOp u;
  if (nb::try_cast<UOp>(h, u)) return u;
  if (nb::isinstance<Tensor>(h)) return nb::cast<Tensor&>(h).uop();
  return make_const(h, nb::none());
}

void bind_uop(nb::module_& m) {
  nb::enum_<Op> ops(m, "Ops", nb::is_arithmetic(), "The kinds of nodes; docs/ops.md says what each means.");
#define WHIT_OP(NAME, TEXT, GROUP, N_SRC, DOC) ops.value(TEXT, Op::NAME, DOC);
#include "ir/ops.def"
#undef WHIT_OP
  m.def("op_group", [](Op op) {
    static constexpr const char* kGroups[] = {"Leaf", "Unary", "Binary", "Ternary", "Movement", "Reduce", "Memory", "Control", "Meta"};
    return kGroups[static_cast<int>(info(op).group)];
  });
  m.def("is_commutative", &is_commutative);
  m.def("is_elementwise", &is_elementwise);
  m.def("eval_scalar", [](Op op, nb::handle dtype, nb::handle operands) {
    // The operands of comparisons, WHERE and CAST are not of the result's dtype: each is read as the Python number it is.
    const DType dt = to_dtype(dtype);
    std::vector<Scalar> src;
    for (nb::handle h : nb::borrow<nb::iterable>(operands)) {
      const bool own = is_comparison(op) || op == Op::Cast || (op == Op::Where && src.empty());
      src.push_back(scalar_of(make_const(h, own ? nb::object(nb::none()) : nb::object(dtype_object(dt)))));
    }
    WHIT_USER(is_elementwise(op) && info(op).n_src == static_cast<int>(src.size()), Type, "[eval_scalar] {} of {} operands", name(op), src.size());
    return from_arg(constant_of(eval_scalar(op, dt, src)).arg());
  });
  nb::enum_<AxisType> axes(m, "AxisType", "What a loop of a kernel is.");
  for (int i = 0; i < kNumAxisTypes; ++i) {
    std::string upper(name(static_cast<AxisType>(i)));
    for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    axes.value(upper.c_str(), static_cast<AxisType>(i));
  }
  nb::class_<PyInvalid>(m, "InvalidType", "The type of `Invalid`: the value that nobody reads.")
      .def("__repr__", [](const PyInvalid&) { return "Invalid"; })
      .def("__reduce__", [](const PyInvalid&) { return "Invalid"; });
  *invalid_object() = nb::cast(PyInvalid{});
  m.attr("Invalid") = *invalid_object();

  nb::class_<PyUOp> c(m, "UOp", nb::is_weak_referenceable(),
                      "A node of the graph: immutable, and the same object as long as its parts are the same.\n\n"
                      ">>> from whit.uop.ops import UOp\n"
                      ">>> x = UOp.variable('x', 0, 7)\n"
                      ">>> (x * 4 // 2).simplify() is (x * 2).simplify()\n"
                      "True");
  c.def_static(
      "__new__",
      [](nb::handle, Op op, nb::handle dtype, nb::handle src, nb::handle arg, nb::handle tag) {
        WHIT_USER(tag.is_none(), Type, "[UOp] nodes have no tags; what belongs to a node goes into arg");
        return make_uop(op, dtype, src, arg);
      },
      nb::arg("cls"), nb::arg("op"), nb::arg("dtype") = nb::none(), nb::arg("src") = nb::tuple(), nb::arg("arg") = nb::none(),
      nb::arg("tag") = nb::none());
  c.def("__init__", [](nb::handle, nb::args, nb::kwargs) {});
  c.def_static("const", &make_const, nb::arg("b"), nb::arg("dtype") = nb::none(),
               "A constant; a tuple is a STACK of constants, Invalid a masked index.")
      .def_static(
          "variable",
          [](const std::string& name, int64_t lo, int64_t hi, nb::handle dtype, int64_t multiple_of) {
            WHIT_USER(dtype.is_none() || to_dtype(dtype) == DType::WeakInt, NotImplemented, "[Variable] '{}' of dtype {}; sizes are weakint", name,
                      nb::repr(dtype).c_str());
            WHIT_USER(multiple_of > 0 && lo % multiple_of == 0 && hi % multiple_of == 0, Value, "[Variable] '{}' from {} to {} in multiples of {}",
                      name, lo, hi, multiple_of);
            const UOp v = variable(name, lo / multiple_of, hi / multiple_of);
            return multiple_of == 1 ? v : v * multiple_of;
          },
          nb::arg("name"), nb::arg("min_val"), nb::arg("max_val"), nb::arg("dtype") = nb::none(), nb::arg("multiple_of") = 1,
          "A named integer that is known at launch: a size of shapes, once it is bound.")
      .def_static(
          "param",
          [](int64_t slot, nb::handle dtype, nb::handle shape) {
            const IntList dims = to_ints(shape, "UOp.param");
            return param(slot, to_dtype(dtype), dims);
          },
          nb::arg("slot"), nb::arg("dtype"), nb::arg("shape"), "Formal argument number `slot` of a kernel or function.")
      .def_static(
          "range",
          [](nb::handle end, int64_t id, AxisType type) {
            UOp n;
            if (!nb::try_cast<UOp>(end, n)) return range(to_int(end, "UOp.range"), id, type);
            const int64_t a[] = {id, static_cast<int64_t>(type), n.vmax()};
            return UOp::make(Op::Range, DType::WeakInt, {n}, std::span<const int64_t>(a));
          },
          nb::arg("end"), nb::arg("axis_id"), nb::arg("axis_type") = AxisType::Weak, "A loop variable 0..end-1.")
      .def_static(
          "new_buffer",
          [](const std::string& device, int64_t n, nb::handle dtype) { return buffer(to_dtype(dtype), n, detail::canonical_name(device)); },
          nb::arg("device"), nb::arg("size"), nb::arg("dtype"), "Fresh memory of a device, not allocated yet.");

  // What it is
  c.def_prop_ro("op", [](const UOp& u) { return u.op(); })
      .def_prop_ro("dtype", [](const UOp& u) { return dtype_object(u.dtype()); })
      .def_prop_ro("src", [](const UOp& u) { return nb::tuple(nb::cast(u.srcs())); })
      .def_prop_ro("arg", &arg_object)
      .def_prop_ro("shape", [](const UOp& u) { return to_tuple(u.shape()); })
      .def_prop_ro("vmin", [](const UOp& u) { return bound(u, false); })
      .def_prop_ro("vmax", [](const UOp& u) { return bound(u, true); })
      .def_prop_ro(
          "axis",
          [](const UOp& u) {
            const int64_t axis = shard_axis(u);
            return axis < 0 ? std::nullopt : std::optional<int64_t>(axis);
          },
          "The axis that is cut over the devices, or None.")
      .def_prop_ro("device",
                   [](const UOp& u) -> nb::object {
                     if (u->device == 0) return nb::none();
                     return nb::cast(std::string(device_name(u->device)));
                   })
      .def_prop_ro("ranges", [](const UOp& u) { return node_set(u.ranges()); })
      .def_prop_ro("key",
                   [](const UOp& u) {
                     const Key128 k = u.key();
                     return nb::bytes(&k, sizeof k);
                   })
      .def_prop_ro("is_realized", [](const UOp& u) { return u.op() == Op::Buffer ? payload(u) != nullptr : static_cast<bool>(realized(u)); })
      .def(
          "toposort", [](const UOp& u) { return node_set(toposort(u)); }, "All nodes below and this, sources first.")
      .def(
          "substitute",
          [](const UOp& u, nb::dict map) {
            std::unordered_map<const Node*, UOp> to;
            std::vector<UOp> keep;
            for (auto [k, v] : map) {
              keep.push_back(to_uop(k));
              to.emplace(keep.back().node(), to_uop(v));
            }
            return substitute(u, to);
          },
          nb::arg("dvars"), "The graph with nodes replaced by others.")
      .def("bind", &bind_variable, nb::arg("val"), "The variable with a value for the run at hand.")
      .def("unbind", &unbind_variable, "(variable, value) of a bound variable.")
      .def("replace", &replaced, "The same node with another op, dtype, src or arg.")
      .def(
          "simplify", [](const UOp& u) { return simplify(u); }, "The graph after the symbolic rules.")
      .def(
          "divides", [](const UOp& u, int64_t v) { return divides(u, v); }, nb::arg("v"), "self / v where v divides every value of it, else None.")
      .def(
          "find_illegal",
          [](const UOp& u, const std::string& level) {
            const Level l = level == "tensor" ? Level::Tensor : level == "kernel" ? Level::Kernel : Level::Program;
            WHIT_USER(l != Level::Program || level == "program", Value, "[UOp.find_illegal] level is '{}', expected tensor, kernel or program",
                      level);
            return find_illegal(u, l);
          },
          nb::arg("level") = "tensor", "What breaks the rules of docs/ir.md; '' when nothing does.");

  // Arithmetic
  c.def("alu",
        [](nb::handle self, Op op, nb::args rest) {
          std::vector<nb::handle> operands{self};
          for (nb::handle h : rest) operands.push_back(h);
          WHIT_USER(is_elementwise(op) && info(op).n_src == static_cast<int>(operands.size()), Type, "[UOp.alu] {} of {} operands", name(op),
                    operands.size());
          return elementwise(op, operands);
        })
      .def(
          "cast", [](const UOp& u, nb::handle dt) { return cast(u, to_dtype(dt)); }, nb::arg("dtype"))
      .def("bitcast", [](const UOp& u, nb::handle dt) { return Tensor(u).bitcast(to_dtype(dt)).uop(); }, nb::arg("dtype"));
#define WHIT_BINARY(OP, NAME, DUNDER, REVERSED)                                                                \
  c.def(NAME, [](nb::handle a, nb::handle b) { return binary(Op::OP, a, b); })                                 \
      .def(                                                                                                    \
          DUNDER, [](nb::handle a, nb::handle b) { return binary_operator(Op::OP, a, b); }, nb::is_operator()) \
      .def(REVERSED, [](nb::handle a, nb::handle b) { return binary_operator(Op::OP, b, a); }, nb::is_operator())
  WHIT_BINARY(Add, "add", "__add__", "__radd__");
  WHIT_BINARY(Sub, "sub", "__sub__", "__rsub__");
  WHIT_BINARY(Mul, "mul", "__mul__", "__rmul__");
  WHIT_BINARY(Fdiv, "div", "__truediv__", "__rtruediv__");
  WHIT_BINARY(FloorDiv, "idiv", "__floordiv__", "__rfloordiv__");
  WHIT_BINARY(FloorMod, "mod", "__mod__", "__rmod__");
  WHIT_BINARY(Pow, "pow", "__pow__", "__rpow__");
  WHIT_BINARY(And, "bitwise_and", "__and__", "__rand__");
  WHIT_BINARY(Or, "bitwise_or", "__or__", "__ror__");
  WHIT_BINARY(Xor, "bitwise_xor", "__xor__", "__rxor__");
  WHIT_BINARY(Shl, "lshift", "__lshift__", "__rlshift__");
  WHIT_BINARY(Shr, "rshift", "__rshift__", "__rrshift__");
#undef WHIT_BINARY
  c.def(
       "__lt__", [](nb::handle a, nb::handle b) { return binary_operator(Op::CmpLt, a, b); }, nb::is_operator())
      .def(
          "__gt__", [](nb::handle a, nb::handle b) { return binary_operator(Op::CmpLt, b, a); }, nb::is_operator())
      .def("__le__", &less_equal, nb::is_operator())
      .def(
          "__ge__", [](nb::handle a, nb::handle b) { return less_equal(b, a); }, nb::is_operator())
      .def(
          "__ne__", [](nb::handle a, nb::handle b) { return binary_operator(Op::CmpNe, a, b); }, nb::is_operator())
      .def("ne", [](nb::handle a, nb::handle b) { return binary(Op::CmpNe, a, b); })
      .def("eq", [](nb::handle a, nb::handle b) { return binary(Op::CmpEq, a, b); })
      .def("maximum", [](nb::handle a, nb::handle b) { return binary(Op::Max, a, b); })
      .def("minimum", [](nb::handle a, nb::handle b) { return binary(Op::Min, a, b); })
      .def("threefry", [](nb::handle a, nb::handle b) { return binary(Op::Threefry, a, b); })
      .def("where",
           [](nb::handle self, nb::handle x, nb::handle y) {
             const nb::handle operands[] = {self, x, y};
             return elementwise(Op::Where, operands);
           })
      .def("__neg__", [](const UOp& a) { return a.dtype() == DType::Bool ? not_of(a) : -a; })
      .def("logical_not", &not_of)
      .def("__invert__", [](const UOp& a) {
        return a.dtype() == DType::Bool ? not_of(a) : alu(Op::Xor, {a, detail::broadcast_to(constant(a.dtype(), -1), a.shape())});
      });
  for (const Op op : {Op::Neg, Op::Recip, Op::Sqrt, Op::Exp2, Op::Log2, Op::Sin, Op::Trunc}) {
    std::string lower(op == Op::Recip ? "reciprocal" : std::string(name(op)));
    for (char& ch : lower) ch = static_cast<char>(std::tolower(static_cast<unsigned char>(ch)));
    c.def(lower.c_str(), [op](const UOp& a) { return alu(op, {op == Op::Neg || op == Op::Trunc ? a : detail::to_float_dtype(Tensor(a)).uop()}); });
  }
  c.def("__int__", [](const UOp& u) { return must_be_number(u, "int").i; })
      .def("__index__", [](const UOp& u) { return must_be_number(u, "index").i; })
      .def("__float__", [](const UOp& u) { return must_be_number(u, "float").as_double(); })
      .def("__bool__", [](const UOp& u) { return must_be_number(u, "bool").truthy(); })
      .def(
          "__eq__", [](nb::handle a, nb::handle b) { return a.is(b); }, nb::arg().none())
      .def("__hash__", [](const UOp& u) { return static_cast<Py_ssize_t>(reinterpret_cast<uintptr_t>(u.node()) >> 4); })
      .def("__str__", [](const UOp& u) { return to_text(u); })
      .def("__repr__", [](nb::handle self) {
        const UOp u = to_uop(self);
        return fmt::format("UOp(Ops.{}, dtypes.{}, shape={}, {} src, arg={})", name(u.op()), info(u.dtype()).alias, u.shape().str(), u.n_src(),
                           nb::repr(arg_object(u)).c_str());
      });
  m.def("parse_text", [](const std::string& text) { return parse_text(text); }, nb::arg("text"), "Reads the text form of a graph that repr prints.");
  m.def("live_nodes", &live_nodes, "Number of graph nodes alive in the process.");
}

}  // namespace whit::python
