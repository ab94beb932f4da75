// Stands in absent.cpp's place in a build with CUDA.
#include "moe/device/cuda/memory.h"
#include "moe/layer/cuda/layer_device.h"

namespace moe {

std::unique_ptr<LayerDevice> make_cuda_layer_device(bool same_bits) {
  const auto choice = same_bits ? cuda::AlgorithmChoice::first : cuda::AlgorithmChoice::as_asked;
  return cuda::make_layer_device(cuda::make_memory_space(), cuda::make_cublas_gemm(choice));
}

}  // namespace moe
