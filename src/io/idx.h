// The IDX format of the MNIST family: a dense big-endian array behind a small header, usually gzipped.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace whit::io {

/// The element types of IDX; the values are those of the third byte of a file.
enum class IdxType : uint8_t { U8 = 0x08, I8 = 0x09, I16 = 0x0B, I32 = 0x0C, F32 = 0x0D, F64 = 0x0E };

struct IdxArray {
  IdxType type = IdxType::U8;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  ///< row-major, in the byte order of this machine
};

int64_t n_bytes_of(IdxType type);

/// Reads an IDX file, gzipped or plain (the content decides, not the name).
/// errors: the file is truncated, has bytes too many, is damaged, or its header lies. What a header claims is never
/// allocated on its word: memory grows with the data that is there, to at most twice of it.
IdxArray read_idx(const std::string& path);

}  // namespace whit::io
