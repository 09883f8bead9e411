// What every device with memory must do, whoever wrote it: test_device asks it of all devices that open, and
// `whit.device.check_device` of one that Python registered.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/allocator.h"
#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "runtime/device.h"

namespace whit {

/// The contracts that a device breaks, one text each; none when all is well. `name`: a kind without an ordinal.
inline std::vector<std::string> broken_contracts(const std::string& name) {
  std::vector<std::string> broken;
  const auto expect = [&](bool ok, const std::string& what) {
    if (!ok) broken.push_back(fmt::format("{}: {}", name, what));
  };
  const auto section = [&](const char* what, auto&& body) {
    try {
      body();
    } catch (const std::exception& e) {
      expect(false, fmt::format("{}: {}", what, e.what()));
    }
  };
  const auto error_of = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  const auto pattern = [](int64_t n) {
    std::string bytes(static_cast<size_t>(n), ' ');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
    return bytes;
  };

  section("a device is opened once", [&] {
    Device& device = Device::get(name);
    expect(&device == &Device::get(name + ":0"), "is opened once, by any spelling");
    expect(device.name() == name && device.ordinal() == 0, "has the name by which it is opened");
    device.synchronize();
  });
  section("sizes that cannot be", [&] {
    Allocator& allocator = Device::get(name).allocator();
    for (const int64_t n : {int64_t{0}, int64_t{-5}})
      expect(error_of([&] { allocator.alloc(n); }) == fmt::format("[alloc] {} bytes on {}: expected a positive size", n, name),
             fmt::format("refuses {} bytes", n));
    expect(error_of([&] { allocator.alloc(int64_t{1} << 62); }).starts_with("Allocation of 4.61 EB failed on " + name),
           "says when there is no memory");
  });
  section("copies", [&] {
    for (const int64_t n : {1, 1000, 3 << 20, 5 << 20}) {
      Allocator& allocator = Device::get(name).allocator();
      void* const memory = allocator.alloc(n);
      const std::string in = pattern(n);
      std::string out(in.size(), ' ');
      allocator.copyin(memory, in.data(), n);
      allocator.copyout(out.data(), memory, n);
      expect(in == out, fmt::format("reads {} bytes as they were written", n));
      if (const int64_t half = n / 2; half > 0) {
        void* const upper = allocator.offset(memory, n - half, half);
        out.assign(static_cast<size_t>(n - half), ' ');
        allocator.copyout(out.data(), upper, n - half);
        expect(in.substr(static_cast<size_t>(half)) == out, fmt::format("reads {} bytes from {} on", n - half, half));
        const std::string other(static_cast<size_t>(n - half), '#');
        allocator.copyin(upper, other.data(), n - half);
        out.assign(in.size(), ' ');
        allocator.copyout(out.data(), memory, n);
        expect(out == in.substr(0, static_cast<size_t>(half)) + other, "a write at an offset is seen from the start");
      }
      allocator.free(memory, n);
    }
  });
  section("buffers", [&] {
    const int64_t before = counters().mem_used.load(), own = Device::get(name).mem_used.load();
    {
      const BufferPtr buffer = Buffer::make(name, 1000);
      expect(!buffer->is_allocated() && counters().mem_used.load() == before, "allocates at the first use");
      buffer->copyin(pattern(1000).data(), 1000);
      expect(counters().mem_used.load() == before + 1000 && Device::get(name).mem_used.load() == own + 1000, "counts what is allocated");
      const BufferPtr view = Buffer::view(Buffer::view(buffer, 100, 50), 10, 40);
      std::string out(40, ' ');
      view->copyout(out.data(), 40);
      expect(out == pattern(1000).substr(110, 40), "a view of a view begins where it says");
      if (auto* host = static_cast<const char*>(buffer->host_pointer()))
        expect(std::equal(out.begin(), out.end(), host + 110), "the host's pointer shows the memory");
    }
    expect(counters().mem_used.load() == before && Device::get(name).mem_used.load() == own, "gives memory back");
  });
  section("copies between devices", [&] {
    std::vector<std::string> others{"CPU", "REF", name};
    if (must_find_kind(name).count() > 1) others.push_back(name + ":1");
    for (const std::string& other : others) {
      const BufferPtr here = Buffer::make(name, 10), there = Buffer::make(other, 10), back = Buffer::make(name, 10);
      here->copyin("abcdefghij", 10);
      there->copy_from(*here);
      back->copy_from(*there);
      std::string out(10, ' ');
      back->copyout(out.data(), 10);
      expect(out == "abcdefghij", fmt::format("to {} and back", other));
    }
  });
  return broken;
}

}  // namespace whit
