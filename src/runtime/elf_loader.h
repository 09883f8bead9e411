// Links an ELF object file of kernels into memory of this process.
//
// The object is relocated into one flat image without undefined symbols: code, then constants and a table of the
// addresses it asks for. Requirements:
//  1. Files are hostile: every offset, size, index and string is checked against the file before it is used, and what
//  is
//     wrong is named. A broken file costs an error, never a crash or a wrong jump. (Machine code itself is not
//     checked.)
//  2. Memory is never writable and executable at once.
//  3. A kernel may reach outside only by the table of symbols below: memory and libm functions and the compiler's own
//     helpers. Kernels have no state: sections that are writable at run time are refused.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whit {

class LoadedObject {
 public:
  /// Loads an object for the machine of this process. `origin` is named in errors.
  /// errors: Device for a file that is broken, of another machine, or needs what is not provided
  static std::shared_ptr<LoadedObject> load(std::string_view file, std::string_view origin);
  ~LoadedObject();
  LoadedObject& operator=(LoadedObject&&) = delete;  // nor is it copied

  /// The address of a function that the object defines. errors: Device with the functions that there are
  void* must_find(std::string_view function) const;
  size_t n_bytes() const { return n_bytes_; }

 private:
  LoadedObject() = default;
  friend class Linker;
  void* image_ = nullptr;
  size_t n_bytes_ = 0;
  std::string origin_;
  std::vector<std::pair<std::string, size_t>> functions_;
};

/// The address of a function that kernels may call, or null.
void* find_runtime_symbol(std::string_view name);

}  // namespace whit
