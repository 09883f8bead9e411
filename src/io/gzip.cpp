#include "io/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "base/error.h"

namespace whit::io {

std::vector<uint8_t> inflate_all(const std::string& where, Bytes packed, bool gzip, int64_t max_bytes) {
  struct Stream : z_stream {
    ~Stream() { inflateEnd(this); }
  } zip{};
  WHIT_USER(inflateInit2(&zip, gzip ? 16 + MAX_WBITS : -MAX_WBITS) == Z_OK, Memory, "{}: no memory for unpacking", where);
  constexpr size_t kMaxStep = size_t{1} << 30;  // zlib counts in 32 bits
  std::vector<uint8_t> out;
  size_t n_in = 0, n_out = 0;
  for (int status = Z_OK;;) {
    if (n_out == out.size()) {
      const auto limit = static_cast<size_t>(max_bytes) + 1;  // one more than allowed, to see that there is more
      out.resize(std::min(limit, std::max<size_t>(size_t{1} << 16, 2 * out.size())));
    }
    const size_t give = std::min(packed.size() - n_in, kMaxStep), take = std::min(out.size() - n_out, kMaxStep);
    zip.next_in = const_cast<Bytef*>(packed.data() + n_in);
    zip.avail_in = static_cast<uInt>(give);
    zip.next_out = out.data() + n_out;
    zip.avail_out = static_cast<uInt>(take);
    status = inflate(&zip, Z_NO_FLUSH);
    n_in += give - zip.avail_in;
    n_out += take - zip.avail_out;
    WHIT_USER(static_cast<int64_t>(n_out) <= max_bytes, Io, "{}: offset {}: unpacks to more than {} bytes", where, n_in, max_bytes);
    WHIT_USER(status != Z_BUF_ERROR || n_in < packed.size(), Io, "{}: offset {}: the packed data ends early", where, n_in);
    WHIT_USER(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, Io, "{}: offset {}: the packed data is damaged: {}", where, n_in,
              zip.msg ? zip.msg : zError(status));
    if (status != Z_STREAM_END) continue;
    if (n_in == packed.size()) break;
    WHIT_USER(gzip && packed[n_in] == 0x1f, Io, "{}: offset {}: {} bytes after the end of the packed data", where, n_in, packed.size() - n_in);
    inflateReset(&zip);
  }
  out.resize(n_out);
  return out;
}

std::vector<uint8_t> gunzip_if_packed(const InputFile& file) {
  uint8_t magic[2] = {};
  if (file.n_bytes() >= 2) file.read_at(0, magic);
  if (magic[0] != 0x1f || magic[1] != 0x8b) return {};
  std::vector<uint8_t> packed(static_cast<size_t>(file.n_bytes()));
  file.read_at(0, packed);
  return inflate_all(fmt::format("[gzip] {}", file.path()), packed, true, file.n_bytes() * 1032);
}

}  // namespace whit::io
