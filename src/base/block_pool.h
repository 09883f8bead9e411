// Memory for many small objects of one size, made in one thread and dropped in any.
//
// Each thread has a list of free blocks, so that the usual case takes no lock. A list that grows too long hands a batch
// to the pool of the process, where a thread without blocks takes one; so a thread that only makes and one that only
// drops feed each other. Memory is never given back to the system: what a graph needed once, the next one will need.
#pragma once
#include <cstddef>

namespace whit::block_pool {

inline constexpr size_t kBlockBytes = 128;  ///< of each block; blocks are aligned to 64
inline constexpr size_t kBlockAlign = 64;

void* allocate();
void release(void* block);

}  // namespace whit::block_pool
