// SHA-256 (FIPS 180-4), for keys of random streams and checks of files.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace whit {

std::array<uint8_t, 32> sha256(std::string_view bytes);

}  // namespace whit
