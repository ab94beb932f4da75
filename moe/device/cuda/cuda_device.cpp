#include "moe/device/cuda/cuda_device.h"

#include "moe/base/check.h"
#include "moe/device/cuda/check.h"
#include "moe/device/cuda/cuda_stream.h"
#include "moe/device/device.h"

namespace moe {
namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : gpu_(cuda::Gpu::open(index)) {}

  std::unique_ptr<Stream> make_stream(std::string_view, std::shared_ptr<Failure> failure,
                                      StreamPriority urgency) override {
    return std::make_unique<cuda::CudaStream>(gpu_, std::move(failure), urgency);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<cuda::CudaEvent>(gpu_); }
  Memory make_memory(int64_t bytes) override { return gpu_->allocate(bytes); }
  Memory make_host_memory(int64_t bytes) override { return gpu_->allocate_host(bytes); }

 private:
  const std::shared_ptr<cuda::Gpu> gpu_;
};

}  // namespace

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::unique_ptr<Device> cuda::make_device(int local_rank) {
  require<BadInput>(local_rank >= 0, "local rank {} on a GPU, expected 0 or more", local_rank);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  require<NoHardware>(status == cudaSuccess && count > 0, "no GPU: {}", cudaGetErrorString(status));
  return std::make_unique<CudaDevice>(local_rank % count);
}

}  // namespace moe
