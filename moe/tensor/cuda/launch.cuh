#pragma once
// The parts of CUDA's API that kernels use: conversions of 16-bit and FP8 types, approximate functions, and launches.
// The include path of some tests has another file of this name first, which runs the same kernels on the CPU.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include "moe/device/cuda/check.h"

namespace moe::cuda {

using Bfloat16 = __nv_bfloat16;
using Float16 = __half;

__device__ inline float to_float(Bfloat16 v) { return __bfloat162float(v); }
__device__ inline float to_float(Float16 v) { return __half2float(v); }
// These round to nearest even; float64 is rounded in one step, not by way of float32.
__device__ inline void round_to(float v, Bfloat16& out) { out = __float2bfloat16_rn(v); }
__device__ inline void round_to(double v, Bfloat16& out) { out = __double2bfloat16(v); }
__device__ inline void round_to(float v, Float16& out) { out = __float2half_rn(v); }
__device__ inline void round_to(double v, Float16& out) { out = __double2half(v); }

// to_fp8_bits() rounds two numbers of magnitude 448 or less to e4m3, to nearest even, and returns their bits, those of
// `a` lowest. from_fp8_bits() returns the value of one e4m3 number.
__device__ inline uint32_t to_fp8_bits(float a, float b) {
  return __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
}
__device__ inline uint32_t to_fp8_bits(double a, double b) {
  const uint32_t low = __nv_cvt_double_to_fp8(a, __NV_SATFINITE, __NV_E4M3);
  return low | uint32_t{__nv_cvt_double_to_fp8(b, __NV_SATFINITE, __NV_E4M3)} << 8;
}
__device__ inline float from_fp8_bits(uint8_t bits) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3)));
}

// These return exp(v), 2^v and 1 / v, with an error of a few units in the last place. The latter two return 0 instead
// of a result below 2^-126.
__device__ inline float quick_exp(float v) { return __expf(v); }
__device__ inline float quick_exp2(float v) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
__device__ inline float quick_inverse(float v) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
// These return 1 / sqrt(v).
__device__ inline float inverse_root(float v) { return rsqrtf(v); }
__device__ inline double inverse_root(double v) { return rsqrt(v); }

struct Grid {
  int64_t blocks = 0;
  int threads = 0;  // threads of a block
};

/// Enqueues kernel(args...) on a cudaStream_t, unless the grid has no blocks. Throws RankFailure if CUDA reports an
/// error.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), Grid grid, void* stream, Args... args) {
  if (grid.blocks == 0) return;
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), 0,
           static_cast<cudaStream_t>(stream)>>>(static_cast<Params>(args)...);
  MOE_CHECK_CUDA(cudaGetLastError());
}

}  // namespace moe::cuda
