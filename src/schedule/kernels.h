// From nests to kernels: fusion of nests, hazards, order, and the final SINKs.
#pragma once
#include <cstdint>
#include <vector>

#include "schedule/rangeify.h"

namespace whit::sched {

/// A kernel: nests that run in one launch. Or one transfer.
struct Kernel {
  std::vector<Nest> nests{};
  UOp sink{};                   ///< null for a transfer
  std::vector<int32_t> args{};  ///< memory (numbers of virtual buffers) by PARAM slot; a transfer: to, from
  uint16_t device() const { return nests[0].device; }
  bool is_copy() const { return nests[0].is_copy(); }
};

/// Reads and writes between kernels.
struct Dependencies {
  Numbered<std::vector<int32_t>> after{};    ///< by kernel: kernels that must run after it, each once
  Numbered<int32_t> writer{};                ///< by virtual buffer: the kernel that makes it, or -1
  Numbered<std::vector<int32_t>> readers{};  ///< by virtual buffer
};
Dependencies find_dependencies(const NestGraph& graph, const std::vector<Kernel>& kernels);

/// A store that would overwrite what its own value still reads: the nodes that must be computed into temporaries first.
std::vector<int32_t> find_hazards(const NestGraph& graph);

/// Each nest a kernel.
std::vector<Kernel> single_kernels(NestGraph& graph);
/// Joins kernels: a nest with the one that makes what it reads element by element, nests over equal loops, small
/// independent nests. Stores that nobody reads any more go.
void fuse_kernels(const NestGraph& graph, std::vector<Kernel>& kernels, const RangeifyLimits& limits);

/// An order that respects all dependencies: the given one, or one with a lower peak of live temporaries. When there is none: the states (nodes) that are read
/// after their memory must be overwritten go to `copied`, and the result is empty.
std::vector<int32_t> order_kernels(const NestGraph& graph, const std::vector<Kernel>& kernels, std::vector<int32_t>& copied);

/// Makes sink and args: outputs first, then inputs as they are used; ranges numbered from 0.
void finish_kernel(const NestGraph& graph, Kernel& kernel);

}  // namespace whit::sched
