// Deflate and gzip. What a file claims is never allocated on its word: memory grows with the data that is there.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

namespace whit::io {

/// Unpacks raw deflate data (`gzip` false) or a gzip file of any number of members (`gzip` true). `where` begins the errors.
/// errors: Io for data that is damaged, ends early, is followed by other bytes, or unpacks to more than max_bytes
std::vector<uint8_t> inflate_all(const std::string& where, Bytes packed, bool gzip, int64_t max_bytes);

/// The content of a gzip file; empty when it is none. errors: as above
std::vector<uint8_t> gunzip_if_packed(const InputFile& file);

}  // namespace whit::io
