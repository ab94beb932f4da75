// Stands in absent.cpp's place in a build with CUDA.
#include "moe/device/cuda/memory.h"
#include "moe/layer/cuda/layer_device.h"

namespace moe {

std::unique_ptr<LayerDevice> make_cuda_layer_device() {
  return cuda::make_layer_device(cuda::make_memory_space(), cuda::make_cublas_gemm(cuda::AlgorithmChoice::as_asked));
}

}  // namespace moe
