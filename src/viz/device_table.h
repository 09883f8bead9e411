// What works on this machine, and why the rest does not.
#pragma once
#include <string>
#include <vector>

namespace whit {

struct ProbeRow {
  std::string device;
  std::string renderer;  ///< "" for the device itself
  bool works;
  bool is_default;     ///< what is used when DEV says nothing else
  std::string detail;  ///< what was found, or the reason
};

/// Opens a device of every kind, moves data through its memory, and compiles and runs a small kernel with every renderer.
/// Never fails: a failure is a row.
std::vector<ProbeRow> probe_devices();
/// probe_devices() as a table for people, with or without colours.
std::string device_table(bool colours);

}  // namespace whit
