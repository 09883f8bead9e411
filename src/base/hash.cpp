#include "base/hash.h"

#include <fmt/core.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace whit {

std::string Key128::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

Key128 hash128(std::string_view bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.low64, h.high64};
}

}  // namespace whit
