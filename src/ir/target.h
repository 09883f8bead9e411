// What code generation knows about the machine that will run a kernel.
#pragma once
#include <cstdint>
#include <string>

namespace whit {

struct Target {
  std::string renderer = "llvm";  ///< "llvm", "c", ...
  std::string arch;               ///< "x86_64", "aarch64"; informative
  int vector_bytes = 16;          ///< bytes of a vector register
  int n_vector_registers = 16;
  bool has_fma = true;                             ///< a multiply-add that rounds once is one instruction
  bool dots_bfloat16 = false, dots_bytes = false;  ///< so is one of what 32 bits pack (MULACC of uint32 to float32, int32)
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10, l3_bytes = 8 << 20;
  int n_cores = 1;
};

/// The machine that this process runs on, found once.
const Target& host_target();

}  // namespace whit
