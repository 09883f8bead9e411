#include "engine/run.h"

#include "base/flags.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/queue.h"

namespace whit::engine {

void* BoundArg::handle() const {
  void* const h = buffer->handle();
  return offset < 0 ? h : buffer->device().allocator().offset(h, n_bytes, offset);
}

BufferPtr as_buffer(const BoundArg& arg) { return arg.offset < 0 ? arg.buffer : Buffer::view(arg.buffer, arg.offset, arg.n_bytes); }

void run_program(const Executable& program, void* const* handles, const int64_t* values, bool replayed) {
  if (!is_timed()) [[likely]] {
    program.run(handles, values);
    GlobalCounters::add_kernels(1, program.n_ops, program.n_bytes, 0);
    return;
  }
  Device& device = Device::get(program.device);
  device.synchronize();
  const int64_t start = os::now_ns();
  program.run(handles, values);
  device.synchronize();
  const int64_t t_ns = std::max<int64_t>(1, os::now_ns() - start);
  const GlobalCounters& c = counters();
  c.add_kernels(1, program.n_ops, program.n_bytes, t_ns);
  if (is_profiling()) add_to_timeline({"kernel", program.name, program.device, 0, start, start + t_ns});
  if (flag::DEBUG() < 2) return;
  const double t = static_cast<double>(t_ns);
  const bool colour = flag::NO_COLOR() == 0;
  const char* on = colour ? replayed ? "\x1b[35m" : "\x1b[32m" : "";
  log_line(fmt::format("{}*** {:<6} {:4}{} {:<40} arg {:3} mem {:6.2f} GB tm {:9.2f}us/{:9.2f}ms ({:8.2f} GFLOPS {:7.2f} GB/s)", on, program.device,
                       c.kernel_count.load(), colour ? "\x1b[0m" : "", program.name, program.object.n_buffers,
                       static_cast<double>(c.mem_used.load()) * 1e-9, t * 1e-3, c.time_sum_s() * 1e3, static_cast<double>(program.n_ops) / t,
                       static_cast<double>(program.n_bytes) / t));
}

namespace {
std::vector<BufferUse> uses_of(const BoundCall& call) {
  std::vector<BufferUse> uses;
  for (const BoundArg& a : call.args)
    uses.push_back({a.buffer.get(), a.is_written || (!call.program && uses.empty()), std::max<int64_t>(0, a.offset), a.n_bytes});
  return uses;
}

void copy(const BoundCall& call) {
  copy_origin() = call.origin;
  as_buffer(call.args[0])->copy_from(*as_buffer(call.args[1]));
  copy_origin() = 0;
}
}  // namespace

bool is_queued(Device& device) { return device.queue() || has_queues(); }

void run_call(const BoundCall& call, bool replayed, bool may_queue) {
  os::poll_interrupt();
  for (const BoundArg& a : call.args)
    if (a.is_written) a.buffer->count_change();
  if (Device& device = call.args[0].buffer->device(); is_queued(device)) {
    // What reads a file is done now: its errors are told where it was asked for.
    if ((may_queue || flag::ASYNC() >= 2) && !is_timed() && (call.program || call.args[1].buffer->device().queue())) {
      if (call.program) GlobalCounters::add_kernels(1, call.program->n_ops, call.program->n_bytes, 0);
      return enqueue(device, uses_of(call), call.program ? call.program->name : "copy", [call] {
        if (!call.program) return copy(call);
        SmallVec<void*, 16> handles;
        for (const BoundArg& a : call.args) handles.push_back(a.handle());
        call.program->run(handles.data(), call.values.data());
      });
    }
    for (const BufferUse& use : uses_of(call)) wait_for(*use.buffer, use.is_written);
  }
  if (!call.program) {
    if (!is_timed()) return copy(call);
    const BufferPtr to = as_buffer(call.args[0]), from = as_buffer(call.args[1]);
    const int64_t start = os::now_ns();
    copy(call);
    to->device().synchronize();
    const int64_t t_ns = std::max<int64_t>(1, os::now_ns() - start);
    GlobalCounters::add_kernels(0, 0, 0, t_ns);
    const std::string what = fmt::format("copy {} bytes from {}", to->n_bytes(), from->device_name());
    if (is_profiling()) add_to_timeline({"copy", what, to->device_name(), 0, start, start + t_ns});
    if (flag::DEBUG() >= 2)
      log_line(fmt::format("*** {:<6} {:<45} tm {:9.2f}us/{:9.2f}ms", to->device_name(), what, static_cast<double>(t_ns) * 1e-3,
                           counters().time_sum_s() * 1e3));
    return;
  }
  SmallVec<void*, 16> handles;
  for (const BoundArg& a : call.args) handles.push_back(a.handle());
  run_program(*call.program, handles.data(), call.values.data(), replayed);
}

}  // namespace whit::engine
