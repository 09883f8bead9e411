// Calls bound to memory: what a run executes and a capture records.
#pragma once
#include <vector>

#include "base/profile.h"
#include "engine/compile.h"
#include "runtime/buffer.h"

namespace whit::engine {

/// A place in memory: a Buffer, or bytes of an arena.
struct BoundArg {
  BufferPtr buffer{};
  int64_t offset = -1;  ///< in bytes of the arena `buffer`; -1: the whole buffer
  int64_t n_bytes = 0;
  bool is_written = false;
  int32_t number = -1;  ///< tells the temporaries of an arena apart
  void* handle() const;
};

struct BoundCall {
  ExecutablePtr program{};  ///< null: a copy of args[1] to args[0]
  std::vector<BoundArg> args{};
  std::vector<int64_t> values{};  ///< of the program's variables
  uint64_t origin = 0;            ///< of a copy: copy_origin()
};

/// True when every call is waited for and timed: DEBUG=2, PROFILE=1.
inline bool is_timed() { return flag::DEBUG() >= 2 || is_profiling(); }
/// True when calls may go to queues, so that run_call() knows in which order.
bool is_queued(Device& device);
/// Runs one call; with `may_queue`, which is for graphs over several devices, puts it into its device's queue if that has one.
/// `replayed` only changes how DEBUG=2 prints it.
void run_call(const BoundCall& call, bool replayed = false, bool may_queue = false);
/// Runs a kernel on handles, with counters and the DEBUG=2 line.
void run_program(const Executable& program, void* const* handles, const int64_t* values, bool replayed);
/// The part of an arena, or the buffer itself.
BufferPtr as_buffer(const BoundArg& arg);

}  // namespace whit::engine
