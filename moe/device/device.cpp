#include "moe/device/device.h"

#include "moe/device/cuda/cuda_device.h"

namespace moe {

std::string_view name_of(DeviceKind kind) { return kind == DeviceKind::cuda ? "cuda" : "cpu"; }

std::unique_ptr<Device> make_device(DeviceKind kind, int local_rank) {
  return kind == DeviceKind::cuda ? make_cuda_device(local_rank) : make_cpu_device();
}

}  // namespace moe
