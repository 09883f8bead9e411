// Devices and counters.
#include "convert.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/target.h"

namespace whit::python {
namespace {
struct PyCounters {};

// A line a kind of device and renderer: PASS with the arch, or FAIL with the reason.
std::string device_table() {
  std::string out;
  for (const std::string& k : device_kinds()) {
    DeviceKind& kind = must_find_kind(k);
    const std::vector<std::string> renderers = kind.renderers();
    for (const std::string& r : renderers.empty() ? std::vector<std::string>{""} : renderers) {
      std::string verdict;
      try {
        if (kind.count() == 0) raise(ErrorKind::Device, "no device");
        const std::string arch = kind.default_arch();
        if (!r.empty()) kind.make_compiler(r, arch);
        verdict = "PASS " + arch;
      } catch (const Error& e) {
        verdict = std::string("FAIL ") + e.what();
      }
      out += fmt::format("{:8} {:8} {}\n", k, r, verdict);
    }
  }
  return out;
}
}  // namespace

void bind_runtime(nb::module_& m) {
  nb::class_<PyCounters> c(m, "_GlobalCounters", "What the process has run so far.");
  c.def_prop_ro("kernel_count", [](PyCounters) { return counters().kernel_count.load(); })
      .def_prop_ro("global_ops", [](PyCounters) { return counters().global_ops.load(); })
      .def_prop_ro("global_mem", [](PyCounters) { return counters().global_mem.load(); })
      .def_prop_ro("time_sum_s", [](PyCounters) { return counters().time_sum_s(); })
      .def_prop_ro("mem_used", [](PyCounters) { return counters().mem_used.load(); })
      .def_prop_ro("mem_used_per_device",
                   [](PyCounters) {
                     nb::dict d;
                     for (Device* dev : open_devices()) d[dev->name().c_str()] = dev->mem_used.load();
                     return d;
                   })
      .def("reset", [](PyCounters) { counters().reset(); }, "Zeroes all but the memory in use.");
  m.attr("GlobalCounters") = nb::cast(PyCounters{});

  m.def("default_device", &default_device);
  m.def("canonicalize_device", [](const std::string& d) { return canonical_device(d); });
  m.def("open_device", [](const std::string& d) { Device::get(d); });
  m.def("synchronize", [](const std::string& d) { unlocked([&] { Device::get(d).synchronize(); }); });
  m.def("device_arch", [](const std::string& d) { return Device::get(d).arch(); });
  m.def("opened_devices", [] {
    nb::list l;
    for (Device* d : open_devices()) l.append(d->name());
    return l;
  });
  m.def("available_devices", [] {
    nb::list l;
    for (const std::string& k : device_kinds())
      if (must_find_kind(k).count() > 0) l.append(k);
    return l;
  });
  m.def("device_table", [] { return device_table(); });
}

}  // namespace whit::python
