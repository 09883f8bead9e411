// Child processes that are given bytes and give bytes back.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace whit {

struct ProcessResult {
  int exit_code = -1;      ///< of the process; 128 + n when signal n ended it
  bool timed_out = false;  ///< it was ended because it took too long
  std::string out, err;
};

/// Runs a program found in PATH, with `input` on its standard input, until it ends. timeout_ms 0 waits for ever.
/// errors: Io when it cannot be started
ProcessResult run_process(const std::vector<std::string>& argv, const std::string& input, int64_t timeout_ms);
/// The path of a program in PATH, or "".
std::string find_program(const std::string& name);

/// All bytes to or from a file descriptor. False when the other end is gone or the deadline (os::now_ns; 0: none) is past.
bool write_all(int fd, const void* data, size_t n_bytes, int64_t deadline_ns = 0);
bool read_all(int fd, void* data, size_t n_bytes, int64_t deadline_ns = 0);

}  // namespace whit
