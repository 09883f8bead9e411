// What kernels may call outside themselves. The list is closed: a kernel cannot reach any other function.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "ir/eval.h"
#include "runtime/elf_loader.h"

namespace whit {
namespace {

// The compiler's helpers for 16-bit floats, where the machine has no instruction for them. A half or bfloat16 argument
// or result travels in the low 16 bits of a float register, hence the float types.
template <DType kType> float widen(float in) {
  uint32_t bits;
  std::memcpy(&bits, &in, sizeof(bits));
  return static_cast<float>(read_element(kType, &bits, 0).f);
}
// Rounds once, to nearest even.
template <DType kType, class From> float narrow(From value) {
  uint32_t bits = 0;
  write_element(kType, &bits, 0, Scalar::of(kType, static_cast<double>(value)));
  if (std::isnan(value)) bits |= 1u << (info(kType).mantissa_bits - 1);  // quiet
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}
constexpr auto half_to_float = widen<DType::Float16>;
constexpr auto float_to_half = narrow<DType::Float16, float>;
constexpr auto double_to_half = narrow<DType::Float16, double>;
constexpr auto float_to_bfloat = narrow<DType::BFloat16, float>;
constexpr auto double_to_bfloat = narrow<DType::BFloat16, double>;

// gcc joins conversions by way of float, and narrows a comparison of widened halves to one of halves.
double half_to_double(float x) { return static_cast<double>(half_to_float(x)); }
int64_t halves_differ(float x, float y) { return half_to_float(x) != half_to_float(y); }

template <class R, class... A> void* address(R (*function)(A...)) { return reinterpret_cast<void*>(function); }

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
