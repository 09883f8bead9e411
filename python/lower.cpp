// From graphs to kernels that run, step by step: schedules, codegen's stages, compiled kernels, memory.
#include "codegen/lower.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>

#include "base/flags.h"
#include "codegen/optimize.h"
#include "convert.h"
#include "engine/buffers.h"
#include "engine/compile.h"
#include "engine/realize.h"
#include "engine/run.h"
#include "ir/verify.h"
#include "render/renderer.h"
#include "runtime/device.h"
#include "schedule/schedule.h"

namespace whit::python {
namespace {

struct PyBuffer {
  BufferPtr memory;
  DType dtype;
  int64_t size() const { return memory->n_bytes() / n_bytes(dtype); }
};
struct PySchedule {
  BoundSchedule bound;
};

Target target_of(const std::string& renderer) {
  Target t = host_target();
  t.renderer = renderer_by_name(renderer).name;
  return t;
}

// A Buffer, or the memory of a realised Tensor or UOp.
PyBuffer to_buffer(nb::handle h) {
  if (nb::isinstance<PyBuffer>(h)) return nb::cast<PyBuffer>(h);
  UOp u = to_uop(h);
  if (const UOp where = realized(u)) u = where;
  const UOp node = engine::is_buffer_view(u) ? engine::buffer_below(u) : UOp();
  WHIT_USER(node, Runtime, "[Buffer] a {} is not in memory of its own; realize it first", name(u.op()));
  return {engine::buffer_of(node), node.dtype()};
}

nb::object buffer_of_node(const UOp& u) { return nb::cast(to_buffer(uop_object(u))); }

class HostView {  // the bytes of an object with the buffer protocol
 public:
  HostView(nb::handle h, int flags) {
    if (PyObject_GetBuffer(h.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~HostView() { PyBuffer_Release(&view_); }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  const Py_buffer* operator->() const { return &view_; }

 private:
  Py_buffer view_{};
};

void run_executable(engine::Executable& e, nb::handle buffers, const nb::dict& vars) {
  std::vector<PyBuffer> memory;
  for (nb::handle h : nb::borrow<nb::iterable>(buffers)) memory.push_back(to_buffer(h));
  WHIT_USER(static_cast<int>(memory.size()) == e.object.n_buffers, Value, "[kernel {}] {} buffers given, it has {}", e.name, memory.size(),
            e.object.n_buffers);
  for (const Node* n : toposort(e.sink)) {
    if (n->op != Op::Param) continue;
    const PyBuffer& b = memory[static_cast<size_t>(n->arg.int_at(0))];
    const int64_t need = n->shape.numel() * n_bytes(n->dtype);
    WHIT_USER(b.memory->n_bytes() >= need && b.memory->device_name() == e.device, Value,
              "[kernel {}] buffer {} has {} bytes on {}, it needs {} on {}", e.name, n->arg.int_at(0), b.memory->n_bytes(), b.memory->device_name(),
              need, e.device);
  }
  std::vector<int64_t> values;
  for (const std::string& v : e.variables) {
    WHIT_USER(vars.contains(v.c_str()), Key, "[kernel {}] no value for the variable {}", e.name, v);
    values.push_back(to_int(vars[v.c_str()], "kernel"));
  }
  unlocked([&] {
    e.load();
    std::vector<void*> handles;
    for (const PyBuffer& b : memory) handles.push_back(b.memory->handle());
    engine::run_program(e, handles.data(), values.data(), false);
    Device::get(e.device).synchronize();
  });
}

}  // namespace

void bind_lower(nb::module_& m) {
  nb::class_<PyBuffer>(m, "Buffer", "Memory of a device, allocated when it is first used, or a part of it.")
      .def(
          "__init__",
          [](PyBuffer* self, const std::string& device, int64_t size, nb::handle dtype, nb::handle initial_value) {
            const DType dt = to_dtype(dtype);
            WHIT_USER(size >= 0 && !is_weak(dt) && dt != DType::Void, Value, "[Buffer] {} elements of {}", size, name(dt));
            new (self) PyBuffer{engine::make_buffer(dt, size, Device::get(device).name()), dt};
            if (initial_value.is_none()) return;
            const HostView from(initial_value, PyBUF_C_CONTIGUOUS);
            self->memory->copyin(from->buf, from->len);
          },
          nb::arg("device"), nb::arg("size"), nb::arg("dtype"), nb::arg("initial_value") = nb::none())
      .def_prop_ro("device", [](const PyBuffer& b) { return b.memory->device_name(); })
      .def_prop_ro("dtype", [](const PyBuffer& b) { return dtype_object(b.dtype); })
      .def_prop_ro("size", &PyBuffer::size)
      .def_prop_ro("nbytes", [](const PyBuffer& b) { return b.memory->n_bytes(); })
      .def_prop_ro("offset", [](const PyBuffer& b) { return b.memory->off_bytes(); })
      .def_prop_ro("_buf", [](const PyBuffer& b) { return reinterpret_cast<uintptr_t>(b.memory->handle()); })
      .def("is_allocated", [](const PyBuffer& b) { return b.memory->is_allocated(); })
      .def("is_initialized", [](const PyBuffer& b) { return b.memory->is_allocated(); })
      .def("allocate", [](nb::handle self) { return nb::cast<PyBuffer&>(self).memory->handle(), nb::borrow(self); })
      .def("ensure_allocated", [](nb::handle self) { return nb::cast<PyBuffer&>(self).memory->handle(), nb::borrow(self); })
      .def(
          "view",
          [](const PyBuffer& b, int64_t size, nb::handle dtype, int64_t offset) {
            const DType dt = to_dtype(dtype);
            return PyBuffer{Buffer::view(b.memory, offset, size * n_bytes(dt)), dt};
          },
          nb::arg("size"), nb::arg("dtype"), nb::arg("offset"), "`size` elements from byte `offset` on.")
      .def(
          "copyin",
          [](nb::handle self, nb::handle from) {
            const HostView view(from, PyBUF_C_CONTIGUOUS);
            nb::cast<PyBuffer&>(self).memory->copyin(view->buf, view->len);
            return nb::borrow(self);
          },
          nb::arg("mv"))
      .def(
          "copyout",
          [](const PyBuffer& b, nb::object to) {
            const HostView view(to, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
            b.memory->copyout(view->buf, view->len);
            return to;
          },
          nb::arg("mv"))
      .def("__repr__", [](const PyBuffer& b) {
        return fmt::format("<Buffer {} {} x dtypes.{}, {} bytes{}>", b.memory->device_name(), b.size(), info(b.dtype).alias, b.memory->n_bytes(),
                           b.memory->is_allocated() ? "" : ", not allocated");
      });
  m.def("buffer_of", &buffer_of_node, "The memory that holds the value of a node. errors: RuntimeError when none does");

  nb::class_<PySchedule>(m, "Schedule", "What must run, in which order, so that some tensors have their values.")
      .def_prop_ro(
          "linear", [](const PySchedule& s) { return s.bound.schedule->to_linear(); }, "LINEAR(CALL(SINK kernel, BUFFERs) ..), over fresh BUFFERs.")
      .def_prop_ro("cache_hit", [](const PySchedule& s) { return s.bound.cache_hit; })
      .def_prop_ro(
          "kernels",
          [](const PySchedule& s) {
            nb::list l;
            for (const ScheduledCall& c : s.bound.schedule->calls)
              l.append(nb::make_tuple(uop_object(c.kernel), std::string(device_name(c.device)), nb::cast(c.args)));
            return l;
          },
          "(SINK or None for a transfer, device, numbers of buffers) a call.")
      .def_prop_ro("stats",
                   [](const PySchedule& s) {
                     const ScheduleStats& t = s.bound.schedule->stats;
                     nb::dict d;
                     d["n_kernels"] = t.n_kernels, d["n_copies"] = t.n_copies, d["temp_bytes"] = t.temp_bytes;
                     d["arena_bytes"] = t.arena_bytes, d["live_bytes"] = t.live_bytes, d["output_bytes"] = t.output_bytes;
                     return d;
                   })
      .def("__len__", [](const PySchedule& s) { return s.bound.schedule->calls.size(); })
      .def("__repr__", [](const PySchedule& s) { return engine::describe(*s.bound.schedule); });
  m.def(
      "schedule",
      [](nb::handle roots) {
        std::vector<UOp> us;
        for (nb::handle h : nb::borrow<nb::iterable>(roots)) us.push_back(to_uop(h));
        return PySchedule{engine::schedule(us)};
      },
      nb::arg("roots"), "The schedule that realize would run now; opens no device, changes nothing.");
  m.def("clear_schedule_cache", &clear_schedule_cache);
  m.def("schedule_cache_size", &schedule_cache_size);

  m.def("renderer_names", &renderer_names);
  m.def(
      "optimize_kernel", [](const UOp& sink, const std::string& renderer) { return codegen::optimize(sink, target_of(renderer)); }, nb::arg("sink"),
      nb::arg("renderer") = "llvm", "The kernel with split, typed and ordered ranges.");
  m.def(
      "lower_kernel",
      [](const UOp& sink, const std::string& renderer, bool optimized, const std::string& decisions) {
        codegen::Decisions said(decisions);
        return optimized ? lower_optimized(sink, target_of(renderer)) : lower_kernel(sink, target_of(renderer), &said);
      },
      nb::arg("sink"), nb::arg("renderer") = "llvm", nb::arg("optimized") = false, nb::arg("decisions") = "", "PROGRAM(SINK, LINEAR) of a kernel.");
  m.def(
      "alternatives",
      [](const UOp& sink, const std::string& renderer, const std::string& decisions) {
        codegen::Decisions said(decisions);
        lower_kernel(sink, target_of(renderer), &said);
        return said.asked();
      },
      nb::arg("sink"), nb::arg("renderer") = "llvm", nb::arg("decisions") = "",
      "The questions that a search may answer for a kernel, and how many answers each has.");
  m.def(
      "render_program",
      [](const UOp& program, const std::string& renderer) {
        return renderer_by_name(renderer).render(program, ProgramInfo::of(program).name, target_of(renderer));
      },
      nb::arg("program"), nb::arg("renderer") = "llvm", "The source of a PROGRAM.");

  nb::class_<engine::Executable>(m, "Executable", "A kernel that can be run on one device.")
      .def_ro("sink", &engine::Executable::sink)
      .def_ro("name", &engine::Executable::name)
      .def_ro("source", &engine::Executable::source)
      .def_ro("device", &engine::Executable::device)
      .def_ro("variables", &engine::Executable::variables)
      .def_ro("n_ops", &engine::Executable::n_ops)
      .def_ro("n_bytes", &engine::Executable::n_bytes)
      .def_prop_ro("n_buffers", [](const engine::Executable& e) { return e.object.n_buffers; })
      .def_prop_ro("library", [](const engine::Executable& e) { return nb::bytes(e.object.library.data(), e.object.library.size()); })
      .def("__call__", &run_executable, nb::arg("buffers"), nb::arg("vars") = nb::dict(),
           "Runs with Buffers or realised Tensors by slot, and values of variables by name; returns when it is done.")
      .def("__repr__", [](const engine::Executable& e) { return fmt::format("<kernel {} on {}>", e.name, e.device); });
  m.def(
      "compile_kernel",
      [](const UOp& sink, nb::handle device, const std::string& decisions) {
        WHIT_USER(sink.op() == Op::Sink && sink.arg().kind() == Arg::Kind::List, Value,
                  "[compile_kernel] expected a SINK with arg KernelInfo(name), got {}", name(sink.op()));
        verify(sink, Level::Kernel, "compile_kernel");
        const std::string on = device.is_none() ? default_device() : canonical_device(nb::cast<std::string>(device));
        return unlocked([&] {
          const engine::CompileJob job[] = {{sink, on}};
          return decisions.empty() ? engine::compile_all(job, flag::BEAM())[0] : engine::compile_kernel(job[0], code_path(on), decisions);
        });
      },
      nb::arg("sink"), nb::arg("device") = nb::none(), nb::arg("decisions") = "", "Compiles a kernel for a device.");
}

}  // namespace whit::python
