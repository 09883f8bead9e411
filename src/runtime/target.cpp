#include "runtime/target.h"

#include <algorithm>

#include "base/error.h"
#include "base/flags.h"
#include "base/text.h"

namespace whit {
namespace {

constexpr int kMaxOrdinal = 4095;

std::vector<int> parse_indices(const std::string& text, std::string_view target) {
  std::vector<int> indices;
  for (const std::string& piece : split(text, ',')) {
    const std::vector<std::string> ends = split(piece, '-');
    int64_t first = 0, last = 0;
    WHIT_USER(
        ends.size() <= 2 && parse_int(ends.front(), first) && parse_int(ends.back(), last) && first >= 0 && first <= last && last <= kMaxOrdinal,
        Runtime, "[DEV] '{}' in '{}' is no list of devices like 0,2 or 0-3", text, target);
    for (int64_t i = first; i <= last; ++i) indices.push_back(static_cast<int>(i));
  }
  return indices;
}

DeviceTarget parse_target(std::string_view text) {
  DeviceTarget target;
  // A '+' behind two ':' stands before a feature of the arch ("CPU:LLVM:x86_64,+avx2"), not behind an interface.
  std::string_view rest = text;
  const size_t plus = text.find('+');
  if (plus != std::string_view::npos && std::count(text.begin(), text.begin() + static_cast<long>(plus), ':') < 2) {
    const std::string_view iface = text.substr(0, plus);
    rest = text.substr(plus + 1);
    const std::vector<std::string> parts = split(iface, ':');
    target.iface = to_upper(parts[0]);
    if (parts.size() == 2) target.indices = parse_indices(parts[1], text);
  }
  const std::vector<std::string> parts = split(rest, ':');
  WHIT_USER(parts.size() <= 3, Runtime, "[DEV] '{}' has more than two ':'; expected DEVICE[:RENDERER[:ARCH]]", text);
  target.device = to_upper(parts[0]);
  if (parts.size() > 1) target.renderer = to_upper(parts[1]);
  if (parts.size() > 2) target.arch = parts[2];
  WHIT_USER(target.device.find('+') == std::string::npos && target.renderer.find('+') == std::string::npos, Runtime,
            "[DEV] '{}' has more than one '+'; expected [IFACE[:indices]+]DEVICE[:RENDERER[:ARCH]]", text);
  return target;
}

}  // namespace

std::vector<DeviceTarget> parse_targets(std::string_view text) {
  std::vector<DeviceTarget> targets;
  if (text.empty()) return targets;
  for (const std::string& piece : split(text, ';')) targets.push_back(parse_target(piece));
  return targets;
}

const std::string& dev_flag() {
  const std::string& dev = flag::DEV();
  const std::string& device = flag::DEVICE();
  if (device.empty()) return dev;
  WHIT_USER(dev.empty() || dev == device, Runtime, "[DEV] DEV='{}' and DEVICE='{}' are both set and differ", dev, device);
  return device;
}

DeviceTarget target_of(std::string_view kind) {
  for (DeviceTarget& target : parse_targets(dev_flag())) {
    if (target.device.empty() || target.device == kind) return std::move(target);
  }
  return {};
}

std::string canonical_device(std::string_view name) {
  WHIT_USER(!name.empty(), Value, "[device] the name of a device is empty");
  const size_t colon = name.find(':');
  const std::string kind = to_upper(name.substr(0, colon));
  if (colon == std::string_view::npos) return kind;
  const std::string_view rest = name.substr(colon + 1);
  if (kind == "DISK") return kind + ":" + std::string(rest);
  int64_t ordinal = 0;
  WHIT_USER(!kind.empty() && parse_int(rest, ordinal) && ordinal >= 0 && ordinal <= kMaxOrdinal, Value,
            "[device] '{}' is no device: expected NAME or NAME:ordinal, the ordinal in 0..{}", name, kMaxOrdinal);
  return ordinal == 0 ? kind : fmt::format("{}:{}", kind, ordinal);
}

std::string device_kind_of(std::string_view canonical) { return std::string(canonical.substr(0, canonical.find(':'))); }

int device_ordinal_of(std::string_view canonical) {
  if (canonical.starts_with("DISK:")) return 0;  // what follows is a path
  const size_t colon = canonical.find(':');
  int64_t ordinal = 0;
  if (colon == std::string_view::npos || !parse_int(canonical.substr(colon + 1), ordinal)) return 0;
  return static_cast<int>(ordinal);
}

}  // namespace whit
