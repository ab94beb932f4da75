#pragma once
// GPU memory for tensors and for the code that computes with them. Includes no CUDA header.
#include <memory>

#include "moe/device/memory.h"

namespace moe::cuda {

/// Returns a block of the calling thread's GPU, with undefined content; null if the GPU has no memory left. Releasing
/// it waits for the GPU, so it may be released while kernels that use it are queued.
Memory try_allocate(int64_t bytes);

/// Returns the memory space of the calling thread's current GPU, whatever thread allocates later.
std::unique_ptr<MemorySpace> make_memory_space();

}  // namespace moe::cuda
