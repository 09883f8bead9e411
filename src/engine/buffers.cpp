#include "engine/buffers.h"

#include <algorithm>

#include "base/flags.h"
#include "base/lists.h"
#include "ir/build.h"
#include "schedule/multi.h"

namespace whit::engine {

BufferPtr make_buffer(DType dtype, int64_t n_elems, std::string_view device, const BufferSpec& spec) {
  const int64_t limit = flag::MAX_BUFFER_SIZE();
  WHIT_USER(limit <= 0 || n_elems <= limit, Runtime, "[buffer] {} elements on {}; MAX_BUFFER_SIZE allows {}", n_elems, device, limit);
  return Buffer::make(std::string(device), n_elems * n_bytes(dtype), spec);
}

BufferPtr buffer_of(const UOp& b) {
  WHIT_CHECK(b.op() == Op::Buffer && !is_multi(b->device), "memory of a {} on {}", b.op(), device_name(b->device));
  WHIT_USER(b.arg().int_at(0) > 0, Jit, "[realize] the value depends on an argument of a function that is being traced, which has no data");
  if (auto p = payload(b)) return std::static_pointer_cast<Buffer>(p);
  auto memory = make_buffer(b.dtype(), b.shape()[0], device_name(b->device));
  set_payload(b, memory);
  return memory;
}

namespace {
NodeList float_buffers(const UOp& of) {
  NodeList found;
  for (const Node* n : toposort(of, [](const Node* k) { return k->op != Op::Detach; }))
    if (n->op == Op::Buffer && is_float(n->dtype)) found.push_back(n);
  return found;
}
// A SHRINK that says how much of an axis counts and leaves all in its place.
bool is_sized(const Node* n) {
  if (n->op != Op::Shrink || !std::equal(n->shape.begin(), n->shape.end(), n->src()[0]->shape.begin())) return false;
  for (size_t a = 0; a < n->shape.size(); ++a)
    if (box_of(n, a).first != Sint(0)) return false;
  return true;
}
}  // namespace

std::vector<int64_t> origins_below(const UOp& of) {
  std::vector<int64_t> ids;
  for (const Node* n : float_buffers(of))
    if (const auto memory = payload(buffer_parts(UOp(n))[0])) {
      const std::vector<int64_t>& older = std::static_pointer_cast<Buffer>(memory)->made_from;
      ids.insert(ids.end(), older.begin(), older.end());
    }
  sort_unique(ids);
  return ids;
}

void remember_origin(const UOp& b, const UOp& of) {
  constexpr size_t kMost = 4096;  // parameters are older than what is made in a loop
  std::vector<int64_t> ids = origins_below(of);
  for (const Node* n : float_buffers(of)) ids.push_back(n->arg.int_at(0));
  sort_unique(ids);
  if (ids.size() > kMost) ids.resize(kMost);
  buffer_of(buffer_parts(b)[0])->made_from = std::move(ids);
}

UOp buffer_node(DType dtype, int64_t n_elems, BufferPtr memory) {
  WHIT_CHECK(memory->n_bytes() == n_elems * n_bytes(dtype), "{} bytes for {} elements of {}", memory->n_bytes(), n_elems, dtype);
  UOp b = buffer(dtype, n_elems, memory->device_name());
  set_payload(b, std::move(memory));
  return b;
}

UOp same_memory(const UOp& b) {
  return join_buffers(mapped(buffer_parts(b), [&](const UOp& part) { return buffer_node(b.dtype(), b.shape()[0], buffer_of(part)); }));
}

UOp buffer_from_host(DType dtype, const void* data, int64_t n_elems, std::string_view device) {
  auto memory = make_buffer(dtype, n_elems, device);
  if (n_elems > 0) memory->copyin(data, memory->n_bytes());
  return buffer_node(dtype, n_elems, std::move(memory));
}

UOp buffer_below(const UOp& view) {
  const Node* n = view.node();
  while (is_movement(n->op) && n->op != Op::Stack) n = n->src()[0];
  return n->op == Op::Buffer ? UOp(n) : UOp();
}

bool is_view(const Node* n) { return (is_movement(n->op) && n->op != Op::Stack) || n->op == Op::Detach || n->op == Op::ContiguousBackward; }

bool is_buffer_view(const UOp& u) { return memory_of(u.node())->op == Op::Buffer; }
const Node* memory_of(const Node* n) {
  while (n->op == Op::Reshape || n->op == Op::Unshard || is_sized(n)) n = n->src()[0];
  return n;
}

std::vector<std::byte> read_bytes(const UOp& view) {
  WHIT_CHECK(is_buffer_view(view), "reading a {} that is not realised", view.op());
  const UOp b = buffer_below(view);
  std::vector<std::byte> out(static_cast<size_t>(b.shape()[0] * n_bytes(b.dtype())));
  if (!out.empty()) buffer_of(b)->copyout(out.data(), static_cast<int64_t>(out.size()));
  return out;
}

}  // namespace whit::engine
