// Child processes that are given bytes and give bytes back.
#pragma once
#include <sys/types.h>

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

/// A child that is talked to over its standard input and output; its standard error is ours.
class ChildProcess {
 public:
  /// errors: Io when it cannot be started
  explicit ChildProcess(const std::vector<std::string>& argv);
  /// Ends the child.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// False when the child is gone or the deadline (os::now_ns) is past.
  bool write(const void* data, size_t n_bytes, int64_t deadline_ns);
  bool read(void* data, size_t n_bytes, int64_t deadline_ns);
  pid_t pid() const { return pid_; }
  /// Ends the child and says how it ended: "signal 11", "exit code 1".
  std::string end();

 private:
  pid_t pid_ = -1;
  int to_child_ = -1, from_child_ = -1;
};

}  // namespace whit
