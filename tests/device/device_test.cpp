// The contracts of the runtime, for every device that opens here.
#include "runtime/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/flags.h"
#include "base/log.h"
#include "base/text.h"
#include "device/contract.h"
#include "error_of.h"
#include "runtime/allocator.h"
#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "runtime/host_memory.h"
#include "runtime/program.h"
#include "unit/temp_folder.h"
#include "viz/device_table.h"

namespace whit {
namespace {

// Kinds with memory that can be read back.
std::vector<std::string> devices_with_memory() {
  std::vector<std::string> names;
  for (const std::string& name : device_kinds()) {
    if (name == "DISK" || name == "NULL") continue;
    if (must_find_kind(name).count() > 0) names.push_back(name);
  }
  return names;
}

TEST(Device, IsFoundByAnySpellingAndOpenedOnce) {
  Device& cpu = Device::get("cpu:0");
  EXPECT_EQ(&cpu, &Device::get("CPU"));
  EXPECT_NE(&cpu, &Device::get("CPU:1"));
  EXPECT_EQ(cpu.name(), "CPU");
  EXPECT_EQ(Device::get("CPU:1").name(), "CPU:1");
  EXPECT_EQ(Device::get("CPU:1").ordinal(), 1);
}

TEST(Device, ErrorsNameWhatThereIs) {
  EXPECT_THAT(error_of([] { Device::get("CPX"); }),
              testing::AllOf(testing::StartsWith("[device] unknown device CPX; there are: "), testing::EndsWith("; did you mean CPU?")));
  EXPECT_EQ(error_of([] { Device::get("CPU:64"); }), "[device] CPU:64 does not exist: there are 64 CPU devices, the last is CPU:63");
  EXPECT_EQ(error_of([] { Device::get("DISK"); }), "[disk] 'DISK' names no file; expected DISK:path");
}

TEST(Device, UsageCanBeForbidden) {
  const FlagScope scope("ALLOW_DEVICE_USAGE", int64_t{0});
  EXPECT_EQ(error_of([] { Device::get("CPU:17"); }), "[device] CPU:17 is opened although ALLOW_DEVICE_USAGE=0");
  EXPECT_NO_THROW(Device::get("REF:17"));
  // Compiling is allowed: it opens no device.
  EXPECT_NO_THROW(code_path("CPU"));
}

TEST(Device, DevChoosesDeviceAndRenderer) {
  {
    const FlagScope scope("DEV", std::string("null"));
    EXPECT_EQ(default_device(), "NULL");
  }
  {
    const FlagScope scope("DEV", std::string("CPU:C"));
    EXPECT_EQ(code_path("CPU:3").renderer, "C");
  }
  {
    const FlagScope scope("DEV", std::string("CPU:LLVN"));
    EXPECT_EQ(error_of([] { code_path("CPU"); }), "[device] CPU has no renderer LLVN; there are: LLVM, C; did you mean LLVM?");
  }
  {
    const FlagScope scope("DEV", std::string("NOPE"));
    EXPECT_EQ(error_of([] { default_device(); }).find("[device] unknown device NOPE"), 0u);
  }
  EXPECT_EQ(error_of([] { code_path("DISK:x"); }), "[device] DISK runs no kernels");
}

class TestDevice : public Device {
 public:
  TestDevice(const std::string& name, std::string& events) : Device(name, "test"), events_(events) {
    allocator_ = std::make_unique<HostAllocator>(*this);
  }
  void synchronize() override { events_ += "s" + std::to_string(ordinal()); }
  void finalize() override { events_ += "f" + std::to_string(ordinal()); }

 private:
  std::string& events_;
};

class TestKind : public DeviceKind {
 public:
  explicit TestKind(std::string& events) : DeviceKind("TEST", "for this test"), events_(events) {}
  int count() override { return 2; }
  std::unique_ptr<Device> open(const std::string& device_name, const DeviceTarget&) override {
    return std::make_unique<TestDevice>(device_name, events_);
  }
  std::vector<std::string> renderers() const override { return {"NO1", "C"}; }
  std::shared_ptr<Compiler> make_compiler(const std::string& renderer, const std::string& arch) override {
    return renderer == "C" ? make_c_compiler(host_cpu_arch()) : DeviceKind::make_compiler(renderer, arch);
  }

 private:
  std::string& events_;
};

TEST(Device, APluginIsOpenedSynchronisedAndFinalisedOnce) {
  static std::string& events = *new std::string();  // devices still report at exit
  finalize_devices();
  register_device(std::make_unique<TestKind>(events));
  Device::get("TEST");
  Device::get("test:1");
  EXPECT_EQ(error_of([] { register_device(std::make_unique<TestKind>(events)); }), "[device] TEST is registered again while TEST is open");
  EXPECT_EQ(code_path("TEST").renderer, "C");
  EXPECT_NE(said_so_far().find("TEST uses the renderer C, because NO1 does not work"), std::string::npos);
  events.clear();
  finalize_devices();
  EXPECT_EQ(events, "s0s1f0f1");
  finalize_devices();
  EXPECT_EQ(events, "s0s1f0f1");
}

TEST(DeviceDeathTest, FinalisedOnceAtExitAlsoAfterAnException) {
  // Its own process: what runs at exit cannot be watched from inside. The device reports on standard error.
  static std::string& events = *new std::string();
  struct AtExit {
    ~AtExit() { std::fputs(events.c_str(), stderr); }
  };
  const auto body = [] {
    static const AtExit at_exit;  // made before the first device, so destroyed after devices are finalised
    register_device(std::make_unique<TestKind>(events));
    Device::get("TEST:1");
    events.clear();
    try {
      Device::get("TEST:2");
    } catch (const Error&) {
      std::exit(3);
    }
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(body(), testing::ExitedWithCode(3), "^s1f1$");
}

TEST(Device, ThreadsMayOpenAtOnce) {
  std::vector<std::thread> threads;
  std::vector<Device*> found(8);
  for (size_t t = 0; t < found.size(); ++t) threads.emplace_back([&found, t] { found[t] = &Device::get("CPU:9"); });
  for (std::thread& thread : threads) thread.join();
  for (Device* const device : found) EXPECT_EQ(device, found[0]);
}

TEST(Device, EveryDeviceKeepsTheContracts) {
  for (const std::string& name : devices_with_memory()) EXPECT_EQ(join(broken_contracts(name), "\n"), "");
}

TEST(Allocator, MemoryIsAligned) {
  Allocator& allocator = Device::get("CPU").allocator();
  for (const int64_t n : {1, 100, 4097, 2 << 20, 8 << 20}) {
    void* const memory = allocator.alloc(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (n >= (4 << 20) ? 2 << 20 : 64), 0u) << n;
    allocator.free(memory, n);
  }
}

TEST(Allocator, KeepsFreedMemoryBySizeAndSpec) {
  auto& allocator = dynamic_cast<LruAllocator&>(Device::get("CPU:5").allocator());
  allocator.free_cache();
  void* const first = allocator.alloc(12345);
  allocator.free(first, 12345);
  EXPECT_EQ(allocator.kept_bytes(), 12345);
  void* const other = allocator.alloc(12346);
  EXPECT_NE(other, first);
  EXPECT_EQ(allocator.alloc(12345), first);
  EXPECT_EQ(allocator.kept_bytes(), 0);
  allocator.free(other, 12346, {.nolru = true});
  EXPECT_EQ(allocator.kept_bytes(), 0);
  {
    const FlagScope scope("LRU", int64_t{0});
    allocator.free(first, 12345);
    EXPECT_EQ(allocator.kept_bytes(), 0);
  }
  // A failure gives back what is kept, then tries once more.
  allocator.free(allocator.alloc(777), 777);
  EXPECT_EQ(allocator.kept_bytes(), 777);
  EXPECT_THROW(allocator.alloc(int64_t{1} << 60), Error);
  EXPECT_EQ(allocator.kept_bytes(), 0);
  void* const zeroed = allocator.alloc(100, {.zero = true});
  EXPECT_EQ(std::string(static_cast<char*>(zeroed), 100), std::string(100, '\0'));
  allocator.free(zeroed, 100, {.zero = true});
  EXPECT_EQ(allocator.kept_bytes(), 0);
}

TEST(Allocator, WhatIsKeptAddsLittleToTheMostThatWasUsed) {
  auto& allocator = dynamic_cast<LruAllocator&>(Device::get("CPU:6").allocator());
  allocator.free_cache();
  constexpr int64_t kMiB = int64_t{1} << 20;
  allocator.free(allocator.alloc(100 * kMiB), 100 * kMiB);
  EXPECT_EQ(allocator.kept_bytes(), 100 * kMiB);
  void* const less = allocator.alloc(50 * kMiB);  // 150 of 100 + 64
  EXPECT_EQ(allocator.kept_bytes(), 100 * kMiB);
  void* const more = allocator.alloc(90 * kMiB);  // 240 of 140 + 64: the largest block goes
  EXPECT_EQ(allocator.kept_bytes(), 0);
  allocator.free(less, 50 * kMiB);
  allocator.free(more, 90 * kMiB);
  EXPECT_EQ(allocator.kept_bytes(), 140 * kMiB);
  allocator.free(allocator.alloc(91 * kMiB), 91 * kMiB);  // 231 of 140 + 64: the block of 90 makes room
  EXPECT_EQ(allocator.kept_bytes(), 141 * kMiB);
  allocator.free_cache();
}

class BareAllocator : public Allocator {
 public:
  using Allocator::Allocator;

 protected:
  void* do_alloc(int64_t, const BufferSpec&) override { return nullptr; }
  void do_free(void*, int64_t, const BufferSpec&) override {}
};

TEST(Allocator, AMissingHookIsNamed) {
  BareAllocator allocator(Device::get("CPU"));
  EXPECT_EQ(error_of([&] { allocator.copyin(nullptr, nullptr, 1); }), "[device] the allocator of CPU has no 'copyin'");
  EXPECT_EQ(error_of([&] { allocator.offset(nullptr, 1, 1); }), "[device] the allocator of CPU has no 'offset'");
}

TEST(Buffer, IsAllocatedLateAndCounted) {
  const int64_t before = counters().mem_used.load();
  {
    const BufferPtr buffer = Buffer::make("CPU:6", 1000);
    EXPECT_EQ(counters().mem_used.load(), before);
    EXPECT_FALSE(buffer->is_allocated());
    const BufferPtr view = Buffer::view(buffer, 100, 50);
    const BufferPtr inner = Buffer::view(view, 10, 40);
    EXPECT_EQ(inner->base(), buffer);
    EXPECT_EQ(inner->off_bytes(), 110);
    EXPECT_EQ(static_cast<char*>(inner->handle()), static_cast<char*>(buffer->handle()) + 110);
    EXPECT_EQ(counters().mem_used.load(), before + 1000);
    EXPECT_EQ(Device::get("CPU:6").mem_used.load(), 1000);
  }
  EXPECT_EQ(counters().mem_used.load(), before);
  EXPECT_EQ(Device::get("CPU:6").mem_used.load(), 0);
}

TEST(Buffer, AViewKeepsItsBase) {
  BufferPtr view;
  {
    const BufferPtr buffer = Buffer::make("CPU", 10);
    buffer->copyin("0123456789", 10);
    view = Buffer::view(buffer, 3, 4);
  }
  std::string out(4, ' ');
  view->copyout(out.data(), 4);
  EXPECT_EQ(out, "3456");
}

TEST(Buffer, WrongSizes) {
  const BufferPtr buffer = Buffer::make("CPU", 10);
  EXPECT_EQ(error_of([&] { Buffer::view(buffer, 8, 3); }), "[buffer] a view of 3 bytes at 8 reaches past the end of a buffer of 10 bytes");
  EXPECT_EQ(error_of([&] { buffer->copyin("x", 1); }), "[copyin] 1 bytes for a buffer of 10");
  EXPECT_EQ(error_of([] { Buffer::make("CPU", -1); }), "[buffer] -1 bytes on CPU: expected a size that is not negative");
  EXPECT_NE(Buffer::make("CPU", 0)->handle(), nullptr);
}

TEST(Buffer, ExternalMemoryIsUsedAndNotCounted) {
  char memory[] = "external";
  const int64_t before = counters().mem_used.load();
  const BufferPtr buffer = Buffer::make("CPU", 8, {.external_ptr = memory});
  EXPECT_EQ(buffer->handle(), memory);
  buffer->copyin("EXTERNAL", 8);
  EXPECT_STREQ(memory, "EXTERNAL");
  EXPECT_EQ(counters().mem_used.load(), before);
}

TEST(Buffer, CopiesBetweenDevices) {
  const TempFolder folder;
  const std::string path = folder.write("data", "0123456789");
  std::vector<std::string> from = devices_with_memory();
  for (const std::string& source_name : from) {
    for (const std::string& to_name : from) {
      const BufferPtr source = Buffer::make(source_name, 10), to = Buffer::make(to_name + ":1", 10);
      source->copyin("abcdefghij", 10);
      to->copy_from(*source);
      std::string out(10, ' ');
      to->copyout(out.data(), 10);
      EXPECT_EQ(out, "abcdefghij") << source_name << " to " << to_name;
    }
  }
  const BufferPtr file = Buffer::make("DISK:" + path, 10), cpu = Buffer::make("CPU", 4);
  cpu->copy_from(*Buffer::view(file, 2, 4));
  std::string out(4, ' ');
  cpu->copyout(out.data(), 4);
  EXPECT_EQ(out, "2345");
}

TEST(Disk, ReadsFilesAndSaysWhyNot) {
  const TempFolder folder;
  const std::string path = folder.write("data", "0123456789");
  std::string out(10, ' ');
  EXPECT_EQ(error_of([&] { Buffer::make("DISK:" + path + "x", 10)->copyout(out.data(), 10); }), "[disk] " + path + "x: No such file or directory");
  EXPECT_EQ(error_of([&] { Buffer::make("DISK:" + folder.path(), 10)->copyout(out.data(), 10); }),
            "[disk] " + folder.path() + ": it is no regular file");
  const BufferPtr file = Buffer::make("disk:" + path, 10);
  file->copyout(out.data(), 10);
  EXPECT_EQ(out, "0123456789");
  EXPECT_EQ(file->host_pointer(), nullptr);
  std::string longer(11, ' ');
  EXPECT_EQ(error_of([&] { Buffer::make("disk:" + path, 11)->copyout(longer.data(), 11); }),
            "[disk] " + path + ": 11 bytes are asked for, the file has 10");
  // A file that shrinks after it was opened is an error, not a signal.
  folder.write("data", "0123");
  EXPECT_EQ(error_of([&] { file->copyout(out.data(), 10); }), "[disk] " + path + ": it ends at 4, 6 bytes early");
  EXPECT_EQ(error_of([&] { file->copyin("abcdefghij", 10); }), "[disk] " + path + ": it was cut to 4 bytes, 10 are in use");
}

TEST(Disk, WritesWhereItIsAsked) {
  const TempFolder folder;
  const std::string path = folder.path() + "/new";
  const BufferPtr file = Buffer::make("DISK:" + path, 10);
  Buffer::view(file, 2, 4)->copyin("abcd", 4);  // makes the file
  std::string out(10, ' ');
  file->copyout(out.data(), 10);
  EXPECT_EQ(out, std::string("\0\0abcd\0\0\0\0", 10));
  std::rename(path.c_str(), (path + "er").c_str());
  Buffer::view(file, 0, 1)->copyin("x", 1);  // the file, not its name
  EXPECT_EQ(error_of([&] { Buffer::make("DISK:" + path, 1)->copyout(out.data(), 1); }), "[disk] " + path + ": No such file or directory");
  Buffer::make("DISK:" + path + "er", 10)->copyout(out.data(), 10);
  EXPECT_EQ(out.substr(0, 4), std::string("x\0ab", 4));
}

TEST(Null, RunsNothingAndHoldsNothing) {
  const BufferPtr buffer = Buffer::make("NULL", int64_t{1} << 50);
  EXPECT_NE(buffer->handle(), nullptr);
  buffer->copyin(nullptr, int64_t{1} << 50);
  const BufferPtr small = Buffer::make("NULL", 4);
  char out[4] = {1, 2, 3, 4};
  EXPECT_EQ(error_of([&] { small->copyout(out, 4); }), "[copyout] NULL holds no data; NULL_ALLOW_COPYOUT=1 reads zeros instead");
  const FlagScope scope("NULL_ALLOW_COPYOUT", int64_t{1});
  small->copyout(out, 4);
  EXPECT_EQ(std::string(out, 4), std::string(4, '\0'));
  EXPECT_EQ(code_path("NULL").compiler->compile("k", "text"), "text");
  EXPECT_GT(Device::get("NULL").load({.name = "k"})->run(nullptr, nullptr, {}, true), 0);
}

TEST(DeviceTable, SaysWhatWorksAndWhy) {
  const std::string table = device_table(false);
  EXPECT_NE(table.find("CPU                PASS    the cores of this machine; "), std::string::npos) << table;
  EXPECT_NE(table.find(" and runs\n"), std::string::npos) << table;
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  const FlagScope scope("CC", std::string("no-such-compiler"));
  EXPECT_NE(device_table(true).find("FAIL"), std::string::npos);
  EXPECT_NE(device_table(false).find("[c] CC=no-such-compiler is not in PATH"), std::string::npos);
}

TEST(Ref, RunsTheTextOfAKernel) {
  const char* const text =
      "%0 = PARAM int32 [0, 1]\n%1 = CONST weakint 0\n%2 = INDEX int32 (%0, %1)\n%3 = VARIABLE weakint {\"n\", 0, 9}\n"
      "%4 = CAST int32 (%3)\n%5 = STORE void (%2, %4)\n%6 = SINK void (%5) {\"k\"}\n";
  const auto program = Device::get("REF").load({.library = text, .name = "k", .n_buffers = 1, .n_variables = 1});
  int32_t out = 0;
  void* const buffers[] = {&out};
  const int64_t n = 7;
  EXPECT_GT(program->run(buffers, &n, {}, true), 0);
  EXPECT_EQ(out, 7);
}

}  // namespace
}  // namespace whit
