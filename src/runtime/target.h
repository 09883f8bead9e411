// The grammar of the flag DEV, and names of devices.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace whit {

/// One target of DEV: `[IFACE[:indices]+]DEVICE[:RENDERER[:ARCH]]`. Any part may be empty: "not said".
struct DeviceTarget {
  std::string iface;         ///< upper case
  std::vector<int> indices;  ///< physical devices to expose; empty is all
  std::string device;        ///< upper case
  std::string renderer;      ///< upper case
  std::string arch;          ///< as written
};

/// The targets of `text`, split at ';'. An empty text has none.
/// errors: Runtime for more than one '+', more than two ':' or indices that are no list like "0,2" or "0-3"
std::vector<DeviceTarget> parse_targets(std::string_view text);

/// The value of DEV or DEVICE. errors: Runtime when both are set and differ
const std::string& dev_flag();
/// What DEV says about devices of this kind ("CPU"): the first target whose device is empty or equal, else nothing.
DeviceTarget target_of(std::string_view kind);

/// A device's name in its one spelling: kind in upper case, ":0" dropped ("cpu:0" -> "CPU", "cpu:1" -> "CPU:1"). What
/// follows "DISK:" is a path and is kept. Opens nothing; the kind need not exist.
/// errors: Value for an empty name or an ordinal that is no number
std::string canonical_device(std::string_view name);
/// "CPU:1" -> "CPU"
std::string device_kind_of(std::string_view canonical);
/// "CPU:1" -> 1, "CPU" -> 0
int device_ordinal_of(std::string_view canonical);

}  // namespace whit
