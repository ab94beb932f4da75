#pragma once
// Makes a device: the CPU's threads or a GPU.
#include <memory>

#include "moe/base/device_kind.h"
#include "moe/device/stream.h"

namespace moe {

/// Returns how many GPUs this process may use; 0 in a build without CUDA, and where there is no driver.
int gpu_count();

/// Sets CUDA_DEVICE_MAX_CONNECTIONS to 32, unless it is set, in the whole process: these are the hardware queues that
/// streams are spread over, and two streams on one wait for each other. An executable calls it before CUDA starts.
void set_cuda_connections();

/// Makes a device of that kind. cuda: GPU `local_rank` modulo gpu_count(). Throws BadInput in a build without CUDA, and
/// without a GPU. Ranks that are threads and share data take the same GPU. cpu: what its streams compute may use so
/// many `threads` each.
std::unique_ptr<Device> make_device(DeviceKind kind, int local_rank = 0, int threads = 1);

}  // namespace moe
