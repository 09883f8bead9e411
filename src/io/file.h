// Files as byte ranges. Every error is of kind Io and names the file, the offset and the system's reason.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace whit::io {

using Bytes = std::span<const uint8_t>;

/// A regular file opened for reading, or memory. Reads go through pread, so that a file which shrinks meanwhile is an error and
/// not a signal, and so that several threads may read at once.
class InputFile {
 public:
  /// errors: the file is not there, may not be read, or is not a regular file
  explicit InputFile(std::string path);
  /// Bytes in memory as a file: `name` stands in errors, `memory` must outlive it.
  InputFile(std::string name, Bytes memory) : path_(std::move(name)), n_bytes_(static_cast<int64_t>(memory.size())), memory_(memory.data()) {}
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// The length of the file when it was opened.
  int64_t n_bytes() const { return n_bytes_; }
  /// Fills `out` from `off_bytes` on.
  /// errors: the range reaches past the end, or the system fails
  void read_at(int64_t off_bytes, std::span<uint8_t> out) const;

 private:
  std::string path_;
  int64_t n_bytes_ = 0;
  int fd_ = -1;
  const uint8_t* memory_ = nullptr;
};

/// Writes the parts one after the other into a new file beside `path`, flushes it to disk and renames it to `path`:
/// a reader, also one after a crash, sees the old file or the new one and nothing between.
/// errors: any failure of the system; the file beside is removed then and `path` is as before
void write_file_atomically(const std::string& path, std::span<const Bytes> parts);
void write_file_atomically(const std::string& path, Bytes bytes);

/// The text of a string as bytes.
inline Bytes as_bytes(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

}  // namespace whit::io
