#pragma once
// Sums and maxima over a warp or a block, for all its threads, in a fixed order: results don't change between runs.
#include "moe/tensor/cuda/element.cuh"

namespace moe::cuda {

template <class A>
__device__ inline A warp_sum(A v) {
  for (int by = kWarpSize / 2; by > 0; by /= 2) v += __shfl_xor_sync(kAllLanes, v, by);
  return v;
}

template <class A>
__device__ inline A warp_max(A v) {
  for (int by = kWarpSize / 2; by > 0; by /= 2) {
    const A other = __shfl_xor_sync(kAllLanes, v, by);
    v = v < other ? other : v;
  }
  return v;
}

/// Returns the sum over the block; every thread of the block calls it.
template <class A>
__device__ inline A block_sum(A v) {
  __shared__ A parts[kThreads / kWarpSize];
  v = warp_sum(v);
  __syncthreads();  // `parts` may still be read by the call before
  if (lane_index() == 0) parts[threadIdx.x / kWarpSize] = v;
  __syncthreads();
  A sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarpSize; ++warp) sum += parts[warp];
  return sum;
}

}  // namespace moe::cuda
