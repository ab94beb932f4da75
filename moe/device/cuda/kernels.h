#pragma once
// The few kernels that streams themselves need. Each function returns once its kernel is launched and throws
// RankFailure if that fails.
#include <cstdint>
#include <cuda_runtime.h>
#include <span>

#include "moe/device/moves.h"

namespace moe::cuda {

/// Loads the kernels below now. Otherwise CUDA loads a kernel at its first launch, and may wait for all streams to do
/// so.
void load_kernels();

/// Launches a kernel of one thread that does nothing.
void launch_nothing(cudaStream_t stream);
/// Writes the GPU's global timer, nanoseconds, to device memory.
void launch_timestamp(uint64_t* at, cudaStream_t stream);
/// Spins until the global timer reads *since + at_least_ns. If that time is past at the start, adds 1 to *overruns
/// (mapped host memory, or null) and ends.
void launch_hold(const uint64_t* since, uint64_t at_least_ns, uint64_t* overruns, cudaStream_t stream);
/// Does copies, all in memory that the GPU can access.
void launch_copies(std::span<const Copy> copies, cudaStream_t stream);
/// Sums up to kMaxSummands operands.
void launch_sum(const Sum& sum, cudaStream_t stream);

inline constexpr int kMaxSummands = 64;

}  // namespace moe::cuda
