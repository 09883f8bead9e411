// The devices FUZZ, FUZZ:1 ..: kernels of this process that are compiled when they first run, those of the C compiler all in one
// module, or not at all: then their LINEAR is interpreted. One ordinal for each way, as executables are kept by device.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "ir/uop.h"

namespace whit::fuzz {

enum class Via : uint8_t { Linear, Llvm, C };  ///< who computes a kernel: tests/interpret_linear.h, or a compiler

/// How kernels of a FUZZ device are made from now on.
struct Way {
  Via via = Via::Linear;
  bool random = false;  ///< with random answers to what the optimiser asks, from `seed` on
  uint64_t seed = 0;
};

/// The device of a way, set up for what is compiled next.
std::string fuzz_device(const Way& way);

/// Compiles the kernels of `roots` as far as source text, for fuzz_device(way): what the C compiler gets next holds them all.
/// False when one is so long that it is interpreted instead.
bool prepare(std::span<const UOp> roots, const std::string& device);

}  // namespace whit::fuzz
