// A GPU with managed memory, which the host may touch once the GPU is idle.
#include <cuda_runtime.h>

#include "moe/device/cuda/check.h"
#include "moe/device/device.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

class ManagedMemory final : public MemorySpace {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  Memory allocate(int64_t bytes) override {
    void* data = nullptr;
    MOE_CHECK_CUDA(cudaMallocManaged(&data, static_cast<size_t>(bytes) + 1));
    Memory memory(data, bytes, [](void* owned) { cudaFree(owned); });
    clear(data, bytes, nullptr);
    finish_test_device();
    return memory;
  }
  void from_host(const void* from, void* to, int64_t bytes) override {
    MOE_CHECK_CUDA(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault));
    finish_test_device();
  }
  void to_host(const void* from, void* to, int64_t bytes) override {
    finish_test_device();
    MOE_CHECK_CUDA(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault));
  }
  void copy(const void* from, void* to, int64_t bytes, void* native) override {
    MOE_CHECK_CUDA(
        cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, static_cast<cudaStream_t>(native)));
  }
  void clear(void* data, int64_t bytes, void* native) override {
    MOE_CHECK_CUDA(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(native)));
  }
};

}  // namespace

std::unique_ptr<MemorySpace> make_test_memory() { return std::make_unique<ManagedMemory>(); }
std::unique_ptr<cuda::CudaMath> make_test_math() {
  return std::make_unique<cuda::CudaMath>(make_test_memory(), cuda::make_cublas_gemm());
}
std::unique_ptr<LayerDevice> make_test_layer_device() {
  return cuda::make_layer_device(make_test_memory(), cuda::make_cublas_gemm());
}
std::unique_ptr<Device> make_test_device() { return make_device(DeviceKind::cuda); }
void finish_test_device() { MOE_CHECK_CUDA(cudaDeviceSynchronize()); }
int64_t test_launches() { return 0; }

}  // namespace moe
