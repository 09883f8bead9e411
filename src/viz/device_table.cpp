#include "viz/device_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/flags.h"
#include "base/os.h"
#include "runtime/buffer.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace whit {
namespace {

constexpr int64_t kElems = 100;

std::string probe_memory(Device& device) {
  const BufferPtr buffer = Buffer::make(device.name(), kElems);
  if (!buffer->host_pointer()) return "holds no data";
  std::string in(kElems, 'a'), out(kElems, 'b');
  buffer->copyin(in.data(), kElems);
  buffer->copyout(out.data(), kElems);
  WHIT_USER(in == out, Device, "memory does not keep what is written");
  return "";
}

std::string probe_renderer(DeviceKind& kind, const std::string& renderer) {
  const std::string arch = kind.default_arch();
  const std::shared_ptr<Compiler> compiler = kind.make_compiler(renderer, arch);
  const std::string source = kind.probe_kernel(renderer);
  if (source.empty()) return "not probed with a kernel";
  const int64_t start_ns = os::now_ns();
  KernelObject object;
  object.library = compiler->compile("k", source);
  const double compile_ms = static_cast<double>(os::now_ns() - start_ns) * 1e-6;
  object.name = "k";
  object.arch = arch;
  object.n_buffers = 2;
  const std::shared_ptr<Program> program = Device::get(kind.name).load(object);
  const BufferPtr in = Buffer::make(kind.name, kElems * 4), out = Buffer::make(kind.name, kElems * 4);
  std::vector<float> data(kElems);
  for (int64_t i = 0; i < kElems; ++i) data[static_cast<size_t>(i)] = static_cast<float>(i);
  in->copyin(data.data(), kElems * 4);
  void* buffers[] = {out->handle(), in->handle()};
  program->run(buffers, nullptr, {.global = {kElems, 1, 1}}, true);
  out->copyout(data.data(), kElems * 4);
  for (int64_t i = 0; i < kElems; ++i) {
    const float got = data[static_cast<size_t>(i)];
    WHIT_USER(got == static_cast<float>(i) + 1, Device, "a kernel gives {} where {} is right", got, i + 1);
  }
  return fmt::format("a kernel compiles in {:.1f} ms and runs", compile_ms);
}

// A row of what `probe` returns or throws.
template <class Probe> ProbeRow row_of(const std::string& device, const std::string& renderer, bool is_default, const Probe& probe) {
  try {
    return {device, renderer, true, is_default, probe()};
  } catch (const std::exception& e) {
    std::string why = e.what();
    why.resize(std::min(why.size(), why.find('\n')));
    return {device, renderer, false, is_default, why};
  }
}

}  // namespace

std::vector<ProbeRow> probe_devices() {
  std::vector<ProbeRow> rows;
  std::string chosen, chosen_renderer;
  try {
    chosen = default_device();
    chosen_renderer = code_path(chosen).renderer;
  } catch (const std::exception&) {
    // Then nothing is the default; the rows say why.
  }
  for (const std::string& name : device_kinds()) {
    DeviceKind& kind = must_find_kind(name);
    if (name == "DISK") {
      rows.push_back({name, "", true, false, kind.summary});
      continue;
    }
    rows.push_back(row_of(name, "", name == chosen, [&] {
      Device& device = Device::get(name);
      const std::string memory = probe_memory(device);
      std::string detail = kind.summary;
      if (!device.arch().empty()) detail += "; " + device.arch();
      if (name == "CPU") detail += fmt::format("; {} threads", flag::NUM_CPU_THREADS());
      return memory.empty() ? detail : detail + "; " + memory;
    }));
    if (!rows.back().works) continue;
    for (const std::string& renderer : kind.renderers()) {
      rows.push_back(row_of(name, renderer, name == chosen && renderer == chosen_renderer, [&] { return probe_renderer(kind, renderer); }));
    }
  }
  return rows;
}

std::string device_table(bool colours) {
  const char* const green = colours ? "\x1b[32m" : "";
  const char* const red = colours ? "\x1b[31m" : "";
  const char* const plain = colours ? "\x1b[0m" : "";
  std::string table = fmt::format("  {:<8} {:<9} {:<7} {}\n", "device", "renderer", "result", "detail");
  for (const ProbeRow& row : probe_devices()) {
    table += fmt::format("{} {:<8} {:<9} {}{:<7}{} {}\n", row.is_default ? '*' : ' ', row.renderer.empty() ? row.device : "", row.renderer,
                         row.works ? green : red, row.works ? "PASS" : "FAIL", plain, row.detail);
  }
  return table + "* is used when DEV says nothing else\n";
}

}  // namespace whit
