// BUFFER nodes and the memory that they stand for.
#pragma once
#include <string_view>
#include <vector>

#include "ir/uop.h"
#include "runtime/buffer.h"

namespace whit::engine {

/// Memory for elements, not yet allocated. errors: Runtime when there are more than the flag MAX_BUFFER_SIZE allows
BufferPtr make_buffer(DType dtype, int64_t n_elems, std::string_view device, const BufferSpec& spec = {});
/// The memory of a BUFFER node; made, not yet allocated, at the first call.
BufferPtr buffer_of(const UOp& buffer_node);
/// The same for who does not keep it, without a lock.
inline Buffer* buffer_at(const UOp& buffer_node) {
  void* const known = payload_address(buffer_node);
  return known ? static_cast<Buffer*>(known) : buffer_of(buffer_node).get();
}
/// Remembers in the memory of `buffer_node` which floats the value `of` was computed from, so that a gradient that is asked for too
/// late can say so. DETACH hides what is below it.
void remember_origin(const UOp& buffer_node, const UOp& of);
/// Ids, in order, of the float memory that BUFFERs which `of` reads were computed from.
std::vector<int64_t> origins_below(const UOp& of);
/// A fresh BUFFER node over memory that exists: the number of bytes must be that of the elements.
UOp buffer_node(DType dtype, int64_t n_elems, BufferPtr memory);
/// A fresh BUFFER node over the memory of another one, on as many devices.
UOp same_memory(const UOp& buffer_node);
/// A fresh BUFFER node, shape (n), with a copy of host data.
UOp buffer_from_host(DType dtype, const void* data, int64_t n_elems, std::string_view device);
template <class T> UOp buffer_from_host(DType dtype, const std::vector<T>& data, std::string_view device) {
  return buffer_from_host(dtype, data.data(), static_cast<int64_t>(data.size()), device);
}
/// The elements of a view of a BUFFER (RESHAPEs over it) of one device, or of the BUFFER itself, as bytes. Waits for the device.
std::vector<std::byte> read_bytes(const UOp& view);

/// The BUFFER below a chain of movement ops, or null when something else is below.
UOp buffer_below(const UOp& view);
/// True for a BUFFER, maybe below RESHAPEs, UNSHARDs and SHRINKs that say how much of a symbolic axis counts: a value that
/// needs no computing.
bool is_buffer_view(const UOp& u);
/// True for movement ops of one source, and for those that only pass a value through.
bool is_view(const Node* n);
/// What is below RESHAPEs, UNSHARDs and such SHRINKs.
const Node* memory_of(const Node* n);

}  // namespace whit::engine
