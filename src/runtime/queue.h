// Work that is done later: each device that has a queue does what it is given in order, beside other devices and beside the
// thread that gives it.
//
// Requirements: (1) work begins when all earlier work is done that writes what it touches or touches what it writes, on
// whatever device; (2) an error ends the work itself and all later work that builds on it, surfaces at the next wait with
// its origin, and at each read of what was not computed; (3) what work refers to lives until it is done; (4) in the child
// of a fork, where the threads are missing, work is done at once.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace whit {

class Buffer;
class Device;

/// The queue of one device, with threads of its own: they start with the first work.
class Queue {
 public:
  explicit Queue(std::string device);
  ~Queue();
  Queue& operator=(Queue&&) = delete;  // nor is it copied
  /// Waits for all work. errors: the first that no wait has raised yet
  void wait();
  /// Ends the threads when all work is done. Errors that nobody asked for are dropped.
  void stop();
  /// False in the child of a fork.
  bool is_alive() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// A use of bytes [first, last) of a buffer that is no view, by queued work.
struct QueuedUse {
  Queue* queue;
  uint64_t number;  ///< of the work in its queue
  bool is_write;
  int64_t first, last;
};
/// Bytes at `offset` of a buffer; n_bytes -1: all from there.
struct BufferUse {
  Buffer* buffer;
  bool is_written;
  int64_t offset = 0, n_bytes = -1;
};

/// Does `work` when what it uses is ready: in the device's queue, or now where there is none. `name` is its origin in errors.
/// errors: of work that is done now; else those of wait_for()
void enqueue(Device& device, std::span<const BufferUse> uses, const std::string& name, std::function<void()> work);
/// True when some queue has a thread.
bool has_queues();
/// Waits for what writes a buffer; with `readers` for what reads it too, and a failed write is forgiven, as another follows.
/// errors: Runtime (or the kind of the cause) when the buffer was not computed
void wait_for(Buffer& buffer, bool readers);

}  // namespace whit
