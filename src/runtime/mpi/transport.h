// Moving bytes between the processes of one job. An engine (MPI here) is one implementation of Transport.
//
// Every process runs the same program, so that each knows of every transfer, and all of them in the same order. Messages
// between two processes carry their number, size, and the call of a schedule that they belong to: a process whose program
// went another way is told so.
#pragma once
#include <cstdint>
#include <memory>

namespace whit {

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Returns when `data` may be changed. `origin` is the copy_origin() of the copy. errors: Runtime
  virtual void send(int to, const void* data, int64_t n_bytes, uint64_t origin = 0) = 0;
  /// Returns when `data` is filled.
  /// errors: Runtime when nothing comes in MPI_TIMEOUT seconds, or the sender sent another thing
  virtual void receive(int from, void* data, int64_t n_bytes, uint64_t origin = 0) = 0;
  /// Returns when all sends have left and every process is here: called at exit, the last use.
  /// errors: Runtime when another process ends too early or asks for less than was sent
  virtual void finish() = 0;
  /// Ends the processes of the job.
  [[noreturn]] virtual void abort(int exit_code) = 0;
  /// `data` of process `root` goes to all.
  void broadcast(int root, void* data, int64_t n_bytes, uint64_t origin = 0) {
    if (rank() != root) return receive(root, data, n_bytes, origin);
    for (int to = 0; to < size(); ++to)
      if (to != root) send(to, data, n_bytes, origin);
  }
};

/// The transport of this job, started at the first call; null in a program that mpirun has not started.
/// errors: Device when the engine's library cannot be loaded or does not start
Transport* transport();

}  // namespace whit
