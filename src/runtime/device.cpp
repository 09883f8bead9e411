#include "runtime/device.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/flags.h"
#include "base/immortal.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/allocator.h"
#include "runtime/program.h"

namespace whit {
namespace {

// Kinds and devices are never destroyed: tensors of static objects still hold memory when statics are destroyed.
struct Registry {
  std::recursive_mutex mutex;  // opening a device may ask for another
  std::map<std::string, std::unique_ptr<DeviceKind>, std::less<>> kinds;
  std::vector<Device*> open;  // in order of opening
  std::vector<std::unique_ptr<Device>> owned;
  std::map<std::string, CodePath> code_paths;
  std::vector<decltype(code_paths)::node_type> retired;  // kernels are cached by the address of their path
};

constexpr auto registry = immortal<Registry>;

Device& open_device(const std::string& canonical) {
  Registry& r = registry();
  check_flags();
  DeviceKind& kind = must_find_kind(device_kind_of(canonical));
  WHIT_USER(flag::ALLOW_DEVICE_USAGE() != 0 || kind.always_allowed(), Assertion, "[device] {} is opened although ALLOW_DEVICE_USAGE=0", canonical);
  const int count = kind.count(), ordinal = device_ordinal_of(canonical);
  WHIT_USER(count > 0, Device, "[device] there is no {} device on this machine", kind.name);
  WHIT_USER(ordinal < count, Device, "[device] {} does not exist: there are {} {} devices, the last is {}:{}", canonical, count, kind.name, kind.name,
            count - 1);
  std::unique_ptr<Device> device = kind.open(canonical, target_of(kind.name));
  WHIT_CHECK(device != nullptr, "kind {} opened no device", kind.name);
  [[maybe_unused]] static const int at_exit = std::atexit([] {
    try {
      finalize_devices();
    } catch (const std::exception& e) {
      log_line(fmt::format("whit: at exit: {}", e.what()));
    }
  });
  if (flag::DEBUG() >= 1) log_line(fmt::format("opened device {} ({})", canonical, device->arch()));
  r.open.push_back(device.get());
  return *r.owned.emplace_back(std::move(device));
}

// The renderer and compiler of a kind for what DEV says about it.
CodePath choose_code_path(DeviceKind& kind, const DeviceTarget& target) {
  const std::vector<std::string> names = kind.renderers();
  WHIT_USER(!names.empty(), Device, "[device] {} runs no kernels", kind.name);
  std::vector<std::string> wanted = names;
  if (!target.renderer.empty()) {
    WHIT_USER(std::ranges::find(names, target.renderer) != names.end(), Device, "[device] {} has no renderer {}; there are: {}{}", kind.name,
              target.renderer, join(names, ", "), did_you_mean(target.renderer, names));
    wanted = {target.renderer};
  }
  const std::string arch = target.arch.empty() ? kind.default_arch() : target.arch;
  std::string reasons;
  for (const std::string& name : wanted) {
    try {
      CodePath path{kind.name, name, arch, kind.make_compiler(name, arch)};
      if (!reasons.empty()) say_once("renderer:" + kind.name, fmt::format("{} uses the renderer {}, because{}", kind.name, name, reasons));
      return path;
    } catch (const Error& e) {
      reasons += fmt::format(" {} does not work ({})", name, e.what());
    }
  }
  raise(ErrorKind::Device, "[device] no compiler for {}:{}", kind.name, reasons);
}

}  // namespace

Program::~Program() = default;

Device::Device(std::string name, std::string arch)
    : name_(std::move(name)), kind_(device_kind_of(name_)), arch_(std::move(arch)), ordinal_(device_ordinal_of(name_)) {}
Device::~Device() = default;

std::shared_ptr<Program> Device::load(const KernelObject& object) {
  raise(ErrorKind::Device, "[device] {} runs no kernels, so not {} either", name_, object.name);
}

std::shared_ptr<Compiler> DeviceKind::make_compiler(const std::string& renderer, const std::string&) {
  raise(ErrorKind::Device, "[device] {} has no compiler for {}", name, renderer);
}

Device& Device::get(std::string_view name) {
  const std::string canonical = name.empty() ? default_device() : canonical_device(name);
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = std::ranges::find(r.open, canonical, &Device::name);
  return found != r.open.end() ? **found : open_device(canonical);
}

void register_device(std::unique_ptr<DeviceKind> kind) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  for (const Device* device : r.open)
    WHIT_USER(device->kind() != kind->name, Runtime, "[device] {} is registered again while {} is open", kind->name, device->name());
  for (auto it = r.code_paths.begin(); it != r.code_paths.end();)
    if (const auto at = it++; at->second.kind == kind->name) r.retired.push_back(r.code_paths.extract(at));
  r.kinds[kind->name] = std::move(kind);
}

std::vector<std::string> device_kinds() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<std::string> names;
  for (const auto& [name, kind] : r.kinds) names.push_back(name);
  return names;
}

DeviceKind& must_find_kind(std::string_view kind) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.kinds.find(kind);
  if (found != r.kinds.end()) return *found->second;
  raise(ErrorKind::Device, "[device] unknown device {}; there are: {}{}", kind, join(device_kinds(), ", "), did_you_mean(kind, device_kinds()));
}

bool is_file(std::string_view device) { return device.starts_with("DISK:"); }
bool is_storage_only(std::string_view device) { return must_find_kind(device_kind_of(device)).renderers().empty(); }

const CodePath& code_path(std::string_view device) {
  const std::string kind_name = device_kind_of(device.empty() ? default_device() : canonical_device(device));
  const DeviceTarget target = target_of(kind_name);
  const std::string key = kind_name + ":" + target.renderer + ":" + target.arch + ":" + flag::CC();
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.code_paths.find(key);
  if (found != r.code_paths.end()) return found->second;
  return r.code_paths.emplace(key, choose_code_path(must_find_kind(kind_name), target)).first->second;
}

std::string default_device() {
  for (const std::string& name : device_kinds()) {
    const std::string* const old_form = getenv_once(name);
    WHIT_USER(!old_form || *old_form != "1", Value, "[DEV] {}=1 is not understood; say DEV={}", name, name);
  }
  const std::vector<DeviceTarget> targets = parse_targets(dev_flag());
  if (!targets.empty() && !targets.front().device.empty()) {
    must_find_kind(targets.front().device);
    return targets.front().device;
  }
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  DeviceKind* best = nullptr;
  for (const auto& [name, kind] : r.kinds) {
    if (kind->default_rank() < 0 || (best && best->default_rank() <= kind->default_rank())) continue;
    if (kind->count() > 0) best = kind.get();
  }
  WHIT_USER(best, Device, "[device] there is no usable device");
  return best->name;
}

std::vector<Device*> open_devices() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.open;
}

void finalize_devices() {
  std::vector<Device*> devices;
  {
    Registry& r = registry();
    const std::lock_guard lock(r.mutex);
    devices.swap(r.open);
  }
  // All steps are taken; what the first that fails raises is raised at the end.
  std::exception_ptr first;
  const auto take = [&](const auto& step) {
    try {
      step();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  };
  for (Device* const device : devices) take([&] { device->synchronize(); });
  for (Device* const device : devices) {
    take([&] { device->finalize(); });
    take([&] { device->allocator().free_cache(); });
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace whit
