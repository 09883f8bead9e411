#include "runtime/target.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/flags.h"
#include "error_of.h"
#include "runtime/compiler.h"

namespace whit {
namespace {

std::string shown(const DeviceTarget& t) {
  std::string indices;
  for (const int i : t.indices) indices += std::to_string(i) + ".";
  return t.iface + "|" + indices + "|" + t.device + "|" + t.renderer + "|" + t.arch;
}

TEST(Target, TheGrammar) {
  const std::pair<const char*, const char*> cases[] = {
      {"cpu", "||CPU||"},
      {"CPU:llvm", "||CPU|LLVM|"},
      {"CPU:LLVM:x86_64,znver2,avx2,-avx512f", "||CPU|LLVM|x86_64,znver2,avx2,-avx512f"},
      {"CPU:LLVM:x86_64,native,+avx2", "||CPU|LLVM|x86_64,native,+avx2"},
      {"AMD::gfx950", "||AMD||gfx950"},
      {"MOCK+CUDA:PTX", "MOCK||CUDA|PTX|"},
      {"pci:0,2+AMD", "PCI|0.2.|AMD||"},
      {"PCI:0-3+AMD:HIP", "PCI|0.1.2.3.|AMD|HIP|"},
      {":LLVM", "|||LLVM|"},
  };
  for (const auto& [text, expected] : cases) {
    const auto targets = parse_targets(text);
    ASSERT_EQ(targets.size(), 1u) << text;
    EXPECT_EQ(shown(targets[0]), expected) << text;
  }
  EXPECT_TRUE(parse_targets("").empty());
  EXPECT_EQ(parse_targets("CPU;NULL").size(), 2u);
}

TEST(Target, WrongTexts) {
  EXPECT_EQ(error_of([] { parse_targets("A+B+C"); }), "[DEV] 'A+B+C' has more than one '+'; expected [IFACE[:indices]+]DEVICE[:RENDERER[:ARCH]]");
  EXPECT_EQ(error_of([] { parse_targets("CPU:LLVM:x:y"); }), "[DEV] 'CPU:LLVM:x:y' has more than two ':'; expected DEVICE[:RENDERER[:ARCH]]");
  EXPECT_EQ(error_of([] { parse_targets("PCI:x+AMD"); }), "[DEV] 'x' in 'PCI:x+AMD' is no list of devices like 0,2 or 0-3");
  EXPECT_EQ(error_of([] { parse_targets("PCI:3-1+AMD"); }), "[DEV] '3-1' in 'PCI:3-1+AMD' is no list of devices like 0,2 or 0-3");
}

TEST(Target, TheFirstThatFitsCounts) {
  const FlagScope scope("DEV", std::string("NULL:C;CPU:LLVM:x86_64,znver4;:C"));
  EXPECT_EQ(shown(target_of("CPU")), "||CPU|LLVM|x86_64,znver4");
  EXPECT_EQ(shown(target_of("NULL")), "||NULL|C|");
  EXPECT_EQ(shown(target_of("OTHER")), "|||C|");
}

TEST(Target, DevAndDeviceMustAgree) {
  const FlagScope scope({{"DEV", std::string("CPU")}, {"DEVICE", std::string("NULL")}});
  EXPECT_EQ(error_of([] { dev_flag(); }), "[DEV] DEV='CPU' and DEVICE='NULL' are both set and differ");
  const FlagScope same("DEVICE", std::string("CPU"));
  EXPECT_EQ(dev_flag(), "CPU");
}

TEST(Target, NamesOfDevices) {
  EXPECT_EQ(canonical_device("cpu"), "CPU");
  EXPECT_EQ(canonical_device("cpu:0"), "CPU");
  EXPECT_EQ(canonical_device("CPU:12"), "CPU:12");
  EXPECT_EQ(canonical_device("disk:/tmp/a:b"), "DISK:/tmp/a:b");
  EXPECT_EQ(device_kind_of("CPU:12"), "CPU");
  EXPECT_EQ(device_ordinal_of("CPU:12"), 12);
  EXPECT_EQ(device_ordinal_of("CPU"), 0);
  EXPECT_EQ(error_of([] { canonical_device(""); }), "[device] the name of a device is empty");
  EXPECT_EQ(error_of([] { canonical_device("CPU:x"); }), "[device] 'CPU:x' is no device: expected NAME or NAME:ordinal, the ordinal in 0..4095");
  EXPECT_EQ(error_of([] { canonical_device("CPU:-1"); }), "[device] 'CPU:-1' is no device: expected NAME or NAME:ordinal, the ordinal in 0..4095");
}

TEST(Target, ArchOfACpu) {
  const CpuArch arch = parse_cpu_arch("x86_64,znver4,-avx512f,avx2");
  EXPECT_EQ(arch.machine, "x86_64");
  EXPECT_EQ(arch.cpu, "znver4");
  EXPECT_EQ(arch.features, (std::vector<std::string>{"-avx512f", "+avx2"}));
  EXPECT_EQ(parse_cpu_arch("x86_64,+avx2").cpu, "native");
  EXPECT_EQ(parse_cpu_arch("arm64").machine, "aarch64");
  EXPECT_EQ(error_of([] { parse_cpu_arch("x86_64,,avx2"); }), "[arch] 'x86_64,,avx2' has an empty part; expected for example x86_64,znver4,-avx512f");
}

}  // namespace
}  // namespace whit
