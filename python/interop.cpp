// Memory shared with other libraries: dlpack in and out, the buffer protocol; and Ctrl-C.
#include <nanobind/ndarray.h>

#include "base/os.h"
#include "convert.h"
#include "engine/buffers.h"
#include "tensor/impl.h"

namespace whit::python {
namespace {

// The elements of a tensor in row-major order in memory that the host can read, and who keeps it alive.
struct HostMemory {
  BufferPtr memory;
  DType dtype;
  std::vector<size_t> shape;
};

HostMemory host_memory(Tensor t, bool copy) {
  const DType dt = strong_dtype(t.dtype(), default_int(), default_float());
  if (dt != t.dtype()) t = t.cast(dt);
  if (const auto on = t.devices(); on.size() > 1) t = t.to(on[0]);
  if (copy || !t.device()) t = t.clone(t.device() ? *t.device() : "CPU");
  return unlocked([&] {
    for (int attempt = 0;; ++attempt) {
      const std::vector<Tensor> one{t};
      Tensor::realize_all(one);
      UOp u = t.uop();
      if (const UOp where = realized(u)) u = where;
      if (engine::is_buffer_view(u)) {
        const BufferPtr memory = engine::buffer_of(engine::buffer_below(u));
        memory->handle();
        if (memory->n_bytes() == 0 || memory->host_pointer()) return HostMemory{memory, dt, {t.shape().begin(), t.shape().end()}};
        t = t.to("CPU");
      } else {
        t = t.contiguous();  // a view that is not in row-major order
      }
      WHIT_CHECK(attempt < 3, "no memory for a {} {}", name(dt), t.shape().str());
    }
  });
}

nb::dlpack::dtype dlpack_dtype(DType dt) {
  using Code = nb::dlpack::dtype_code;
  WHIT_USER(!is_fp8(dt), Type, "[dlpack] {} has no type there; cast it first", name(dt));
  const Code code = dt == DType::Bool       ? Code::Bool
                    : dt == DType::BFloat16 ? Code::Bfloat
                    : is_float(dt)          ? Code::Float
                    : is_unsigned(dt)       ? Code::UInt
                                            : Code::Int;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * n_bytes(dt)), 1};
}

DType from_dlpack_dtype(nb::dlpack::dtype d) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dt = static_cast<DType>(i);
    if (!is_weak(dt) && dt != DType::Void && !is_fp8(dt) && dlpack_dtype(dt) == d) return dt;
  }
  raise(ErrorKind::Type, fmt::format("[from_dlpack] elements of {} bits, code {}, {} lanes have no dtype here", d.bits, d.code, d.lanes));
}

template <class Framework> nb::object as_array(const Tensor& t, bool copy) {
  HostMemory m = host_memory(t, copy);
  auto* const keep = new BufferPtr(m.memory);
  const nb::capsule owner(keep, [](void* p) noexcept { delete static_cast<BufferPtr*>(p); });
  void* const data = m.memory->n_bytes() ? m.memory->host_pointer() : static_cast<void*>(keep);
  return nb::cast(nb::ndarray<Framework>(data, m.shape.size(), m.shape.data(), owner, nullptr, dlpack_dtype(m.dtype)));
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  try {
    const Tensor& t = *nb::inst_ptr<Tensor>(nb::handle(self));
    const nb::object array = as_array<nb::memview>(t, false);
    return PyObject_GetBuffer(array.ptr(), view, flags);
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
  }
  view->obj = nullptr;
  return -1;
}

Tensor from_dlpack(nb::handle x) {
  nb::ndarray<nb::c_contig, nb::device::cpu> array;
  if (!nb::try_cast(x, array))
    raise(ErrorKind::Type, fmt::format("[from_dlpack] a {} gives no array in the memory of the host", nb::type_name(x.type()).c_str()));
  const DType dt = from_dlpack_dtype(array.dtype());
  Dims dims;
  for (size_t i = 0; i < array.ndim(); ++i) dims.push_back(static_cast<int64_t>(array.shape(i)));
  const int64_t n = detail::prod(dims);
  if (n == 0) return Tensor::empty(IntList(dims), {.device = "CPU", .dtype = dt});
  BufferSpec spec;
  spec.external_ptr = array.data();
  const BufferPtr inner = engine::make_buffer(dt, n, "CPU", spec);
  auto* const keep = new nb::ndarray<nb::c_contig, nb::device::cpu>(array);
  const BufferPtr memory(inner.get(), [inner, keep](Buffer*) {
    if (!Py_IsInitialized()) return;  // the array went with the interpreter
    const nb::gil_scoped_acquire lock;
    delete keep;
  });
  return detail::memory_tensor(whit::shaped(engine::buffer_node(dt, n, memory), dims));
}

// Long loops ask here. Signals are the main thread's, and Python's lock is dear: it is taken 50 times a second at most.
void check_signals() {
  static thread_local int64_t last_ns = 0;
  static const std::thread::id main_thread = std::this_thread::get_id();  // that imported the module
  const int64_t now_ns = os::now_ns();
  if (now_ns - last_ns < 20'000'000) return;
  last_ns = now_ns;
  if (std::this_thread::get_id() != main_thread || !Py_IsInitialized()) return;
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

PyType_Slot* tensor_slots() {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};
  return slots;
}

void bind_interop(TensorClass& t) {
  check_signals();
  os::interrupt_check = &check_signals;
  t.def(
       "__dlpack__",
       [](const Tensor& x, nb::handle stream, nb::handle, nb::handle, nb::handle copy) -> AnyObject {
         WHIT_USER(stream.is_none(), Value, "[dlpack] memory of the host has no streams");
         return as_array<nb::array_api>(x, copy.is(Py_True)).attr("__dlpack__")();
       },
       nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
       nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const Tensor&) { return std::make_pair(1, 0); })
      .def_static("from_dlpack", &from_dlpack, nb::arg("x"));
}

}  // namespace whit::python
