#include "moe/device/device.h"

#include <cstdlib>

#include "moe/device/cpu/cpu_device.h"
#include "moe/device/cuda/cuda_device.h"

namespace moe {

void set_cuda_connections() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

std::unique_ptr<Device> make_device(DeviceKind kind, int local_rank, int threads) {
  return kind == DeviceKind::cuda ? cuda::make_device(local_rank) : cpu::make_device(threads);
}

}  // namespace moe
