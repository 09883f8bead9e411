#include "viz/device_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/flags.h"
#include "base/os.h"
#include "engine/compile.h"
#include "ir/build.h"
#include "runtime/buffer.h"
#include "runtime/device.h"

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
  const CodePath path{kind.name, renderer, arch, kind.make_compiler(renderer, arch)};
  if (kind.default_rank() < 0) return "not probed with a kernel";
  // out[i] = in[i] + 1
  const UOp i = range(kElems, 0, AxisType::Weak), one = constant(DType::Float32, 1.0);
  const UOp out = param(0, DType::Float32, Dims{kElems}), in = param(1, DType::Float32, Dims{kElems});
  const UOp add = end(store(index(out, i), load(index(in, i)) + one), std::span(&i, 1));
  const UOp sink = UOp::make(Op::Sink, DType::Void, {add}, Arg::list({"probe"}));
  const FlagScope no_cache("CCACHE", int64_t{0});
  const int64_t start_ns = os::now_ns();
  const engine::ExecutablePtr program = engine::compile_kernel({sink, kind.name}, path, "");
  const double compile_ms = static_cast<double>(os::now_ns() - start_ns) * 1e-6;
  program->load();
  const BufferPtr from = Buffer::make(kind.name, kElems * 4), to = Buffer::make(kind.name, kElems * 4);
  std::vector<float> data(kElems);
  std::iota(data.begin(), data.end(), 0.0F);
  from->copyin(data.data(), kElems * 4);
  void* buffers[] = {to->handle(), from->handle()};
  program->run(buffers, nullptr);
  Device::get(kind.name).synchronize();
  to->copyout(data.data(), kElems * 4);
  for (int64_t k = 0; k < kElems; ++k) {
    const float got = data[static_cast<size_t>(k)];
    WHIT_USER(got == static_cast<float>(k) + 1, Device, "a kernel gives {} where {} is right", got, k + 1);
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
