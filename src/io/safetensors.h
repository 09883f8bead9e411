// The safetensors format at the level of bytes: names, dtypes, shapes and byte ranges. What a Tensor is, is not known
// here.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"

namespace whit::io {

/// One tensor of a file.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;  ///< as the format spells it: F32, BF16, F8_E4M3, I64, BOOL ...
  std::vector<int64_t> shape;
  int64_t off_bytes = 0;  ///< from the start of the file
  int64_t n_bytes = 0;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Bytes an element of `dtype`, 0 for a name that the format does not have.
int64_t safetensors_n_bytes_of(std::string_view dtype);

/// A safetensors file opened for reading. The header is checked as a whole before anything else happens.
class SafetensorsFile {
 public:
  /// errors: the file is shorter than its header says or longer than its tensors; the header is over 100 MB, is no JSON
  /// object or names a tensor twice; an entry has an unknown dtype, a negative or overflowing shape, a range outside of
  /// the file, of another length than dtype and shape need, or one that overlaps another or leaves a hole before it.
  explicit SafetensorsFile(std::string path) : SafetensorsFile(std::make_unique<InputFile>(std::move(path))) {}
  explicit SafetensorsFile(std::unique_ptr<InputFile> file);

  const std::string& path() const { return file_->path(); }
  int64_t n_bytes() const { return file_->n_bytes(); }
  /// In the order of the header.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  int64_t off_data() const { return off_data_; }  ///< where the header ends
  /// Null when there is no such tensor.
  const SafetensorsEntry* find_entry(std::string_view name) const;
  /// Fills `out`, whose length must be entry.n_bytes.
  void read(const SafetensorsEntry& entry, std::span<uint8_t> out) const;

 private:
  std::unique_ptr<InputFile> file_;
  int64_t off_data_ = 0;
  std::vector<SafetensorsEntry> entries_;
  Metadata metadata_;
};

/// A tensor to write; `bytes` must stay alive during the call.
struct SafetensorsInput {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  Bytes bytes;
};

/// Writes a file atomically (see write_file_atomically). The header lists tensors in the order given; their data is laid
/// out by falling element size, so that every tensor is aligned to its element.
/// errors: as for reading, of kind Value; a failure of the system, of kind Io
void write_safetensors(const std::string& path, std::span<const SafetensorsInput> tensors, const Metadata& metadata = {});

}  // namespace whit::io
