#pragma once
// Checked calls of the CUDA runtime. Includes no fmt, whose checked formats nvcc can't compile.
#include <cuda_runtime.h>

namespace moe::cuda {

/// Throws RankFailure that names the call and CUDA's reason unless `status` is success: CUDA refused the call, or work
/// on the GPU failed before it.
void check(cudaError_t status, const char* call);

}  // namespace moe::cuda

#define MOE_CHECK_CUDA(call) ::moe::cuda::check((call), #call)
