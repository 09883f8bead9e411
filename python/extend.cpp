// What Python code adds to the pipeline: passes, renderers, devices. The classes that users derive from are plain Python
// (whit/device.py, whit/renderer); what stands here calls their methods, from whatever thread the engine is in.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <map>
#include <unordered_map>

#include "convert.h"
#include "device/contract.h"
#include "render/renderer.h"
#include "rewrite/passes.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace whit::python {
namespace {

// Set when the interpreter ends: what is freed later goes down with the process.
bool& is_closed() {
  static bool closed = false;
  return closed;
}

// An object that is held by the engine, which drops it in threads that do not have the interpreter.
using Held = std::shared_ptr<nb::object>;
Held hold(nb::object o) {
  return {new nb::object(std::move(o)), [](nb::object* held) {
            if (is_closed()) return;
            const nb::gil_scoped_acquire lock;
            delete held;
          }};
}

// Python's handles of memory are objects; the engine knows them by address.
class PyAllocator final : public Allocator {
 public:
  PyAllocator(Device& device, nb::object impl) : Allocator(device), impl_(std::move(impl)) {}

  void copyin(void* to, const void* from_host, int64_t n_bytes) override {
    const nb::gil_scoped_acquire lock;
    impl_.attr("_copyin")(object_of(to), bytes_at(const_cast<void*>(from_host), n_bytes, PyBUF_READ));
  }
  void copyout(void* to_host, void* from, int64_t n_bytes) override {
    const nb::gil_scoped_acquire lock;
    impl_.attr("_copyout")(bytes_at(to_host, n_bytes, PyBUF_WRITE), object_of(from));
  }
  void* offset(void* handle, int64_t n_bytes, int64_t off_bytes) override {
    const nb::gil_scoped_acquire lock;
    const nb::object base = object_of(handle);
    auto& parts = memory_.at(handle).parts;
    const auto [it, fresh] = parts.try_emplace({off_bytes, n_bytes}, nullptr);
    if (fresh) {
      it->second = new nb::object(impl_.attr("_offset")(base, n_bytes, off_bytes));
      memory_.emplace(it->second, Memory{*it->second});
    }
    return it->second;
  }
  void* host_pointer(void* handle) override {
    const nb::gil_scoped_acquire lock;
    const nb::object address = impl_.attr("_address")(object_of(handle));
    return address.is_none() ? nullptr : reinterpret_cast<void*>(nb::cast<uintptr_t>(address));
  }
  nb::object object_of(void* handle) const {
    const auto it = memory_.find(handle);
    WHIT_USER(it != memory_.end(), Device, "[device] {} is given memory of somebody else, which it cannot use", device_.name());
    return it->second.object;
  }

 protected:
  void* do_alloc(int64_t n_bytes, const BufferSpec&) override {
    const nb::gil_scoped_acquire lock;
    nb::object made;
    try {
      made = impl_.attr("_alloc")(n_bytes);
    } catch (const nb::python_error& e) {
      if (!e.matches(PyExc_MemoryError)) throw;
      return nullptr;
    }
    auto* handle = new nb::object(made);
    memory_.emplace(handle, Memory{made});
    return handle;
  }
  void do_free(void* handle, int64_t n_bytes, const BufferSpec&) override {
    if (is_closed()) return;
    const nb::gil_scoped_acquire lock;
    const auto it = memory_.find(handle);
    for (const auto& [place, part] : it->second.parts) {
      memory_.erase(part);
      delete part;
    }
    const nb::object gone = it->second.object;
    memory_.erase(it);
    delete static_cast<nb::object*>(handle);
    impl_.attr("_free")(gone, n_bytes);
  }

 private:
  struct Memory {
    nb::object object;
    std::map<std::pair<int64_t, int64_t>, nb::object*> parts{};  // by offset and size
  };
  static nb::object bytes_at(void* p, int64_t n_bytes, int flags) {
    return nb::steal(PyMemoryView_FromMemory(static_cast<char*>(p), static_cast<Py_ssize_t>(n_bytes), flags));
  }
  nb::object impl_;
  std::unordered_map<void*, Memory> memory_;  // the interpreter's lock guards it
};

class PyProgram final : public Program {
 public:
  PyProgram(const KernelObject& o, nb::object impl, const PyAllocator& memory)
      : Program(o.name, o.n_buffers, o.n_variables), impl_(hold(std::move(impl))), memory_(memory) {}
  double run(void* const* buffers, const int64_t* variables, const LaunchSize& size, bool wait) override {
    const nb::gil_scoped_acquire lock;
    nb::list handles, vals;
    for (int i = 0; i < n_buffers; ++i) handles.append(memory_.object_of(buffers[i]));
    for (int i = 0; i < n_variables; ++i) vals.append(variables[i]);
    const auto sizes = [](const int64_t(&s)[3]) { return nb::make_tuple(s[0], s[1], s[2]); };
    nb::object seconds = (*impl_)(*nb::tuple(handles), nb::arg("global_size") = sizes(size.global), nb::arg("local_size") = sizes(size.local),
                                  nb::arg("vals") = nb::tuple(vals), nb::arg("wait") = wait);
    return seconds.is_none() ? 0 : nb::cast<double>(seconds);
  }

 private:
  Held impl_;
  const PyAllocator& memory_;
};

class PyDevice final : public Device {
 public:
  PyDevice(const std::string& name, const std::string& arch, nb::object made) : Device(name, arch), impl(made) {
    allocator_ = std::make_unique<PyAllocator>(*this, impl.attr("allocator"));
  }
  std::shared_ptr<Program> load(const KernelObject& object) override {
    const nb::gil_scoped_acquire lock;
    const nb::object runtime = impl.attr("runtime");
    if (runtime.is_none()) return Device::load(object);
    return std::make_shared<PyProgram>(object, runtime(nb::cast(object)), static_cast<PyAllocator&>(*allocator_));
  }
  void synchronize() override {
    if (is_closed()) return;
    const nb::gil_scoped_acquire lock;
    impl.attr("synchronize")();
  }
  void finalize() override {
    if (is_closed()) return;
    const nb::gil_scoped_acquire lock;
    impl.attr("finalize")();
  }

  const nb::object impl;
};

// A compiler that Python gave. Without a `cachekey` nothing is kept on disk.
class PyCompiler final : public Compiler {
 public:
  explicit PyCompiler(nb::object impl)
      : Compiler(impl.attr("cachekey").is_none() ? "" : nb::cast<std::string>(impl.attr("cachekey"))), impl_(hold(impl)) {}
  std::string compile(const std::string&, const std::string& source) override {
    const nb::gil_scoped_acquire lock;
    const nb::object library = impl_->attr("compile")(source);
    const auto bytes = nb::cast<nb::bytes>(library);
    return {bytes.c_str(), bytes.size()};
  }
  std::string disassemble(const std::string& library) override {
    const nb::gil_scoped_acquire lock;
    return nb::cast<std::string>(impl_->attr("disassemble")(nb::bytes(library.data(), library.size())));
  }

 private:
  Held impl_;
};

class PyKind final : public DeviceKind {
 public:
  PyKind(const std::string& kind, nb::object cls)
      : DeviceKind(kind, nb::cast<std::string>(cls.attr("about"))),
        cls_(hold(cls)),
        count_(nb::cast<int>(cls.attr("n_devices"))),
        arch_(nb::cast<std::string>(cls.attr("arch"))) {
    for (auto [key, compiler] : compilers()) {
      names_.push_back(nb::cast<std::string>(key));
      for (char& c : names_.back()) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
  }
  int count() override { return count_; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget& target) override {
    const nb::gil_scoped_acquire lock;
    return std::make_unique<PyDevice>(device_name, target.arch.empty() ? arch_ : target.arch, (*cls_)(device_name));
  }
  std::vector<std::string> renderers() const override { return names_; }
  std::shared_ptr<Compiler> make_compiler(const std::string& renderer, const std::string& arch) override {
    const nb::gil_scoped_acquire lock;
    size_t at = static_cast<size_t>(std::find(names_.begin(), names_.end(), renderer) - names_.begin());
    for (auto [key, compiler] : compilers()) {
      if (at-- != 0) continue;
      try {
        nb::object made = compiler(arch);
        std::shared_ptr<Compiler> native;
        if (nb::try_cast(made, native)) return native;
        return std::make_shared<PyCompiler>(made);
      } catch (const nb::python_error& e) {
        raise(ErrorKind::Device, nb::str(e.value()).c_str());
      }
    }
    return DeviceKind::make_compiler(renderer, arch);
  }
  std::string default_arch() override { return arch_; }

 private:
  nb::dict compilers() const { return nb::cast<nb::dict>(cls_->attr("renderers")); }
  const Held cls_;
  std::vector<std::string> names_;
  const int count_;
  const std::string arch_;
};

nb::object python_device(const std::string& name) {
  const auto* device = dynamic_cast<PyDevice*>(unlocked([&] { return &Device::get(name); }));
  return device ? device->impl : nb::none();
}

void close_python_devices() {
  for (Device* d : open_devices())
    if (dynamic_cast<PyDevice*>(d)) {
      d->synchronize();
      d->finalize();
    }
  is_closed() = true;
}

PassFn pass_of(nb::object fn) {
  return [held = hold(std::move(fn))](const UOp& sink) {
    const nb::gil_scoped_acquire lock;
    nb::object out = (*held)(uop_object(sink));
    UOp u;
    if (out.is_none()) return sink;
    if (!nb::try_cast<UOp>(out, u)) raise(ErrorKind::Type, fmt::format("[pass] expected a UOp or None, got a {}", nb::type_name(out.type()).c_str()));
    return u;
  };
}

}  // namespace

void bind_extend(nb::module_& m) {
  nb::class_<PassScope>(m, "PassScope", "A pass that runs in the pipeline while this lives.")
      .def("__init__", [](PassScope* self, const std::string& stage, const std::string& name, nb::callable fn) {
        const char* const names[] = {"tensor", "kernel", "loops"};
        const auto at = std::find(std::begin(names), std::end(names), stage) - std::begin(names);
        WHIT_USER(at < 3, Value, "[pass] there is no stage {}; there are tensor, kernel, loops", stage);
        new (self) PassScope(static_cast<PassStage>(at), name, pass_of(fn));
      });

  m.def("register_renderer", [](const std::string& name, nb::callable render, bool has_lanes) {
    register_renderer({name, cpu_caps(),
                       [render = hold(render)](const UOp& program, std::string_view kernel, const Target&) {
                         const nb::gil_scoped_acquire lock;
                         return nb::cast<std::string>((*render)(uop_object(program), kernel));
                       },
                       has_lanes});
  });
  m.def("kernel_signature", [](const UOp& program) {
    const KernelSignature s = signature_of(program);
    nb::dict d;
    nb::list buffers;
    for (const auto& b : s.buffers) buffers.append(nb::make_tuple(b.slot, dtype_object(b.dtype), b.n_elems, b.is_read, b.is_written));
    d["buffers"] = buffers, d["variables"] = nb::cast(s.variables), d["scratch_bytes"] = s.scratch_bytes;
    d["n_global"] = s.n_global, d["has_global"] = !s.extents.empty();
    return d;
  });

  nb::class_<KernelObject>(m, "KernelObject", "A compiled kernel and what is needed to run it.")
      .def_ro("name", &KernelObject::name, "The function in the library.")
      .def_ro("arch", &KernelObject::arch)
      .def_ro("n_buffers", &KernelObject::n_buffers)
      .def_ro("n_variables", &KernelObject::n_variables)
      .def_ro("scratch_bytes", &KernelObject::scratch_bytes)
      .def_prop_ro("lib", [](const KernelObject& o) { return nb::bytes(o.library.data(), o.library.size()); });
  nb::class_<Compiler>(m, "NativeCompiler", "A compiler of the C++ half.")
      .def("compile",
           [](Compiler& c, const std::string& src) {
             const std::string lib = unlocked([&] { return c.compile("kernel", src); });
             return nb::bytes(lib.data(), lib.size());
           })
      .def_prop_ro("cachekey", &Compiler::key);
  m.def("make_llvm_compiler", [](const std::string& arch) { return make_llvm_compiler(arch); });
  m.def("make_c_compiler", [](const std::string& arch) { return make_c_compiler(arch); });
  m.def("host_cpu_arch", &host_cpu_arch);

  nb::class_<CpuProgram>(m, "CPUProgram", "A kernel of the CPU's ABI, called with addresses of memory.")
      .def(nb::init<const KernelObject&>(), nb::arg("kernel"))
      .def(
          "__call__",
          [](CpuProgram& p, nb::args bufs, const std::tuple<int64_t, int64_t, int64_t>& global, nb::handle, const std::vector<int64_t>& vals,
             bool wait) {
            WHIT_USER(static_cast<int>(bufs.size()) == p.n_buffers, Value, "[kernel {}] {} buffers given, it has {}", p.name, bufs.size(),
                      p.n_buffers);
            std::vector<void*> addresses;
            for (nb::handle b : bufs) addresses.push_back(reinterpret_cast<void*>(nb::cast<uintptr_t>(b)));
            const LaunchSize size{{std::get<0>(global), std::get<1>(global), std::get<2>(global)}};
            return unlocked([&] { return p.run(addresses.data(), vals.data(), size, wait); });
          },
          nb::arg("bufs"), nb::kw_only(), nb::arg("global_size"), nb::arg("local_size") = nb::none(), nb::arg("vals") = std::vector<int64_t>(),
          nb::arg("wait") = false);

  m.def("register_device", [](const std::string& kind, nb::object cls) {
    auto made = std::make_unique<PyKind>(kind, cls);
    unlocked([&] { register_device(std::move(made)); });
  });
  m.def("python_device", &python_device, "The Python object of a device that Python registered, else None.");
  m.def("device_contract", [](const std::string& device) { return unlocked([&] { return broken_contracts(device); }); });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_python_devices));
}

}  // namespace whit::python
