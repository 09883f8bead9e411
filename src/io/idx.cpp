#include "io/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/error.h"
#include "io/file.h"

namespace whit::io {

namespace {

constexpr int64_t kChunkBytes = 1 << 16;

// The unpacked content of a file, read front to back. Plain files pass through.
class Source {
 public:
  explicit Source(const std::string& path) : file_(path) {
    refill();
    packed_ = n_in_ >= 2 && in_[0] == 0x1f && in_[1] == 0x8b;
    if (!packed_) return;
    const int status = inflateInit2(&zip_, 16 + MAX_WBITS);  // 16: a gzip frame, whose checksum zlib verifies
    WHIT_USER(status == Z_OK, Memory, "[idx] {}: no memory for unpacking", path);
    zip_open_ = true;
  }
  ~Source() {
    if (zip_open_) inflateEnd(&zip_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const std::string& path() const { return file_.path(); }
  /// Where the next unpacked byte lies.
  int64_t off_bytes() const { return off_bytes_; }
  /// No unpacked content is longer than this, whatever it claims (deflate packs at most 1032 to 1).
  int64_t max_bytes() const { return packed_ ? file_.n_bytes() * 1032 : file_.n_bytes(); }

  /// Reads up to out.size() bytes; fewer only at the end of the content.
  int64_t read(std::span<uint8_t> out) {
    int64_t n_done = 0;
    const int64_t n_wanted = static_cast<int64_t>(out.size());
    while (n_done < n_wanted) {
      if (at_in_ == n_in_) refill();
      const int64_t n_have = n_in_ - at_in_;
      int64_t n_new = 0;
      if (packed_) {
        if (zip_ended_) break;
        n_new = inflate_some(out.subspan(static_cast<size_t>(n_done)));
      } else {
        if (n_have == 0) break;
        n_new = std::min(n_have, n_wanted - n_done);
        std::memcpy(out.data() + n_done, in_ + at_in_, static_cast<size_t>(n_new));
        at_in_ += n_new;
      }
      n_done += n_new;
      off_bytes_ += n_new;
    }
    return n_done;
  }

  /// Refuses what lies after the content.
  void must_be_at_end() {
    uint8_t byte = 0;
    const int64_t n_more = read({&byte, 1});
    WHIT_USER(n_more == 0, Io, "[idx] {}: offset {}: more data than the header announces", path(), off_bytes_ - 1);
    const int64_t end = next_in_ - (n_in_ - at_in_);
    WHIT_USER(end == file_.n_bytes(), Io, "[idx] {}: offset {}: {} bytes after the end of the gzip stream", path(), end, file_.n_bytes() - end);
  }

 private:
  void refill() {
    n_in_ = std::min(kChunkBytes, file_.n_bytes() - next_in_);
    at_in_ = 0;
    file_.read_at(next_in_, {in_, static_cast<size_t>(n_in_)});
    next_in_ += n_in_;
  }

  int64_t inflate_some(std::span<uint8_t> out) {
    zip_.next_in = in_ + at_in_;
    zip_.avail_in = static_cast<uInt>(n_in_ - at_in_);
    zip_.next_out = out.data();
    zip_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), size_t{1} << 30));
    const uInt n_out = zip_.avail_out;
    const int status = inflate(&zip_, Z_NO_FLUSH);
    at_in_ = n_in_ - zip_.avail_in;
    const int64_t off_file = next_in_ - (n_in_ - at_in_);
    const bool starved = status == Z_BUF_ERROR && next_in_ == file_.n_bytes();
    WHIT_USER(!starved, Io, "[idx] {}: offset {}: the file ends inside its gzip stream", path(), off_file);
    WHIT_USER(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, Io, "[idx] {}: offset {}: the gzip stream is damaged: {}", path(),
              off_file, zip_.msg != nullptr ? zip_.msg : zError(status));
    zip_ended_ = status == Z_STREAM_END;
    return n_out - zip_.avail_out;
  }

  InputFile file_;
  z_stream zip_{};
  bool packed_ = false, zip_open_ = false, zip_ended_ = false;
  int64_t off_bytes_ = 0;
  int64_t next_in_ = 0;           // offset in the file of what follows the chunk in in_
  int64_t at_in_ = 0, n_in_ = 0;  // the part of in_ that is not used up
  uint8_t in_[kChunkBytes];
};

int64_t read_big_endian_u32(const uint8_t* p) { return (int64_t{p[0]} << 24) | (int64_t{p[1]} << 16) | (int64_t{p[2]} << 8) | int64_t{p[3]}; }

void to_native_order(std::span<uint8_t> bytes, int64_t n_bytes_elem) {
  if (n_bytes_elem == 1 || std::endian::native == std::endian::big) return;
  for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(n_bytes_elem))
    std::reverse(bytes.begin() + static_cast<int64_t>(i), bytes.begin() + static_cast<int64_t>(i) + n_bytes_elem);
}

}  // namespace

int64_t n_bytes_of(IdxType type) {
  switch (type) {
    case IdxType::U8:
    case IdxType::I8: return 1;
    case IdxType::I16: return 2;
    case IdxType::I32:
    case IdxType::F32: return 4;
    case IdxType::F64: return 8;
  }
  return 0;
}

IdxArray read_idx(const std::string& path) {
  Source source(path);
  uint8_t head[4 + 4 * 255];
  int64_t n_head = source.read({head, 4});
  WHIT_USER(n_head == 4, Io, "[idx] {}: offset {}: the file ends inside its header", path, n_head);
  WHIT_USER(head[0] == 0 && head[1] == 0, Io, "[idx] {}: offset 0: starts with {:02x} {:02x}, an idx file with 00 00", path, head[0], head[1]);
  IdxArray array;
  array.type = static_cast<IdxType>(head[2]);
  const int64_t n_bytes_elem = n_bytes_of(array.type);
  WHIT_USER(n_bytes_elem != 0, Io, "[idx] {}: offset 2: unknown element type {:#04x}", path, head[2]);
  const int64_t rank = head[3];
  n_head += source.read({head + 4, static_cast<size_t>(4 * rank)});
  WHIT_USER(n_head == 4 + 4 * rank, Io, "[idx] {}: offset {}: the file ends inside its header of {} bytes", path, n_head, 4 + 4 * rank);
  int64_t n_claimed = n_bytes_elem;
  bool fits = true;
  for (int64_t i = 0; i < rank; ++i) {
    array.shape.push_back(read_big_endian_u32(head + 4 + 4 * i));
    fits = fits && !__builtin_mul_overflow(n_claimed, array.shape.back(), &n_claimed);
  }
  WHIT_USER(fits && n_claimed <= source.max_bytes(), Io, "[idx] {}: offset 4: the header claims shape [{}], more than a file of this length can hold",
            path, fmt::join(array.shape, ", "));

  // The claim is believed as far as data is there: the buffer doubles when it is full.
  int64_t n_read = 0;
  while (n_read < n_claimed) {
    const int64_t n_next = std::min(n_claimed, std::max(kChunkBytes, 2 * n_read));
    array.bytes.resize(static_cast<size_t>(n_next));
    const int64_t n_new = source.read(std::span(array.bytes).subspan(static_cast<size_t>(n_read)));
    n_read += n_new;
    WHIT_USER(n_read == n_next, Io, "[idx] {}: offset {}: the data ends here; shape [{}] needs {} bytes", path, source.off_bytes(),
              fmt::join(array.shape, ", "), n_head + n_claimed);
  }
  source.must_be_at_end();
  to_native_order(array.bytes, n_bytes_elem);
  return array;
}

}  // namespace whit::io
