#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"

extern char** environ;

namespace whit {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    WHIT_USER(pipe2(ends, O_CLOEXEC) == 0, Io, "[process] no pipe: {}", std::strerror(errno));
    read_end = ends[0], write_end = ends[1];
  }
  ~Pipe() {
    close_end(read_end);
    close_end(write_end);
  }
  Pipe& operator=(Pipe&&) = delete;  // nor is it copied
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

pid_t spawn(const std::vector<std::string>& argv, const Pipe& in, const Pipe& out, const Pipe& err) {
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, 2);
  pid_t pid = -1;
  const int rc = posix_spawnp(&pid, args[0], &actions, nullptr, args.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  WHIT_USER(rc == 0, Io, "[process] {} does not start: {}", argv[0], std::strerror(rc));
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// A write to a child that is gone must be an error of write(), not the end of this process. The signal is held back for
// this thread, and taken away if this write caused it.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &old_);
  }
  ~NoSigpipe() {
    if (!was_pending_) {
      const timespec now{0, 0};
      while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  NoSigpipe& operator=(NoSigpipe&&) = delete;  // nor is it copied

 private:
  sigset_t pipe_, old_;
  bool was_pending_;
};

void make_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

// Milliseconds until the deadline for poll; -1 for none.
int poll_ms(int64_t deadline_ns) {
  if (deadline_ns == 0) return -1;
  const int64_t left = deadline_ns - os::now_ns();
  return left <= 0 ? 0 : static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, 1 << 30));
}

template <class Byte, class Move> bool move_all(Move move, int fd, short event, Byte* at, size_t n_bytes, int64_t deadline_ns) {
  while (n_bytes > 0) {
    const ssize_t n = move(fd, at, n_bytes);
    if (n > 0) {
      at += n;
      n_bytes -= static_cast<size_t>(n);
    } else if (n < 0 && errno == EAGAIN) {
      pollfd waited{fd, event, 0};
      if (poll(&waited, 1, poll_ms(deadline_ns)) == 0) return false;
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const std::string& input, int64_t timeout_ms) {
  Pipe in, out, err;
  const NoSigpipe no_sigpipe;
  const pid_t pid = spawn(argv, in, out, err);
  Pipe::close_end(in.read_end);
  Pipe::close_end(out.write_end);
  Pipe::close_end(err.write_end);
  for (const int fd : {in.write_end, out.read_end, err.read_end}) make_nonblocking(fd);
  const int64_t deadline_ns = timeout_ms > 0 ? os::now_ns() + timeout_ms * 1'000'000 : 0;
  ProcessResult result;
  size_t written = 0;
  if (input.empty()) Pipe::close_end(in.write_end);
  while (out.read_end >= 0 || err.read_end >= 0) {
    pollfd fds[3] = {{in.write_end, POLLOUT, 0}, {out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}};
    const int n = poll(fds, 3, poll_ms(deadline_ns));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      result.timed_out = true;
      kill(pid, SIGKILL);
      break;
    }
    if (fds[0].revents) {
      const ssize_t put = ::write(in.write_end, input.data() + written, input.size() - written);
      if (put > 0) written += static_cast<size_t>(put);
      if ((put < 0 && errno != EAGAIN && errno != EINTR) || written == input.size()) Pipe::close_end(in.write_end);
    }
    const auto drain = [](const pollfd& fd, int& end, std::string& to) {
      if (!fd.revents) return;
      char buffer[65536];
      const ssize_t got = ::read(end, buffer, sizeof(buffer));
      if (got > 0) to.append(buffer, static_cast<size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) Pipe::close_end(end);
    };
    drain(fds[1], out.read_end, result.out);
    drain(fds[2], err.read_end, result.err);
  }
  result.exit_code = wait_for(pid);
  return result;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "/usr/local/bin:/usr/bin:/bin", ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

bool write_all(int fd, const void* data, size_t n_bytes, int64_t deadline_ns) {
  return move_all(::write, fd, POLLOUT, static_cast<const char*>(data), n_bytes, deadline_ns);
}

bool read_all(int fd, void* data, size_t n_bytes, int64_t deadline_ns) {
  return move_all(::read, fd, POLLIN, static_cast<char*>(data), n_bytes, deadline_ns);
}

}  // namespace whit
