// A GPU, with the memory and the products that layers have there.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "moe/device/cuda/check.h"
#include "moe/device/cuda/memory.h"
#include "moe/device/device.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {

std::unique_ptr<MemorySpace> make_test_memory() { return cuda::make_memory_space(); }
std::unique_ptr<cuda::Gemm> make_test_gemm(cuda::AlgorithmChoice selection) {
  return cuda::make_cublas_gemm(selection);
}
std::unique_ptr<cuda::CudaMath> make_test_math() {
  return std::make_unique<cuda::CudaMath>(make_test_memory(), cuda::make_cublas_gemm());
}
std::unique_ptr<LayerDevice> make_test_layer_device() {
  return cuda::make_layer_device(make_test_memory(), cuda::make_cublas_gemm());
}
std::unique_ptr<Device> make_test_device() { return make_device(DeviceKind::cuda); }
std::optional<int> test_gpu() {
  int device = 0;
  MOE_CHECK_CUDA(cudaGetDevice(&device));
  return device;
}
void finish_test_device() { MOE_CHECK_CUDA(cudaDeviceSynchronize()); }
int64_t test_launches() { return 0; }
bool has_fp8_products() {
  int device = 0, major = 0;
  MOE_CHECK_CUDA(cudaGetDevice(&device));
  MOE_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9 && cublasLtGetVersion() >= 120900;
}

}  // namespace moe
