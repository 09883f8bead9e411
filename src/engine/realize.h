// realize: the values of tensor graphs, computed.
//
// How it works. (1) What is in memory already is returned as it is. (2) Stores are checked against readers of older
// states (stores.h): readers that live outside of this graph are computed first, or keep a copy of the old memory.
// (3) The graph is scheduled (schedule/schedule.h), missing kernels are compiled in parallel, memory is bound, and the
// calls run in order; while a capture is open on this thread (jit.h) they are recorded too. (4) The buffer that holds a
// value is recorded beside its node, so graphs that contain it read the buffer.
//
// Requirements: (1) the value of every node that anybody holds is what program order says; (2) errors leave storages and
// records as they were, unless the device itself failed in the middle; (3) one realize runs at a time.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "ir/interpret.h"
#include "ir/uop.h"
#include "schedule/schedule.h"

namespace whit::engine {

/// For each root a view of a BUFFER with its value: RESHAPE over BUFFER. A root that is such a view comes back as it is;
/// a root AFTER(x, STORE..) gives the view x of its buffer once the store is done. Roots have strong dtypes.
/// `variables` gives VARIABLEs their values.
/// errors: Compile, Memory, Device; Runtime for kernels over several devices
std::vector<UOp> realize(std::span<const UOp> roots, const VariableValues& variables = {});
UOp realize(const UOp& root, const VariableValues& variables = {});

/// While it lives, no run of this thread has more bytes of temporaries at once: values are computed again instead. 0: any.
/// errors of realize: Memory when that cannot be, with the least there can be
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t n_bytes);
  ~MemoryBudget();
  MemoryBudget& operator=(MemoryBudget&&) = delete;  // nor is it copied

 private:
  const int64_t before_;
};

/// The schedule that realize would run now. Opens no device, changes nothing.
BoundSchedule schedule(std::span<const UOp> roots);

/// The id of the device of graphs that name none: flag DEV, or what default_device() finds.
uint16_t default_device_id();

/// A kernel as codegen gets it: name, loops, stores (DEBUG=5 prints it).
std::string describe(const Schedule& schedule);

}  // namespace whit::engine
