#include "runtime/elf_loader.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "base/error.h"
#include "base/flags.h"
#include "runtime/compiler.h"
#include "runtime/program.h"

namespace whit {
namespace {

// A kernel with constants, a jump table, calls of memset and expf, and the address of a function.
const char* const kSource = R"(
typedef long i64;
typedef unsigned long size_t;
float expf(float);
void* memset(void*, int, size_t);
static const float table[8] = {1, 2, 3, 5, 7, 11, 13, 17};
typedef float (*fn)(float);
const fn volatile which = expf;
static float pick(i64 i, float x) {
  switch (i & 7) {
    case 0: return x * 3;
    case 1: return x + table[i & 3];
    case 2: return which(x);
    case 3: return x / 5;
    case 4: return expf(x) + 1;
    case 5: return -x;
    case 6: return x * x;
  }
  return table[(i >> 1) & 7];
}
void k(void* const* buffers, const i64* variables, void* scratch, i64 first, i64 last) {
  float* out = buffers[0];
  const float* in = buffers[1];
  memset(out + first, 0, (last - first) * sizeof(float));
  for (i64 i = first; i < last; ++i) out[i] += pick(i, in[i]) + (float)variables[0];
}
)";

const std::string& test_object() {
  static const std::string object = make_c_compiler(host_cpu_arch())->compile("k", kSource);
  return object;
}

float expected(int64_t i, float x) {
  static const float table[8] = {1, 2, 3, 5, 7, 11, 13, 17};
  switch (i & 7) {
    case 0: return x * 3;
    case 1: return x + table[i & 3];
    case 2: return std::exp(x);
    case 3: return x / 5;
    case 4: return std::exp(x) + 1;
    case 5: return -x;
    case 6: return x * x;
  }
  return table[(i >> 1) & 7];
}

std::string error_of(std::string_view file) {
  try {
    LoadedObject::load(file, "test.o");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// The object with `value` written over the bytes at `offset`.
template <class T> std::string patched(size_t offset, T value) {
  std::string file = test_object();
  std::memcpy(file.data() + offset, &value, sizeof(value));
  return file;
}

TEST(ElfLoader, LinksConstantsJumpTablesAndCalls) {
  const auto object = LoadedObject::load(test_object(), "test.o");
  const auto k = reinterpret_cast<CpuKernelFn>(object->must_find("k"));
  float out[64], in[64];
  for (int i = 0; i < 64; ++i) in[i] = 0.1f * static_cast<float>(i);
  void* buffers[] = {out, in};
  const int64_t variables[] = {2};
  k(buffers, variables, nullptr, 0, 64);
  for (int i = 0; i < 64; ++i) EXPECT_FLOAT_EQ(out[i], expected(i, in[i]) + 2) << i;
}

TEST(ElfLoader, NamesWhatIsNotThere) {
  const auto object = LoadedObject::load(test_object(), "test.o");
  try {
    object->must_find("other");
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[load] test.o: there is no function 'other'; there are: k");
  }
}

TEST(ElfLoader, WrongHeaders) {
  EXPECT_EQ(error_of(""), "[load] test.o: 0 bytes are too few for an ELF header");
  EXPECT_EQ(error_of(std::string(100, 'x')), "[load] test.o: it is no ELF file (no magic)");
  EXPECT_EQ(error_of(patched<char>(EI_CLASS, ELFCLASS32)), "[load] test.o: class 1 is not 64-bit");
  EXPECT_EQ(error_of(patched<char>(EI_DATA, ELFDATA2MSB)), "[load] test.o: byte order 2 is not little-endian");
  EXPECT_EQ(error_of(patched<uint16_t>(offsetof(Elf64_Ehdr, e_type), ET_DYN)), "[load] test.o: type 3 is no object file");
  EXPECT_NE(error_of(patched<uint16_t>(offsetof(Elf64_Ehdr, e_machine), EM_PPC64)).find("it is for machine 21"), std::string::npos);
  EXPECT_NE(error_of(patched<uint64_t>(offsetof(Elf64_Ehdr, e_shoff), ~uint64_t{0})).find("the section table at"), std::string::npos);
}

TEST(ElfLoader, UnknownSymbolsAndSectionsAreNamed) {
  const auto compiler = make_c_compiler(host_cpu_arch());
  EXPECT_EQ(error_of(compiler->compile("k", "int system(const char*); void k(void) { system(\"true\"); }")),
            "[load] test.o: symbol 'system' is unknown: kernels may not call it");
  EXPECT_NE(error_of(compiler->compile("k", "static volatile int n = 5; void k(void) { n++; }")).find("is writable, but kernels have no state"),
            std::string::npos);
  EXPECT_NE(error_of(compiler->compile("k", "_Thread_local int n; int* k(void) { return &n; }")).find("thread-local"), std::string::npos);
  EXPECT_NE(error_of(compiler->compile("k", "__attribute__((constructor)) void k(void) { *(volatile int*)64 = 1; }")).find("runs code at load"),
            std::string::npos);
}

TEST(ElfLoader, UnknownRelocationsAreNamed) {
#ifdef __x86_64__
  std::string file = test_object();
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, file.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type != SHT_RELA) continue;
    Elf64_Rela rela;
    std::memcpy(&rela, file.data() + section.sh_offset, sizeof(rela));
    rela.r_info = ELF64_R_INFO(ELF64_R_SYM(rela.r_info), 99);
    std::memcpy(file.data() + section.sh_offset, &rela, sizeof(rela));
    break;
  }
  EXPECT_NE(error_of(file).find("[load] test.o: relocation 99 of '"), std::string::npos) << error_of(file);
#endif
}

TEST(ElfLoader, EveryTruncationIsAnErrorOrHarmless) {
  const std::string& whole = test_object();
  int n_errors = 0;
  for (size_t n = 0; n < whole.size(); n += n < 2000 ? 1 : 7) {
    const std::string part = whole.substr(0, n);  // a copy, so that a sanitizer sees a read past its end
    n_errors += !error_of(part).empty();
  }
  EXPECT_GT(n_errors, 1000);
}

TEST(ElfLoader, FlippedBitsAreAnErrorOrHarmless) {
  const std::string& whole = test_object();
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string file = whole;
    const int n_flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < n_flips; ++i) {
      const size_t at = random() % file.size();
      if (random() % 2) {
        file[at] = static_cast<char>(file[at] ^ (1 << (random() % 8)));
      } else {
        file[at] = static_cast<char>(random());
      }
    }
    error_of(file);  // the result is never called: code may have been changed
  }
  // Tables are few of the bytes, and the most dangerous: change each of them to extreme values.
  Elf64_Ehdr header;
  std::memcpy(&header, whole.data(), sizeof(header));
  for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{whole.size()}, uint64_t{1} << 31}) {
    for (size_t at = 0; at + 8 <= sizeof(header); at += 2) error_of(patched(at, value));
    for (size_t at = header.e_shoff; at + 8 <= whole.size(); at += 4) error_of(patched(at, value));
  }
}

TEST(ElfLoader, HelpersForHalfFloatsRoundOnceToEven) {
  using Extend = float (*)(float);
  using Truncate = float (*)(float);
  using TruncateDouble = float (*)(double);
  const auto extend = reinterpret_cast<Extend>(find_runtime_symbol("__extendhfsf2"));
  const auto truncate = reinterpret_cast<Truncate>(find_runtime_symbol("__truncsfhf2"));
  const auto truncate_double = reinterpret_cast<TruncateDouble>(find_runtime_symbol("__truncdfhf2"));
  const auto to_bfloat = reinterpret_cast<Truncate>(find_runtime_symbol("__truncsfbf2"));
  const auto bits = [](float f) {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    return u;
  };
  const auto from_bits = [](uint32_t u) {
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  };
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float wide = extend(from_bits(h));
    if (std::isnan(wide)) continue;
    ASSERT_EQ(bits(truncate(wide)), h);
    ASSERT_EQ(bits(truncate_double(wide)), h);
  }
  EXPECT_EQ(bits(truncate(65519.0f)), 0x7BFFu);
  EXPECT_EQ(bits(truncate(65520.0f)), 0x7C00u);
  EXPECT_EQ(bits(truncate(1.0f + 0x1p-11f)), 0x3C00u);
  EXPECT_EQ(bits(truncate(1.0f + 3 * 0x1p-11f)), 0x3C02u);
  EXPECT_EQ(bits(truncate_double(1.0 + 0x1p-11 + 0x1p-40)), 0x3C01u);
  EXPECT_EQ(bits(truncate(0x1p-25f)), 0u);
  EXPECT_EQ(bits(truncate(0x1.8p-25f)), 1u);
  EXPECT_EQ(bits(truncate(NAN)) & 0x7C00u, 0x7C00u);
  EXPECT_EQ(bits(to_bfloat(1.0f)), 0x3F80u);
  EXPECT_EQ(bits(to_bfloat(from_bits(0x3F808000))), 0x3F80u);
  EXPECT_EQ(bits(to_bfloat(from_bits(0x3F818000))), 0x3F82u);
  EXPECT_EQ(bits(to_bfloat(from_bits(0x7F7FFFFF))), 0x7F80u);
  EXPECT_EQ(bits(to_bfloat(from_bits(0x00018000))), 0x2u);
}

}  // namespace
}  // namespace whit
