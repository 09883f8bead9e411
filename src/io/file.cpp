#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace whit::io {

namespace {

// Linux moves at most 0x7ffff000 bytes a call; a round number below that keeps every transfer aligned.
constexpr size_t kTransferBytes = size_t{1} << 30;

// A file that removes itself unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& beside) {
    static std::atomic<unsigned> counter{0};
    // A name that a killed process left behind is skipped, not reused: O_EXCL never opens what is there.
    for (int attempt = 0; attempt < 100; ++attempt) {
      path_ = fmt::format("{}.tmp-{}-{}", beside, getpid(), counter++);
      fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ >= 0 || errno != EEXIST) break;
    }
    WHIT_USER(fd_ >= 0, Io, "[write] {}: cannot be created: {}", path_, std::strerror(errno));
  }
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void append(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kTransferBytes));
      if (n < 0 && errno == EINTR) continue;
      WHIT_USER(n > 0, Io, "[write] {}: offset {}: {}", path_, off_bytes_, std::strerror(n < 0 ? errno : EIO));
      bytes = bytes.subspan(static_cast<size_t>(n));
      off_bytes_ += n;
    }
  }

  void rename_to(const std::string& path) {
    WHIT_USER(fsync(fd_) == 0, Io, "[write] {}: {}", path_, std::strerror(errno));
    const int fd = fd_;
    fd_ = -1;
    WHIT_USER(close(fd) == 0, Io, "[write] {}: {}", path_, std::strerror(errno));
    WHIT_USER(std::rename(path_.c_str(), path.c_str()) == 0, Io, "[write] {}: cannot be replaced: {}", path, std::strerror(errno));
    path_.clear();
  }

 private:
  std::string path_;
  int64_t off_bytes_ = 0;
  int fd_ = -1;
};

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe must not wait for its writer; it has no meaning for a regular file.
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  WHIT_USER(fd_ >= 0, Io, "[read] {}: {}", path_, std::strerror(errno));
  struct stat info{};
  const bool regular = fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular) close(fd_);
  WHIT_USER(regular, Io, "[read] {}: is not a regular file", path_);
  n_bytes_ = info.st_size;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

void InputFile::read_at(int64_t off_bytes, std::span<uint8_t> out) const {
  WHIT_USER(off_bytes >= 0 && off_bytes <= n_bytes_ && static_cast<int64_t>(out.size()) <= n_bytes_ - off_bytes, Io,
            "[read] {}: offset {}: {} bytes are wanted, the file has {}", path_, off_bytes, out.size(), n_bytes_);
  if (memory_ && !out.empty()) {
    std::memcpy(out.data(), memory_ + off_bytes, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), std::min(out.size(), kTransferBytes), off_bytes);
    if (n < 0 && errno == EINTR) continue;
    WHIT_USER(n >= 0, Io, "[read] {}: offset {}: {}", path_, off_bytes, std::strerror(errno));
    WHIT_USER(n > 0, Io, "[read] {}: offset {}: the file has become shorter than {} bytes", path_, off_bytes, n_bytes_);
    out = out.subspan(static_cast<size_t>(n));
    off_bytes += n;
  }
}

void write_file_atomically(const std::string& path, std::span<const Bytes> parts) {
  struct stat info{};
  WHIT_USER(stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode), Io, "[write] {}: is not a regular file", path);
  TemporaryFile file(path);
  for (const Bytes part : parts) file.append(part);
  file.rename_to(path);
}

void write_file_atomically(const std::string& path, Bytes bytes) { write_file_atomically(path, std::span(&bytes, 1)); }

}  // namespace whit::io
