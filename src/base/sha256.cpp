#include "base/sha256.h"

#include <bit>
#include <string>

namespace whit {
namespace {

// The round constants are the first 32 bits of the fractional parts of cube roots of the first primes; the initial
// state those of square roots. Exact integer roots, so that no table needs to be trusted.
uint32_t root_bits(uint64_t prime, int degree) {
  using Wide = unsigned __int128;
  // The largest r with r^degree <= prime * 2^(32 * degree): the root in 32-bit fixed point, found by halving.
  Wide low = 0, high = Wide{1} << 37;
  while (high - low > 1) {
    const Wide mid = (low + high) / 2, square = mid * mid;
    bool over;
    if (degree == 2) {
      over = square > Wide{prime} << 64;
    } else {
      // mid^3 / 2^64 from the halves of the square, so that nothing overflows; mid^3 is never exactly prime * 2^96.
      const Wide upper = (square >> 64) * mid + ((square & ~uint64_t{0}) * mid >> 64);
      over = upper >= Wide{prime} << 32;
    }
    (over ? high : low) = mid;
  }
  return static_cast<uint32_t>(low);
}

struct Tables {
  std::array<uint32_t, 64> k;
  std::array<uint32_t, 8> h;
  Tables() {
    size_t n = 0;
    for (uint64_t p = 2; n < 64; ++p) {
      bool prime = true;
      for (uint64_t d = 2; d * d <= p; ++d) prime &= p % d != 0;
      if (!prime) continue;
      k[n] = root_bits(p, 3);
      if (n < 8) h[n] = root_bits(p, 2);
      ++n;
    }
  }
};

}  // namespace

std::array<uint8_t, 32> sha256(std::string_view bytes) {
  static const Tables tables;
  std::string m(bytes);
  m += '\x80';
  while (m.size() % 64 != 56) m += '\0';
  for (int i = 7; i >= 0; --i) m += static_cast<char>(static_cast<uint64_t>(bytes.size()) * 8 >> (8 * i));
  std::array<uint32_t, 8> s = tables.h;
  for (size_t block = 0; block < m.size(); block += 64) {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | static_cast<uint8_t>(m[block + 4 * i + b]);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<uint32_t, 8> v = s;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t e = v[4], a = v[0];
      const uint32_t t1 = v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                          tables.k[i] + w[i];
      const uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (size_t i = 0; i < 8; ++i) s[i] += v[i];
  }
  std::array<uint8_t, 32> out;
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(s[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

}  // namespace whit
