// DISK: a device per file, named "DISK:path". It runs no kernels: what is computed from a file is computed elsewhere.
//
// An allocation is the file from its start, opened where there is one and closed when the allocation is freed: what takes its name
// later is another file. Handles are addresses in a reserved range that nobody can touch; all data goes through
// pread and pwrite, so a file that shrinks meanwhile is an error and not a signal. Writing makes the file, or makes it as long as
// the allocation.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/device.h"

namespace whit {
namespace {

class DiskAllocator : public Allocator {
 public:
  DiskAllocator(Device& device, std::string path) : Allocator(device), path_(std::move(path)) {}
  ~DiskAllocator() override {
    for (auto& [start, f] : open_) close(f, start);
  }

  void copyin(void* to, const void* from_host, int64_t n_bytes) override {
    const std::lock_guard lock(mutex_);
    auto [f, at] = place(to);
    if (!f->writable) {
      // The same file, also when it has another name by now.
      const std::string name = f->fd >= 0 ? "/proc/self/fd/" + std::to_string(f->fd) : path_;
      const int fd = ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_NONBLOCK, 0666);
      check(fd >= 0, errno);
      if (f->fd >= 0) ::close(f->fd);
      f->fd = fd;
      f->writable = true;
    }
    WHIT_USER(size(*f) >= f->n_seen, Io, "[disk] {}: it was cut to {} bytes, {} are in use", path_, size(*f), f->n_seen);
    if (f->n_seen < f->n_bytes) check(ftruncate(f->fd, f->n_bytes) == 0, errno);
    f->n_seen = f->n_bytes;
    move(n_bytes, at,
         [&](int64_t done) { return pwrite(f->fd, static_cast<const char*>(from_host) + done, static_cast<size_t>(n_bytes - done), at + done); });
  }
  void copyout(void* to_host, void* from, int64_t n_bytes) override {
    const std::lock_guard lock(mutex_);
    auto [f, at] = place(from);
    check(f->fd >= 0, ENOENT);
    WHIT_USER(f->n_seen == f->n_bytes, Io, "[disk] {}: {} bytes are asked for, the file has {}", path_, f->n_bytes, f->n_seen);
    move(n_bytes, at, [&](int64_t done) { return pread(f->fd, static_cast<char*>(to_host) + done, static_cast<size_t>(n_bytes - done), at + done); });
  }
  void* offset(void* handle, int64_t, int64_t off_bytes) override { return static_cast<char*>(handle) + off_bytes; }

 protected:
  void* do_alloc(int64_t n_bytes, const BufferSpec&) override {
    void* const range = mmap(nullptr, static_cast<size_t>(n_bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return nullptr;
    File f{.fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), .n_bytes = n_bytes};
    if (f.fd < 0) {
      const int error = errno;
      if (error != ENOENT) close(f, static_cast<char*>(range));
      check(error == ENOENT, error);
    }
    const std::lock_guard lock(mutex_);
    File& made = open_.emplace(static_cast<char*>(range), f).first->second;
    if (made.fd >= 0) made.n_seen = std::min(n_bytes, size(made));
    return range;
  }
  void do_free(void* handle, int64_t, const BufferSpec&) override {
    const std::lock_guard lock(mutex_);
    const auto it = open_.find(static_cast<char*>(handle));
    close(it->second, it->first);
    open_.erase(it);
  }

 private:
  struct File {
    int fd = -1;
    bool writable = false;
    int64_t n_bytes = 0;  ///< of the allocation
    int64_t n_seen = 0;   ///< that the file has had
  };

  // The allocation that an address is in, and where.
  std::pair<File*, int64_t> place(void* handle) {
    const auto it = std::prev(open_.upper_bound(static_cast<char*>(handle)));
    return {&it->second, static_cast<char*>(handle) - it->first};
  }
  void check(bool ok, int error) const { WHIT_USER(ok, Io, "[disk] {}: {}", path_, std::strerror(error)); }
  int64_t size(const File& f) const {
    struct stat info;
    check(fstat(f.fd, &info) == 0, errno);
    WHIT_USER(S_ISREG(info.st_mode), Io, "[disk] {}: it is no regular file", path_);
    return info.st_size;
  }
  template <class Fn> void move(int64_t n_bytes, int64_t at, const Fn& some) const {
    for (int64_t done = 0; done < n_bytes;) {
      const ssize_t got = some(done);
      if (got < 0 && errno == EINTR) continue;
      WHIT_USER(got >= 0, Io, "[disk] {} at {}: {}", path_, at + done, std::strerror(errno));
      WHIT_USER(got > 0, Io, "[disk] {}: it ends at {}, {} bytes early", path_, at + done, n_bytes - done);
      done += got;
    }
  }
  static void close(const File& f, char* start) {
    munmap(start, static_cast<size_t>(f.n_bytes));
    if (f.fd >= 0) ::close(f.fd);
  }

  std::string path_;
  std::mutex mutex_;
  std::map<char*, File> open_;  ///< by the start of the range
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
