#include "moe/device/cuda/cuda_device.h"

#include <cstdlib>
#include <mutex>

#include "moe/device/cuda/check.h"
#include "moe/device/cuda/cuda_stream.h"
#include "moe/device/device.h"

namespace moe {
namespace {

/// Read when CUDA starts: hardware queues that streams are spread over. Two streams on one wait for each other.
void want_connections() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); });
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : gpu_(Gpu::open(index)) {}

  std::unique_ptr<Stream> make_stream(std::string_view, std::shared_ptr<Failure> failure, Urgency urgency) override {
    return std::make_unique<CudaStream>(gpu_, std::move(failure), urgency);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CudaEvent>(gpu_); }
  Memory make_memory(int64_t bytes) override { return gpu_->allocate(bytes); }
  Memory make_host_memory(int64_t bytes) override { return gpu_->allocate_host(bytes); }

 private:
  const std::shared_ptr<Gpu> gpu_;
};

}  // namespace

int gpu_count() {
  want_connections();
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::unique_ptr<Device> make_cuda_device(int local_rank) {
  want_connections();
  require<BadInput>(local_rank >= 0, "local rank {} on a GPU, expected 0 or more", local_rank);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  require<BadInput>(status == cudaSuccess && count > 0, "no GPU: {}", cudaGetErrorString(status));
  return std::make_unique<CudaDevice>(local_rank % count);
}

}  // namespace moe
