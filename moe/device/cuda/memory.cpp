#include "moe/device/cuda/memory.h"

#include <algorithm>
#include <cuda_runtime.h>

#include "moe/device/cuda/check.h"

namespace moe::cuda {
namespace {

// Stores the number of its GPU, because each new thread of a layer starts with GPU 0 as its current GPU.
class DeviceMemory final : public MemorySpace {
 public:
  DeviceMemory() { MOE_CHECK_CUDA(cudaGetDevice(&gpu_)); }
  DeviceKind kind() const override { return DeviceKind::cuda; }

  Memory allocate(int64_t bytes) override {
    use();
    Memory memory = try_allocate(bytes);
    require<OutOfMemory>(memory.data() != nullptr, "a tensor of {} bytes: the GPU has no more memory", bytes);
    MOE_CHECK_CUDA(cudaMemset(memory.data(), 0, static_cast<size_t>(bytes)));
    MOE_CHECK_CUDA(cudaStreamSynchronize(nullptr));  // streams that don't wait for the default one may use it now
    return memory;
  }

  // The GPU's streams do not wait for the default stream, so these calls wait until it, or the GPU, is done.
  void from_host(const void* from, void* to, int64_t bytes) override {
    use();
    MOE_CHECK_CUDA(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
    MOE_CHECK_CUDA(cudaStreamSynchronize(nullptr));
  }
  void to_host(const void* from, void* to, int64_t bytes) override {
    use();
    MOE_CHECK_CUDA(cudaDeviceSynchronize());
    MOE_CHECK_CUDA(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
  }

  void copy(const void* from, void* to, int64_t bytes, void* native) override {
    if (bytes == 0) return;
    MOE_CHECK_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                   static_cast<cudaStream_t>(native)));
  }
  void clear(void* data, int64_t bytes, void* native) override {
    use();
    MOE_CHECK_CUDA(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(native)));
  }

 private:
  void use() const { MOE_CHECK_CUDA(cudaSetDevice(gpu_)); }

  int gpu_ = 0;
};

}  // namespace

Memory try_allocate(int64_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(std::max(bytes, int64_t{1})));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // running out of memory is not a failure of the GPU
    return {};
  }
  MOE_CHECK_CUDA(status);
  return {data, bytes, [](void* owned) { cudaFree(owned); }};
}

std::unique_ptr<MemorySpace> make_memory_space() { return std::make_unique<DeviceMemory>(); }

}  // namespace moe::cuda
