// OpenMPI, loaded at run time: a whit that was built without it runs where it is not installed. Declarations follow the
// MPI 3.1 standard and OpenMPI's ABI, in which handles are pointers and predefined ones are data symbols.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/mpi/transport.h"

namespace whit {
namespace {

using Handle = void*;
constexpr int kThreadSerialized = 2;
constexpr int64_t kMaxMessage = int64_t{1} << 30;  // counts are ints

class Mpi final : public Transport {
 public:
  Mpi() {
    // Its own plug-ins look for its symbols among the global ones.
    library_ = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    WHIT_USER(library_, Device, "[mpi] OpenMPI's library cannot be loaded ({}); Debian has it in the package openmpi-bin", dlerror());
    world_ = must_find("ompi_mpi_comm_world");
    byte_ = must_find("ompi_mpi_byte");
    int level = 0, up = 0;
    check("MPI_Initialized", call<int(int*)>("MPI_Initialized")(&up));
    if (!up) check("MPI_Init_thread", call<int(int*, char***, int, int*)>("MPI_Init_thread")(nullptr, nullptr, kThreadSerialized, &level));
    check("MPI_Comm_set_errhandler", call<int(Handle, Handle)>("MPI_Comm_set_errhandler")(world_, must_find("ompi_mpi_errors_return")));
    check("MPI_Comm_rank", call<int(Handle, int*)>("MPI_Comm_rank")(world_, &rank_));
    check("MPI_Comm_size", call<int(Handle, int*)>("MPI_Comm_size")(world_, &size_));
    isend_ = call<Move>("MPI_Isend");
    irecv_ = call<Move>("MPI_Irecv");
    test_ = call<int(Handle*, int*, void*)>("MPI_Test");
    n_sent_.resize(static_cast<size_t>(size_));
    n_received_.resize(static_cast<size_t>(size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, const void* data, int64_t n_bytes, uint64_t origin) override {
    const std::lock_guard lock(mutex_);
    sending_.remove_if([&](Message& m) { return is_done(m.request); });
    const Header header{kMagic, n_sent_[static_cast<size_t>(to)]++, n_bytes, origin};
    post(to, &header, sizeof(header));
    for (int64_t at = 0; at < n_bytes; at += kMaxMessage) post(to, static_cast<const char*>(data) + at, std::min(kMaxMessage, n_bytes - at));
  }

  void receive(int from, void* data, int64_t n_bytes, uint64_t origin) override {
    const std::lock_guard lock(mutex_);
    const int64_t number = n_received_[static_cast<size_t>(from)]++;
    const std::string what = fmt::format("message {} of {} bytes from process {}", number, n_bytes, from);
    Header header{};
    take(from, &header, sizeof(header), what);
    WHIT_USER(header.number != kGoodbye, Runtime, "[mpi] process {} waits for {}, which has ended", rank_, what);
    WHIT_USER(header.magic == kMagic && header.number == number && header.n_bytes == n_bytes && header.origin == origin, Runtime,
              "[mpi] process {} waits for {} for {}, which sent message {} of {} bytes for {}; every process must run the same program with the same "
              "values",
              rank_, what, name_of(origin), header.number, header.n_bytes, name_of(header.origin));
    for (int64_t at = 0; at < n_bytes; at += kMaxMessage) take(from, static_cast<char*>(data) + at, std::min(kMaxMessage, n_bytes - at), what);
  }

  void finish() override {
    const std::lock_guard lock(mutex_);
    const Header goodbye{kMagic, kGoodbye, 0, 0};
    for (int other = 0; other < size_; ++other)
      if (other != rank_) post(other, &goodbye, sizeof(goodbye));
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      Header last{};
      take(other, &last, sizeof(last), fmt::format("process {} to end", other));
      WHIT_USER(last.number == kGoodbye, Runtime, "[mpi] process {} ends while message {} of {} bytes from process {} is not asked for", rank_,
                last.number, last.n_bytes, other);
    }
    for (Message& m : sending_) wait(m.request, "its last messages to be received");
    sending_.clear();
    check("MPI_Finalize", call<int()>("MPI_Finalize")());
  }

  [[noreturn]] void abort(int exit_code) override {
    call<int(Handle, int)>("MPI_Abort")(world_, exit_code);
    std::_Exit(exit_code);
  }

 private:
  using Move = int(const void*, int, Handle, int, int, Handle, Handle*);
  static constexpr uint64_t kMagic = 0x74696877;
  static constexpr int64_t kGoodbye = -1;  // number of a process's last message
  struct Header {
    uint64_t magic;
    int64_t number, n_bytes;
    uint64_t origin;
  };
  // As DEBUG=1 names a schedule and DEBUG=3 numbers its calls.
  static std::string name_of(uint64_t origin) {
    return origin ? fmt::format("call {} of schedule {:08x}", origin & 0xffffffff, origin >> 32) : "no schedule";
  }
  struct Message {
    std::vector<char> data{};
    Handle request = nullptr;
  };

  Handle must_find(const char* name) const {
    void* const symbol = dlsym(library_, name);
    WHIT_USER(symbol, Device, "[mpi] libmpi.so.40 has no {}; expected OpenMPI 4", name);
    return symbol;
  }
  template <class Function> Function* call(const char* name) const { return reinterpret_cast<Function*>(must_find(name)); }
  void check(const char* name, int code) const {
    if (code == 0) return;
    char text[256] = "";
    int length = 0;
    call<int(int, char*, int*)>("MPI_Error_string")(code, text, &length);
    raise(ErrorKind::Runtime, "[mpi] {} in process {}: {}", name, rank_, text);
  }

  bool is_done(Handle& request) const {
    int done = 0;
    check("MPI_Test", test_(&request, &done, nullptr));
    return done != 0;
  }
  void wait(Handle& request, const std::string& what) const {
    const int64_t start_ns = os::now_ns();
    for (int n = 0; !is_done(request); ++n) {
      if (n < 1000) continue;
      os::poll_interrupt();
      usleep(n < 10'000 ? 0 : 100);
      WHIT_USER(
          (os::now_ns() - start_ns) / 1'000'000'000 < flag::MPI_TIMEOUT(), Runtime,
          "[mpi] process {} has waited {} s (MPI_TIMEOUT) for {}; every process must run the same program, and read on all of them what has parts "
          "on several",
          rank_, flag::MPI_TIMEOUT(), what);
    }
  }
  // The bytes are copied: nothing else keeps the memory of a kernel from being written while they travel.
  void post(int to, const void* data, int64_t n_bytes) {
    const char* const bytes = static_cast<const char*>(data);
    Message& m = sending_.emplace_back();
    m.data.assign(bytes, bytes + n_bytes);
    check("MPI_Isend", isend_(m.data.data(), static_cast<int>(n_bytes), byte_, to, 0, world_, &m.request));
  }
  void take(int from, void* data, int64_t n_bytes, const std::string& what) const {
    Handle request = nullptr;
    check("MPI_Irecv", irecv_(data, static_cast<int>(n_bytes), byte_, from, 0, world_, &request));
    wait(request, what);
  }

  std::mutex mutex_;
  void* library_ = nullptr;
  Handle world_ = nullptr, byte_ = nullptr;
  Move *isend_ = nullptr, *irecv_ = nullptr;
  int (*test_)(Handle*, int*, void*) = nullptr;
  int rank_ = 0, size_ = 1;
  std::vector<int64_t> n_sent_, n_received_;  // by process
  std::list<Message> sending_;
};

}  // namespace

Transport* transport() {
  // Never destroyed: devices, which use it, are not either.
  static Transport* const one = [] {
    Transport* const started = std::getenv("OMPI_COMM_WORLD_SIZE") ? new Mpi : nullptr;
    if (started)
      std::atexit([] {
        try {
          transport()->finish();
        } catch (const std::exception& e) {
          log_line(fmt::format("whit: at exit: {}", e.what()));
          transport()->abort(1);
        }
      });
    return started;
  }();
  return one;
}

}  // namespace whit
