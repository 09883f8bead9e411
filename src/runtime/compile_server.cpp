#include "runtime/compile_server.h"

#include <cstring>
#include <map>

#include "base/error.h"
#include "base/os.h"
#include "base/subprocess.h"

namespace whit {
namespace {

// Longer frames are nonsense: no source and no binary is that large.
constexpr uint64_t kMaxFrame = uint64_t{1} << 30;

struct [[gnu::packed]] Header {
  char kind;
  uint64_t n_bytes;
};

std::string frame(char kind, const std::string& body) {
  const Header header{kind, body.size()};
  std::string all(sizeof(header), '\0');
  std::memcpy(all.data(), &header, sizeof(header));
  return all + body;
}

bool read_frame(int fd, char kind, std::string& body) {
  Header header;
  if (!read_all(fd, &header, sizeof(header)) || header.kind != kind || header.n_bytes > kMaxFrame) return false;
  body.resize(header.n_bytes);
  return read_all(fd, body.data(), body.size());
}

}  // namespace

ServedCompiler::ServedCompiler(std::string key, std::vector<std::string> argv, std::string arch, int64_t timeout_ms)
    : Compiler(std::move(key)), argv_(std::move(argv)), arch_(std::move(arch)), timeout_ms_(timeout_ms) {}
ServedCompiler::~ServedCompiler() = default;

int ServedCompiler::n_starts() {
  const std::lock_guard lock(mutex_);
  return n_starts_;
}

std::string ServedCompiler::compile(const std::string& kernel, const std::string& source) {
  const std::lock_guard lock(mutex_);
  if (!child_) {
    child_ = std::make_unique<ChildProcess>(argv_);
    ++n_starts_;
  }
  // Whatever goes wrong, the child's state is unknown then: it is ended, and the next compile starts another.
  const auto fail = [&](const std::string& why) {
    const std::string how = child_->end();
    child_.reset();
    raise(ErrorKind::Compile, "[compile] kernel {}: the compiler's process {} ({})", kernel, why, how);
  };
  const int64_t deadline_ns = os::now_ns() + timeout_ms_ * 1'000'000;
  const auto lost = [&](const char* doing) {
    fail(os::now_ns() >= deadline_ns ? fmt::format("did not answer in {} ms", timeout_ms_) : fmt::format("ended while {}", doing));
  };
  const std::string request = frame('A', arch_) + frame('K', kernel) + frame('S', source);
  if (!child_->write(request.data(), request.size(), deadline_ns)) lost("it was asked");
  Header header;
  if (!child_->read(&header, sizeof(header), deadline_ns)) lost("it compiled");
  if ((header.kind != 'B' && header.kind != 'E') || header.n_bytes > kMaxFrame) fail("answered nonsense");
  std::string body(header.n_bytes, '\0');
  if (!child_->read(body.data(), body.size(), deadline_ns)) lost("it answered");
  if (header.kind == 'E') raise(ErrorKind::Compile, body);
  return body;
}

void serve_compiles(int in, int out, std::shared_ptr<Compiler> (*make)(const std::string& arch)) {
  std::map<std::string, std::shared_ptr<Compiler>> compilers;
  std::string arch, kernel, source;
  while (read_frame(in, 'A', arch) && read_frame(in, 'K', kernel) && read_frame(in, 'S', source)) {
    std::string answer;
    try {
      std::shared_ptr<Compiler>& compiler = compilers[arch];
      if (!compiler) compiler = make(arch);
      answer = frame('B', compiler->compile(kernel, source));
    } catch (const std::exception& e) {
      answer = frame('E', e.what());
    }
    if (!write_all(out, answer.data(), answer.size())) return;
  }
}

}  // namespace whit
