// One number for all that a replay must look out for: while it stays the same, what was found by looking still holds.
#pragma once
#include <atomic>
#include <cstdint>

namespace whit {

/// Grows when a tensor begins to wait (to be computed, or for a store), a BUFFER that exists gets other memory, memory changes
/// that somebody remembers or is remembered (Buffer::n_changes), a flag is set, or there is a queue more. Who remembers it reads
/// it before looking.
alignas(64) inline constinit std::atomic<uint64_t> generation{0};
inline void next_generation() { generation.fetch_add(1, std::memory_order_release); }

}  // namespace whit
