// Code books of the IQ formats of gguf.cpp.
#pragma once
#include <cstdint>

namespace whit::io {

extern const uint16_t kIq2sGrid[1024];
extern const uint16_t kIq3xxsGrid[256];
extern const uint16_t kIq3sGrid[512];

}  // namespace whit::io
