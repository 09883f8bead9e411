// What kernels may call outside themselves. The list is closed: a kernel cannot reach any other function.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtime/elf_loader.h"

namespace whit {
namespace {

// The compiler's helpers for 16-bit floats, where the machine has no instruction for them. A half or bfloat16 argument
// or result travels in the low 16 bits of a float register, hence the float types.
float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float half_to_float(float in) {
  const uint32_t h = bits_of(in) & 0xFFFF;
  const uint32_t sign = (h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3FF;
  if (exponent == 31) return float_of(sign | 0x7F800000 | (mantissa << 13) | (mantissa ? 0x400000 : 0));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
    return sign ? -magnitude : magnitude;
  }
  return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Rounds a double once, to nearest even, to `mantissa_bits` and the exponents above `min_exponent`.
uint32_t narrow(double value, int mantissa_bits, int min_exponent, int max_exponent) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << 15;
  const uint32_t infinity = static_cast<uint32_t>(max_exponent - min_exponent + 2) << mantissa_bits;
  if (std::isnan(value)) {
    const uint32_t payload = static_cast<uint32_t>((bits & 0xFFFFFFFFFFFFF) >> (52 - mantissa_bits));
    return sign | infinity | (1u << (mantissa_bits - 1)) | payload;
  }
  const double magnitude = std::fabs(value);
  int exponent = min_exponent;
  if (magnitude >= std::ldexp(1.0, min_exponent)) exponent = std::ilogb(magnitude);
  if (std::isinf(value) || exponent > max_exponent) return sign | infinity;
  // In units of the last place the value is a double without loss; nearbyint rounds to nearest even.
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const uint32_t result = (static_cast<uint32_t>(exponent - min_exponent) << mantissa_bits) + units;
  return sign | (result < infinity ? result : infinity);
}

float float_to_half(float value) { return float_of(narrow(value, 10, -14, 15)); }
float double_to_half(double value) { return float_of(narrow(value, 10, -14, 15)); }
float float_to_bfloat(float value) { return float_of(narrow(value, 7, -126, 127)); }
float double_to_bfloat(double value) { return float_of(narrow(value, 7, -126, 127)); }

// gcc joins conversions by way of float, and narrows a comparison of widened halves to one of halves.
double half_to_double(float x) { return static_cast<double>(half_to_float(x)); }
int64_t halves_differ(float x, float y) { return half_to_float(x) != half_to_float(y); }

template <class R, class... A>
void* address(R (*function)(A...)) {
  return reinterpret_cast<void*>(function);
}

struct Symbol {
  std::string_view name;
  void* address;
};

#define WHIT_MATH1(name) \
  {#name, address<double, double>(::name)}, { #name "f", address<float, float>(::name##f) }
#define WHIT_MATH2(name) \
  {#name, address<double, double, double>(::name)}, { #name "f", address<float, float, float>(::name##f) }

const Symbol kSymbols[] = {
    {"memcpy", address<void*, void*, const void*, size_t>(std::memcpy)},
    {"memmove", address<void*, void*, const void*, size_t>(std::memmove)},
    {"memset", address<void*, void*, int, size_t>(std::memset)},
    {"memcmp", address<int, const void*, const void*, size_t>(std::memcmp)},
    WHIT_MATH1(exp),
    WHIT_MATH1(exp2),
    WHIT_MATH1(log),
    WHIT_MATH1(log2),
    WHIT_MATH1(log10),
    WHIT_MATH1(sin),
    WHIT_MATH1(cos),
    WHIT_MATH1(tan),
    WHIT_MATH1(tanh),
    WHIT_MATH1(erf),
    WHIT_MATH1(sqrt),
    WHIT_MATH1(floor),
    WHIT_MATH1(ceil),
    WHIT_MATH1(trunc),
    WHIT_MATH1(round),
    WHIT_MATH1(rint),
    WHIT_MATH1(nearbyint),
    WHIT_MATH2(pow),
    WHIT_MATH2(fmod),
    WHIT_MATH2(fmin),
    WHIT_MATH2(fmax),
    {"fma", address<double, double, double, double>(::fma)},
    {"fmaf", address<float, float, float, float>(::fmaf)},
    {"__extendhfsf2", address(half_to_float)},
    {"__extendhfdf2", address(half_to_double)},
    {"__gnu_h2f_ieee", address(half_to_float)},
    {"__truncsfhf2", address(float_to_half)},
    {"__gnu_f2h_ieee", address(float_to_half)},
    {"__truncdfhf2", address(double_to_half)},
    {"__truncsfbf2", address(float_to_bfloat)},
    {"__truncdfbf2", address(double_to_bfloat)},
    {"__nehf2", address(halves_differ)},
    {"__eqhf2", address(halves_differ)},
};
#undef WHIT_MATH1
#undef WHIT_MATH2

}  // namespace

void* find_runtime_symbol(std::string_view name) {
  for (const Symbol& symbol : kSymbols) {
    if (symbol.name == name) return symbol.address;
  }
  return nullptr;
}

}  // namespace whit
