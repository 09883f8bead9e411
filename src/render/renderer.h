// Renderers: a LINEAR program (docs/ir.md, section 4) as source text.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/target.h"
#include "ir/uop.h"
#include "rules/decompose.h"

namespace whit {

struct Renderer {
  std::string name;  ///< "llvm": LLVM IR text; "c": C for clang or gcc
  Caps caps;         ///< what decompose has to leave
  /// The source of `void KERNEL_NAME(void* const* buffers, const int64_t* variables, void* scratch, int64_t first,
  /// int64_t last)`. `program` is a PROGRAM or its LINEAR. Equal programs give equal texts.
  /// errors: Internal, for a program that is not as docs/ir.md says
  std::function<std::string(const UOp& program, std::string_view kernel_name, const Target& target)> render;
  /// False: kernels come as they are scheduled, one loop a range and no value with lanes.
  bool has_lanes = true;
};

/// Adds a renderer for the life of the process. errors: Value when there is one of that name
void register_renderer(Renderer renderer);
/// Ops, arithmetic and conversions that every CPU has: what "llvm" and "c" say.
Caps cpu_caps();

/// For a renderer of a statement a node: the texts of all nodes of a PROGRAM, by its name ("v7") and what its sources are
/// called, at least three (empty past the last). A CONST is its number, and has no statement.
std::string render_statements(const UOp& program,
                              const std::function<std::string(const Node* n, const std::string& name, std::span<const std::string> src)>& statement);

/// errors: Key, naming the renderers that there are
const Renderer& renderer_by_name(std::string_view name);
std::vector<std::string> renderer_names();

/// What the caller of a kernel has to know, of a PROGRAM or LINEAR.
struct KernelSignature {
  struct Buffer {
    int64_t slot;
    DType dtype;
    int64_t n_elems;
    bool is_read, is_written;
  };
  std::vector<Buffer> buffers;         ///< ascending by slot
  std::vector<std::string> variables;  ///< in the order in which the kernel reads them: by name
  int64_t scratch_bytes = 0;           ///< of each thread; starts at a multiple of 64
  int64_t n_global = 1;                ///< the launch space is [0, n_global)
  std::vector<int64_t> extents;        ///< of the GLOBAL ranges, which make it up; without one the kernel is one call of [0, 1)
};
KernelSignature signature_of(const UOp& program);

}  // namespace whit
