#include "io/archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "base/error.h"
#include "io/gzip.h"

namespace whit::io {
namespace {

uint64_t little(const uint8_t* p, int n) {
  uint64_t v = 0;
  for (int i = n - 1; i >= 0; --i) v = v << 8 | p[i];
  return v;
}

// Names are keys here and never paths, yet whoever writes them out must be safe.
void check_name(const InputFile& file, const char* kind, int64_t off_bytes, const std::string& name, std::unordered_set<std::string>& seen) {
  bool climbs = false;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('/', at), name.size());
    climbs = climbs || name.compare(at, end - at, "..") == 0;
    at = end + 1;
  }
  WHIT_USER(!name.empty() && name[0] != '/' && !climbs && name.find('\0') == std::string::npos && name.find('\\') == std::string::npos, Io,
            "[{}] {}: offset {}: the name '{}' would leave the archive's folder", kind, file.path(), off_bytes, name);
  WHIT_USER(seen.insert(name).second, Io, "[{}] {}: offset {}: there are two files '{}'", kind, file.path(), off_bytes, name);
}

constexpr int64_t kEndBytes = 22, kLocalBytes = 30, kCentralBytes = 46;

// Where the record that ends a zip archive begins; -1 when there is none.
int64_t find_zip_end(const InputFile& file) {
  const int64_t n = std::min<int64_t>(file.n_bytes(), kEndBytes + 65535);
  if (n < kEndBytes) return -1;
  std::vector<uint8_t> tail(static_cast<size_t>(n));
  file.read_at(file.n_bytes() - n, tail);
  for (int64_t i = n - kEndBytes; i >= 0; --i)
    if (std::memcmp(tail.data() + i, "PK\5\6", 4) == 0 && static_cast<int64_t>(little(tail.data() + i + 20, 2)) == n - i - kEndBytes)
      return file.n_bytes() - n + i;
  return -1;
}

}  // namespace

bool is_zip(const InputFile& file) {
  uint8_t head[4];
  if (file.n_bytes() < kEndBytes) return false;
  file.read_at(0, head);
  return std::memcmp(head, "PK\3\4", 4) == 0 || (std::memcmp(head, "PK\5\6", 4) == 0);
}

std::vector<ArchiveEntry> read_zip_directory(const InputFile& file) {
  const int64_t n_file = file.n_bytes(), end = find_zip_end(file);
  WHIT_USER(end >= 0, Io, "[zip] {}: offset {}: there is no end of the directory; the file is cut off or no zip", file.path(), n_file);
  uint8_t record[56];
  file.read_at(end, {record, static_cast<size_t>(kEndBytes)});
  uint64_t n_entries = little(record + 10, 2), n_dir = little(record + 12, 4), off_dir = little(record + 16, 4);
  if (end >= 20) {
    uint8_t locator[20];
    file.read_at(end - 20, locator);
    if (std::memcmp(locator, "PK\6\7", 4) == 0) {
      const uint64_t at = little(locator + 8, 8);
      WHIT_USER(at <= static_cast<uint64_t>(end) && end - static_cast<int64_t>(at) >= 56, Io,
                "[zip] {}: offset {}: the zip64 record lies at {}, past the end", file.path(), end - 20, at);
      file.read_at(static_cast<int64_t>(at), record);
      WHIT_USER(std::memcmp(record, "PK\6\6", 4) == 0, Io, "[zip] {}: offset {}: there is no zip64 record", file.path(), at);
      n_entries = little(record + 32, 8), n_dir = little(record + 40, 8), off_dir = little(record + 48, 8);
    }
  }
  WHIT_USER(off_dir <= static_cast<uint64_t>(end) && n_dir <= static_cast<uint64_t>(end) - off_dir && n_entries <= n_dir / kCentralBytes, Io,
            "[zip] {}: offset {}: the directory claims {} files in {} bytes from {} on; the file has {}", file.path(), end, n_entries, n_dir, off_dir,
            n_file);
  std::vector<uint8_t> dir(n_dir);
  file.read_at(static_cast<int64_t>(off_dir), dir);

  std::vector<ArchiveEntry> out;
  std::unordered_set<std::string> seen;
  std::map<int64_t, int64_t> ranges;  // begin and end of each entry with its header
  size_t at = 0;
  for (uint64_t i = 0; i < n_entries; ++i) {
    const auto off_here = static_cast<int64_t>(off_dir + at);
    const uint8_t* p = dir.data() + at;
    const bool fits = dir.size() - at >= static_cast<size_t>(kCentralBytes) && std::memcmp(p, "PK\1\2", 4) == 0;
    const uint64_t n_name = fits ? little(p + 28, 2) : 0, n_extra = fits ? little(p + 30, 2) : 0;
    const uint64_t n_all = kCentralBytes + n_name + n_extra + (fits ? little(p + 32, 2) : 0);
    WHIT_USER(fits && n_all <= dir.size() - at, Io, "[zip] {}: offset {}: the directory ends inside entry {} of {}", file.path(), off_here, i,
              n_entries);
    at += n_all;
    ArchiveEntry e{.name = std::string(reinterpret_cast<const char*>(p) + kCentralBytes, n_name)};
    const uint64_t flags = little(p + 8, 2), method = little(p + 10, 2);
    uint64_t n_packed = little(p + 20, 4), n_bytes = little(p + 24, 4), off_local = little(p + 42, 4);
    e.crc = static_cast<uint32_t>(little(p + 16, 4));
    e.has_crc = true;
    const uint8_t* extra = p + kCentralBytes + n_name;
    for (uint64_t x = 0; x + 4 <= n_extra;) {
      const uint64_t id = little(extra + x, 2), n = little(extra + x + 2, 2);
      uint64_t y = x + 4;
      x = y + n;
      if (id != 1 || x > n_extra) continue;
      for (uint64_t* field : {&n_bytes, &n_packed, &off_local})
        if (*field == 0xffffffff && y + 8 <= x) *field = little(extra + y, 8), y += 8;
    }
    if (e.name.ends_with('/')) continue;
    check_name(file, "zip", off_here, e.name, seen);
    WHIT_USER((flags & 1) == 0, Io, "[zip] {}: offset {}: '{}' is encrypted", file.path(), off_here, e.name);
    WHIT_USER(method == 0 || method == 8, NotImplemented, "[zip] {}: offset {}: '{}' has compression {}; 0 (stored) and 8 (deflate) are there",
              file.path(), off_here, e.name, method);
    e.packed = method == 8;
    const auto limit = static_cast<uint64_t>(n_file);
    WHIT_USER(off_local <= limit && limit - off_local >= static_cast<uint64_t>(kLocalBytes), Io, "[zip] {}: offset {}: '{}' lies at {}, past the end",
              file.path(), off_here, e.name, off_local);
    uint8_t local[kLocalBytes];
    file.read_at(static_cast<int64_t>(off_local), local);
    const uint64_t off_data = off_local + kLocalBytes + little(local + 26, 2) + little(local + 28, 2);
    WHIT_USER(std::memcmp(local, "PK\3\4", 4) == 0 && off_data <= limit && n_packed <= limit - off_data, Io,
              "[zip] {}: offset {}: '{}' claims {} bytes; the file has {}", file.path(), off_local, e.name, n_packed, n_file);
    WHIT_USER(e.packed ? n_bytes <= n_packed * 1032 + 64 : n_bytes == n_packed, Io, "[zip] {}: offset {}: '{}' claims to unpack {} bytes to {}",
              file.path(), off_here, e.name, n_packed, n_bytes);
    e.off_bytes = static_cast<int64_t>(off_data);
    e.n_packed = static_cast<int64_t>(n_packed);
    e.n_bytes = static_cast<int64_t>(n_bytes);
    const auto begin = static_cast<int64_t>(off_local), stop = e.off_bytes + e.n_packed;
    const auto next = ranges.lower_bound(begin);
    WHIT_USER((next == ranges.end() || next->first >= stop) && (next == ranges.begin() || std::prev(next)->second <= begin), Io,
              "[zip] {}: offset {}: the data of '{}' overlaps that of another file", file.path(), off_local, e.name);
    ranges.emplace(begin, stop);
    out.push_back(std::move(e));
  }
  return out;
}

// ---- tar

namespace {

constexpr int64_t kBlock = 512;

// A number in octal, or in base 256 when the first bit is set; -1 when it is neither.
int64_t tar_number(const uint8_t* p, size_t n) {
  int64_t v = 0;
  if (p[0] & 0x80) {
    for (size_t i = n - 8; i < n; ++i) v = static_cast<int64_t>(static_cast<uint64_t>(v) << 8 | p[i]);
    return std::max<int64_t>(v, -1);
  }
  size_t i = 0;
  while (i < n && p[i] == ' ') ++i;
  for (; i < n && p[i] >= '0' && p[i] <= '7'; ++i) v = v * 8 + (p[i] - '0');
  return i < n && p[i] != 0 && p[i] != ' ' ? -1 : v;
}

bool tar_checksum_is_right(const uint8_t* h) {
  int64_t sum = 0;
  for (int64_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : h[i];
  return tar_number(h + 148, 8) == sum;
}

std::string text_of(const uint8_t* p, size_t n) { return {reinterpret_cast<const char*>(p), strnlen(reinterpret_cast<const char*>(p), n)}; }

}  // namespace

bool is_tar(const InputFile& file) {
  uint8_t head[kBlock];
  if (file.n_bytes() < kBlock) return false;
  file.read_at(0, head);
  return head[0] != 0 && tar_checksum_is_right(head);
}

std::vector<ArchiveEntry> read_tar_directory(const InputFile& file) {
  std::vector<ArchiveEntry> out;
  std::unordered_set<std::string> seen;
  std::string long_name;
  int64_t long_size = -1;
  for (int64_t at = 0; at < file.n_bytes();) {
    uint8_t h[kBlock];
    WHIT_USER(file.n_bytes() - at >= kBlock, Io, "[tar] {}: offset {}: the file ends inside a header", file.path(), at);
    file.read_at(at, h);
    if (std::all_of(h, h + kBlock, [](uint8_t b) { return b == 0; })) return out;
    WHIT_USER(tar_checksum_is_right(h), Io, "[tar] {}: offset {}: the checksum of the header is wrong", file.path(), at);
    const char type = static_cast<char>(h[156]);
    const bool of_next = type == 'L' || type == 'x';
    const int64_t claimed = tar_number(h + 124, 12), size = of_next || long_size < 0 ? claimed : long_size;
    WHIT_USER(size >= 0 && size <= file.n_bytes() - at - kBlock, Io, "[tar] {}: offset {}: an entry claims {} bytes; the file has {} more",
              file.path(), at, size, file.n_bytes() - at - kBlock);
    ArchiveEntry e{.name = long_name, .off_bytes = at + kBlock, .n_packed = size, .n_bytes = size};
    if (of_next) {
      WHIT_USER(size <= 1 << 20, Io, "[tar] {}: offset {}: a name of {} bytes", file.path(), at, size);
      const std::vector<uint8_t> data = read_entry(file, e);
      if (type == 'L') {
        long_name = text_of(data.data(), data.size());
      } else {
        // Records "LENGTH KEY=VALUE\n".
        for (size_t i = 0; i < data.size();) {
          size_t n = 0, j = i;
          for (; j < data.size() && data[j] >= '0' && data[j] <= '9' && n < data.size(); ++j) n = n * 10 + static_cast<size_t>(data[j] - '0');
          WHIT_USER(n > j - i + 1 && n <= data.size() - i, Io, "[tar] {}: offset {}: a damaged pax record", file.path(), at);
          const std::string record(data.begin() + static_cast<int64_t>(j) + 1, data.begin() + static_cast<int64_t>(i + n) - 1);
          i += n;
          if (record.starts_with("path=")) long_name = record.substr(5);
          if (!record.starts_with("size=")) continue;
          long_size = 0;
          for (const char c : record.substr(5))
            long_size = c >= '0' && c <= '9' && long_size < int64_t{1} << 56 ? long_size * 10 + (c - '0') : INT64_MAX;
        }
      }
    } else {
      if (e.name.empty()) {
        e.name = text_of(h, 100);
        if (std::memcmp(h + 257, "ustar", 6) == 0 && h[345] != 0) e.name = text_of(h + 345, 155) + "/" + e.name;
      }
      if (type == '0' || type == 0) {
        check_name(file, "tar", at, e.name, seen);
        out.push_back(std::move(e));
      }
      long_name.clear();
      long_size = -1;
    }
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
  return out;
}

std::vector<uint8_t> read_entry(const InputFile& file, const ArchiveEntry& entry) {
  std::vector<uint8_t> data(static_cast<size_t>(entry.n_packed));
  file.read_at(entry.off_bytes, data);
  const std::string where = fmt::format("[zip] {}: '{}' from {} on", file.path(), entry.name, entry.off_bytes);
  if (entry.packed) data = inflate_all(where, data, false, entry.n_bytes);
  WHIT_USER(static_cast<int64_t>(data.size()) == entry.n_bytes, Io, "{}: unpacks to {} bytes, the directory claims {}", where, data.size(),
            entry.n_bytes);
  uLong crc = crc32(0, nullptr, 0);
  for (size_t i = 0; entry.has_crc && i < data.size(); i += size_t{1} << 30)
    crc = crc32(crc, data.data() + i, static_cast<uInt>(std::min(data.size() - i, size_t{1} << 30)));
  WHIT_USER(!entry.has_crc || crc == entry.crc, Io, "{}: the checksum is {:08x}, the directory claims {:08x}", where, crc, entry.crc);
  return data;
}

}  // namespace whit::io
