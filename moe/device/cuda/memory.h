#pragma once
// A GPU's memory for tensors and for those who compute with them. Includes no CUDA header.
#include <memory>

#include "moe/device/memory.h"

namespace moe::cuda {

/// Returns a block of the calling thread's GPU, which holds anything at first; null where the GPU has no more.
/// Releasing it waits for the GPU, so it may end while kernels that use it are queued.
Memory try_allocate(int64_t bytes);

/// Returns the memory space of the GPU that is the calling thread's now, whatever thread allocates later.
std::unique_ptr<MemorySpace> make_memory_space();

}  // namespace moe::cuda
