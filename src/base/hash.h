// Hashing inside one process (mix) and across processes (Key128, by XXH3).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace whit {

/// Joins a value into a running hash. For tables in memory only: the result is not stored.
inline uint64_t hash_mix(uint64_t h, uint64_t v) {
  h ^= v;
  h *= 0x9E3779B97F4A7C15ull;
  return h ^ (h >> 29);
}

/// A 128-bit structural key: equal in every process and on every machine.
struct Key128 {
  uint64_t lo = 0, hi = 0;
  bool operator==(const Key128&) const = default;
  bool operator<(const Key128& o) const { return hi != o.hi ? hi < o.hi : lo < o.lo; }
  /// 32 hexadecimal digits, high half first.
  std::string hex() const;
};
/// XXH3-128 of the bytes.
Key128 hash128(std::string_view bytes);

struct Key128Hash {
  size_t operator()(const Key128& k) const { return k.lo ^ (k.hi * 31); }
};

}  // namespace whit
