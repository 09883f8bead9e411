// The GGUF format (versions 2 and 3) of ggml and llama.cpp: metadata, and tensors that may be quantised in blocks.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/file.h"

namespace whit::io {

/// A value of the metadata: 8-, 16- and 32-bit numbers are held in 64 bits. Arrays may hold arrays.
struct GgufValue {
  std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<GgufValue>> value;
};
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// Blocks of a type of ggml, and what they become.
struct GgmlType {
  int id;
  std::string_view name;
  int n_elems, n_bytes;                             ///< of a block
  std::string_view dtype;                           ///< of the result, as safetensors spells it: F32 for the quantised types, F16 for Q1_0
  void (*unpack)(const uint8_t* block, void* out);  ///< null when the bytes are the elements
};
/// errors: Value for a type that is not listed in docs/training.md; `where` begins it
const GgmlType& ggml_type(int64_t id, std::string_view where);
int64_t ggml_n_bytes_elem(const GgmlType& type);  ///< of an element of the result

/// errors: Value when n_elems is no multiple of a block or `blocks` is shorter than those need; `where` begins it
void ggml_check(const GgmlType& type, Bytes blocks, int64_t n_elems, std::string_view where);
/// Elements out of blocks that were checked: `out` has n_elems of type.dtype.
void ggml_unpack(const GgmlType& type, Bytes blocks, int64_t n_elems, uint8_t* out);

struct GgufEntry {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<int64_t> shape;  ///< row-major: the file lists the fastest axis first
  int64_t n_elems = 0;
  size_t part = 0;        ///< the file that holds it
  int64_t off_bytes = 0;  ///< from the start of that file
  int64_t n_bytes = 0;    ///< packed
};

/// A GGUF file opened for reading; all of its head is checked before anything else happens.
class GgufFile {
 public:
  /// A model in parts (`-00001-of-0000N.gguf`) is opened by its first.
  /// errors: Io for another magic or version, counts, strings or arrays that claim more than the file holds, text that is not
  /// UTF-8, a key or tensor named twice, a shape that overflows or is no multiple of a block, data outside of the file or
  /// overlapping; Value for a type of tensor that is not listed, a part that is not the first
  explicit GgufFile(const std::string& path);
  /// errors: as above; Value for a model in parts, of which a file in memory cannot find the others
  explicit GgufFile(std::unique_ptr<InputFile> file);

  const GgufMetadata& metadata() const { return metadata_; }  ///< of the first part
  const std::vector<GgufEntry>& entries() const { return entries_; }
  /// The elements, n_elems of entry.type->dtype.
  void read(const GgufEntry& entry, std::span<uint8_t> out) const;

 private:
  GgufMetadata open(std::unique_ptr<InputFile> file);

  std::vector<std::unique_ptr<InputFile>> parts_;
  GgufMetadata metadata_;
  std::vector<GgufEntry> entries_;
};

}  // namespace whit::io
