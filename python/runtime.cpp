// Devices and counters.
#include <unistd.h>

#include <utility>

#include "base/profile.h"
#include "convert.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/target.h"
#include "viz/device_table.h"
#include "viz/timeline.h"
#include "whit/distributed.h"

namespace whit::python {
namespace {
struct PyCounters {};
}  // namespace

void bind_runtime(nb::module_& m) {
  nb::class_<PyCounters> c(m, "Counters", "What the process has run so far.");
  c.def_prop_ro("kernel_count", [](PyCounters) { return counters().kernel_count.load(); })
      .def_prop_ro("global_ops", [](PyCounters) { return counters().global_ops.load(); })
      .def_prop_ro("global_mem", [](PyCounters) { return counters().global_mem.load(); })
      .def_prop_ro("time_sum_s", [](PyCounters) { return counters().time_sum_s(); })
      .def_prop_ro("mem_used", [](PyCounters) { return counters().mem_used.load(); })
      .def_prop_ro("mem_peak", [](PyCounters) { return counters().mem_peak.load(); })
      .def(
          "reset_peak", [](PyCounters) { counters().reset_peak(); }, "mem_peak becomes the memory in use.")
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
  m.def("device_count", [](const std::string& d) { return must_find_kind(device_kind_of(canonical_device(d))).count(); });
  m.def("device_arch", [](const std::string& d) { return Device::get(d).arch(); });
  m.def(
      "device_renderer", [](const std::string& d) { return code_path(canonical_device(d)).renderer; },
      "The renderer of a device's kernels, in upper case. Opens nothing.");
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
  m.def("device_table", [](bool colours) { return unlocked([&] { return device_table(colours); }); }, nb::arg("colours") = false);
  m.def("distributed_rank", &distributed::rank);
  m.def("distributed_size", &distributed::size);
  m.def("distributed_devices", [] { return unlocked([] { return distributed::devices(); }); });
  m.def("distributed_abort", &distributed::abort);
  m.def("add_to_timeline", [](const std::string& name, const std::string& device, double start_us, double end_us) {
    const auto ns = [](double us) { return static_cast<int64_t>(us * 1e3); };
    add_to_timeline({"python", name, device == "WHIT" ? "" : device, 0, ns(start_us), ns(end_us)});
  });
  m.def("timeline", [] {
    nb::list l;
    for (const TimelineEvent& e : timeline()) l.append(nb::make_tuple(e.category, e.name, e.device, e.thread, e.start_ns, e.end_ns, e.value));
    return l;
  });
  m.def("build_ended", &build_ended);
  m.def("clear_timeline", &clear_timeline);
  m.def("write_timeline", &write_timeline);
  // An interrupt that nobody catches ends Python by its signal, after Python's exit handlers and without those of C++.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([process = getpid()] {
    if (process == getpid() && timeline_at_exit && !timeline().empty()) std::exchange(timeline_at_exit, nullptr)();
  }));
}

}  // namespace whit::python
