// Compiling in a child process, so that a compiler that crashes, hangs or answers nonsense costs one error.
//
// The child reads requests on its standard input and answers on its standard output. A frame is a kind (1 byte), a length
// (8 bytes, little-endian) and so many bytes. A request is three frames: 'A' arch, 'K' kernel name, 'S' source; the
// answer one: 'B' binary or 'E' error text.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/compiler.h"

namespace whit {

/// A compiler whose work is done by a child that runs `argv`. The child is started at the first compile and again after
/// each failure; one child serves one compile at a time.
class ServedCompiler : public Compiler {
 public:
  /// `key` must be the key of the compiler that the child runs.
  ServedCompiler(std::string key, std::vector<std::string> argv, std::string arch, int64_t timeout_ms = 60'000);
  ~ServedCompiler() override;
  std::string compile(const std::string& kernel, const std::string& source) override;
  /// Children started so far.
  int n_starts();

 private:
  std::mutex mutex_;
  std::vector<std::string> argv_;
  std::string arch_;
  int64_t timeout_ms_;
  int n_starts_ = 0;
  std::unique_ptr<class ChildProcess> child_;
};

/// The child's side: serves requests from a file descriptor until it ends. `make` gives the compiler of an arch.
void serve_compiles(int in, int out, std::shared_ptr<Compiler> (*make)(const std::string& arch));

}  // namespace whit
