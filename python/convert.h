// What the bindings share: conversions between Python's values and the C++ API's.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "docs.h"
#include "uop_caster.h"
#include "whit/tensor.h"

namespace nb = nanobind;

namespace whit::python {

// Python objects by the type that the stubs show.
struct PyDType {
  DType dt;
};
using TensorObject = nb::typed<nb::object, Tensor>;
using TensorPair = nb::typed<nb::tuple, Tensor, Tensor>;
using TensorTuple = nb::typed<nb::tuple, Tensor, nb::ellipsis>;
using TensorList = nb::typed<nb::list, Tensor>;
using IntTuple = nb::typed<nb::tuple, nb::int_, nb::ellipsis>;
using DTypeObject = nb::typed<nb::object, PyDType>;
using AnyObject = nb::typed<nb::object, nb::any>;

/// The singleton object of a dtype.
DTypeObject dtype_object(DType dt);
/// A DType object or a name. errors: Type
DType to_dtype(nb::handle h);
inline std::optional<DType> to_optional_dtype(nb::handle h) { return h.is_none() ? std::nullopt : std::optional(to_dtype(h)); }
/// None or a device name, canonical.
/// Several names become one, joined by commas.
std::optional<std::string> to_device(nb::handle h);
std::vector<std::string> to_device_list(nb::handle h);
/// None, a name, or a tuple of names.
AnyObject device_object(const std::vector<std::string>& devices);

/// An int or a list of ints, also numbers of NumPy; `what` names the argument in the error.
/// errors: Type when it is no integer, Overflow when it has more than 64 bits
int64_t to_int(nb::handle h, const char* what);
IntList to_ints(nb::handle h, const char* what);
/// An int or a UOp. errors: as to_int
Sint to_sint(nb::handle h, const char* what);
/// `f(1, 2)` or `f((1, 2))`; None entries become `none_value`.
IntList to_ints_args(nb::tuple args, const char* what, int64_t none_value = -1);
/// All arguments of a function whose first one has a name: `f(shape, *args)`.
nb::tuple joined(nb::handle first, nb::args rest);
Axes to_axes(nb::handle h);
IntTuple to_tuple(const Shape& shape);  ///< of ints, and UOps where it is symbolic

/// A Tensor, or a bool, int or float as a constant. errors: Type, names the operation and the Python type
Tensor to_tensor(nb::handle h, const char* op);
/// The value of an assignment: as to_tensor, but numbers, lists and arrays get the target's dtype. errors: as to_tensor
Tensor to_value(nb::handle h, const Tensor& target, const char* op);
/// A UOp, the graph of a Tensor, or a number as a weak constant. errors: Type
UOp to_uop(nb::handle h);
/// Anything Tensor(...) accepts.
Tensor make_tensor(nb::handle data, nb::handle device, nb::handle dtype);
std::vector<Tensor> to_tensors(nb::handle list, const char* op);
TensorTuple tensors_to_tuple(const std::vector<Tensor>& ts);
Index to_index(nb::handle h, const Tensor& self);
std::vector<Index> to_indices(nb::handle h, const Tensor& self);

/// Python objects of the elements: nested lists of bools, ints, floats.
AnyObject to_list(const Tensor& t);
AnyObject to_numpy(const Tensor& t);
AnyObject to_item(const Tensor& t);

/// Gives the interpreter to other threads. A thread that wants it back when the interpreter is gone waits for the end of
/// the process: CPython would end it by unwinding its stack, which C++ answers with std::terminate.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};
/// Calls that may take long give the interpreter to other threads.
template <class F> auto unlocked(F&& f) {
  const Unlocked release;
  return f();
}

void bind_dtype(nb::module_& m);
void bind_tensor(nb::module_& m, TensorClass& t);
void bind_tensor_ops(TensorClass& t);
void bind_tensor_nn(TensorClass& t);
void bind_interop(TensorClass& t);
/// What the class Tensor has beside its methods: the buffer protocol.
PyType_Slot* tensor_slots();
void bind_runtime(nb::module_& m);
void bind_io(nb::module_& m);
void bind_uop(nb::module_& m);
void bind_nn(nb::module_& m);
void bind_rewrite(nb::module_& m);
void bind_lower(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_jit(nb::module_& m);
void bind_transform(nb::module_& m);
void bind_extend(nb::module_& m);
nb::object error_class(ErrorKind kind);

}  // namespace whit::python
