#pragma once
// What kernels need of CUDA beyond its language: 16-bit types and the launch. Tests put a file of this name before it
// on the include path, which runs the same kernels on the CPU.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "moe/device/cuda/check.h"

namespace moe::cuda {

using Bfloat16 = __nv_bfloat16;
using Float16 = __half;

__device__ inline float to_float(Bfloat16 v) { return __bfloat162float(v); }
__device__ inline float to_float(Float16 v) { return __half2float(v); }
// Rounds to nearest even: float64 too in one step, not by way of float32.
__device__ inline void round_to(float v, Bfloat16& out) { out = __float2bfloat16_rn(v); }
__device__ inline void round_to(double v, Bfloat16& out) { out = __double2bfloat16(v); }
__device__ inline void round_to(float v, Float16& out) { out = __float2half_rn(v); }
__device__ inline void round_to(double v, Float16& out) { out = __double2half(v); }

struct Grid {
  int64_t blocks = 0;
  int threads = 0;  // of a block
};

/// Enqueues kernel(args...) on a cudaStream_t; nothing for no blocks. Throws RankFailure if CUDA refuses.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), Grid grid, void* stream, Args... args) {
  if (grid.blocks == 0) return;
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), 0,
           static_cast<cudaStream_t>(stream)>>>(static_cast<Params>(args)...);
  MOE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace moe::cuda
