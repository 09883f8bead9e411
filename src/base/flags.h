// Flags: read once from the environment, overridden for a scope at run time. The table is flags.def.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace whit {

using FlagValue = std::variant<int64_t, std::string>;

/// A row of the table.
struct FlagInfo {
  const char* name;
  bool is_text;
  bool codegen;  ///< can change the code of kernels, so it belongs in their cache keys
  const char* doc;
};

namespace flag {
enum class Id : unsigned char {
#define WHIT_FLAG_INT(name, ...) name,
#define WHIT_FLAG_STR(name, ...) name,
#include "base/flags.def"
  kCount
};
extern std::atomic<int64_t> ints[static_cast<size_t>(Id::kCount)];
extern std::atomic<const std::string*> texts[static_cast<size_t>(Id::kCount)];

// One accessor a row: flag::DEBUG(), flag::DEV(). One relaxed load each; a text lives as long as the process.
#define WHIT_FLAG_INT(name, ...) \
  inline int64_t name() { return ints[static_cast<size_t>(Id::name)].load(std::memory_order_relaxed); }
#define WHIT_FLAG_STR(name, ...) \
  inline const std::string& name() { return *texts[static_cast<size_t>(Id::name)].load(std::memory_order_acquire); }
#include "base/flags.def"
}  // namespace flag

/// All rows, in the order of the table.
const std::vector<FlagInfo>& flag_infos();
/// errors: Key, with the likely name, when there is no such flag
FlagValue flag_value(std::string_view name);
/// Sets a flag for the whole process, until it is set again. A text that holds an integer is taken for an integer flag.
/// errors: Key for an unknown name, Type for a value of the wrong type
void set_flag(std::string_view name, const FlagValue& value);
/// Raises what was wrong with the environment at start ("DEBUG=abc"): devices and the Python module call it.
/// errors: Value
void check_flags();
/// "CC=;NOOPT=0;...": the value of every flag that can change code, for cache keys.
std::string codegen_flags();
/// The environment's value of any name, read once: later changes of the environment are not seen. Null if not set.
const std::string* getenv_once(std::string_view name);

/// Overrides flags while it lives and then puts the old values back. Overrides are of the process, not of the thread;
/// scopes of one thread must nest.
/// errors: as set_flag; nothing is changed then
class FlagScope {
 public:
  FlagScope(std::string_view name, const FlagValue& value);
  explicit FlagScope(const std::vector<std::pair<std::string, FlagValue>>& overrides);
  ~FlagScope();
  FlagScope& operator=(FlagScope&&) = delete;  // nor is it copied

 private:
  std::vector<std::pair<std::string, FlagValue>> saved_;
};

}  // namespace whit
