// DISK: a device per file, named "DISK:path", for reading. Its one allocation is the file from its start. Data is read
// with pread, so a file that shrinks meanwhile is an error; a mapping is made for host_pointer() only.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/device.h"

namespace whit {
namespace {

// The file, opened once, closed with the device.
class DiskAllocator : public Allocator {
 public:
  DiskAllocator(Device& device, std::string path) : Allocator(device), path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    WHIT_USER(fd_ >= 0, Io, "[disk] {}: {}", path_, std::strerror(errno));
    struct stat info;
    if (fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd_);
      raise(ErrorKind::Io, "[disk] {}: it is no regular file", path_);
    }
    n_bytes_ = info.st_size;
    // Handles are addresses in this range. It is readable, so host_pointer() costs nothing.
    if (n_bytes_ > 0) range_ = mmap(nullptr, static_cast<size_t>(n_bytes_), PROT_READ, MAP_PRIVATE, fd_, 0);
    if (range_ == MAP_FAILED) {
      ::close(fd_);
      raise(ErrorKind::Io, "[disk] {}: {}", path_, std::strerror(errno));
    }
  }
  ~DiskAllocator() override {
    if (range_) munmap(range_, static_cast<size_t>(n_bytes_));
    ::close(fd_);
  }

  void copyin(void*, const void*, int64_t) override { raise(ErrorKind::Io, "[disk] {}: files are read only", path_); }
  void copyout(void* to_host, void* from, int64_t n_bytes) override {
    char* to = static_cast<char*>(to_host);
    int64_t at = static_cast<char*>(from) - static_cast<char*>(range_);
    while (n_bytes > 0) {
      const ssize_t got = pread(fd_, to, static_cast<size_t>(n_bytes), at);
      if (got < 0 && errno == EINTR) continue;
      WHIT_USER(got >= 0, Io, "[disk] {} at {}: {}", path_, at, std::strerror(errno));
      WHIT_USER(got > 0, Io, "[disk] {}: it ends at {}, {} bytes early", path_, at, n_bytes);
      to += got, at += got, n_bytes -= got;
    }
  }
  void* offset(void* handle, int64_t, int64_t off_bytes) override { return static_cast<char*>(handle) + off_bytes; }
  void* host_pointer(void* handle) override { return handle; }

 protected:
  void* do_alloc(int64_t n_bytes, const BufferSpec&) override {
    WHIT_USER(n_bytes <= n_bytes_, Io, "[disk] {}: {} bytes are asked for, the file has {}", path_, n_bytes, n_bytes_);
    return range_;
  }
  void do_free(void*, int64_t, const BufferSpec&) override {}

 private:
  std::string path_;
  int fd_ = -1;
  int64_t n_bytes_ = 0;
  void* range_ = nullptr;
};

class DiskDevice : public Device {
 public:
  explicit DiskDevice(const std::string& name) : Device(name, "") {
    allocator_ = std::make_unique<DiskAllocator>(*this, name.substr(std::strlen("DISK:")));
  }
};

class DiskKind : public DeviceKind {
 public:
  DiskKind() : DeviceKind("DISK", "files, named DISK:path") {}
  int count() override { return 1; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget&) override {
    WHIT_USER(device_name.size() > std::strlen("DISK:"), Value, "[disk] '{}' names no file; expected DISK:path", device_name);
    return std::make_unique<DiskDevice>(device_name);
  }
  bool always_allowed() const override { return true; }
};

[[maybe_unused]] const bool registered = (register_device(std::make_unique<DiskKind>()), true);

}  // namespace
}  // namespace whit
