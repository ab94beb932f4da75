#pragma once
// Sums and maxima over a warp or a block, for all its threads, in a fixed order, so results don't change between runs.
#include "moe/tensor/cuda/element.cuh"

namespace moe::cuda {

struct Plus {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a + b;
  }
};
struct Maximum {
  template <class A>
  __device__ A operator()(A a, A b) const {
    return a < b ? b : a;
  }
};

template <class A, class Op>
__device__ inline A warp_reduce(A v, Op op) {
  for (int by = kWarpSize / 2; by > 0; by /= 2) v = op(v, __shfl_xor_sync(kAllLanes, v, by));
  return v;
}
template <class A>
__device__ inline A warp_sum(A v) {
  return warp_reduce(v, Plus());
}
template <class A>
__device__ inline A warp_max(A v) {
  return warp_reduce(v, Maximum());
}

/// Reduces each of R numbers (a power of 2) with `op` over the threads of a block, at most kThreads, all of which must
/// call it. Lanes of a warp exchange halves of their numbers until each has one; then the lanes with the same number
/// combine theirs, and shared memory combines the warps.
template <int R, class A, class Op>
__device__ inline void block_reduce(A (&values)[R], Op op) {
  static_assert((R & (R - 1)) == 0);
  constexpr int kShare = kWarpSize / R;  // number of lanes that finally have the same one of the R numbers
  const int lane = lane_index();
  for (int half = R / 2; half > 0; half /= 2) {
    const int by = half * kShare;
    const bool upper = (lane & by) != 0;
    for (int r = 0; r < half; ++r) {
      const A kept = upper ? values[half + r] : values[r], given = upper ? values[r] : values[half + r];
      values[r] = op(kept, __shfl_xor_sync(kAllLanes, given, by));
    }
  }
  for (int by = kShare / 2; by > 0; by /= 2) values[0] = op(values[0], __shfl_xor_sync(kAllLanes, values[0], by));
  A all = values[0];
  if (blockDim.x > kWarpSize) {
    __shared__ A parts[kThreads / kWarpSize][R];
    const int own = lane / kShare;
    __syncthreads();  // the previous call may still read `parts`
    if (lane % kShare == 0) parts[threadIdx.x / kWarpSize][own] = all;
    __syncthreads();
    all = parts[0][own];
    for (unsigned warp = 1; warp < blockDim.x / kWarpSize; ++warp) all = op(all, parts[warp][own]);
  }
  for (int r = 0; r < R; ++r) values[r] = __shfl_sync(kAllLanes, all, r * kShare);
}

/// Returns the sum over the block, all of whose threads must call it.
template <class A>
__device__ inline A block_sum(A v) {
  A sum[] = {v};
  block_reduce(sum, Plus());
  return sum[0];
}

}  // namespace moe::cuda
