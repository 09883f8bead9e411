// Zip and tar archives, read without trusting them. Every error is of kind Io and names file, offset and reason.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

namespace whit::io {

/// One file of an archive.
struct ArchiveEntry {
  std::string name;
  int64_t off_bytes = 0;  ///< of its data in the archive
  int64_t n_packed = 0;   ///< bytes there
  int64_t n_bytes = 0;    ///< bytes when unpacked
  bool packed = false;    ///< with deflate
  uint32_t crc = 0;       ///< of a zip's entry
  bool has_crc = false;
};

bool is_zip(const InputFile& file);
bool is_tar(const InputFile& file);

/// The files of a zip archive (also zip64), in the order of its directory; folders are left out.
/// errors: no directory, or one that lies outside of the file; an entry whose data lies outside, overlaps another's, is
/// encrypted, or claims more than deflate can hold; a name that is empty, absolute, has a part `..` or appears twice.
/// NotImplemented for another compression
std::vector<ArchiveEntry> read_zip_directory(const InputFile& file);

/// The regular files of a tar archive (ustar, GNU and pax long names); links, folders and devices are left out.
/// errors: a header with a wrong checksum or size, data past the end, a name as above
std::vector<ArchiveEntry> read_tar_directory(const InputFile& file);

/// The content. errors: data that does not unpack to exactly n_bytes, or has another checksum
std::vector<uint8_t> read_entry(const InputFile& file, const ArchiveEntry& entry);

}  // namespace whit::io
