// Replaces absent.cpp in a build with CUDA.
#include <cuda_runtime.h>

#include "moe/device/cuda/check.h"
#include "moe/device/cuda/memory.h"
#include "moe/layer/cuda/layer_device.h"

namespace moe {

std::unique_ptr<LayerDevice> make_cuda_layer_device(const GpuChoices& choices) {
  const auto choice = choices.same_bits ? cuda::AlgorithmChoice::first : cuda::AlgorithmChoice::by_batch;
  std::optional<int> torch_gpu;
  if (choices.attention == AttentionBy::torch) {
    open_torch_cuda();
    MOE_CHECK_CUDA(cudaGetDevice(&torch_gpu.emplace()));
  }
  return cuda::make_layer_device(cuda::make_memory_space(), cuda::make_cublas_gemm(choice), torch_gpu);
}

}  // namespace moe
