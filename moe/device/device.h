#pragma once
// Which device: the CPU's threads or a GPU.
#include <memory>

#include "moe/device/kind.h"
#include "moe/device/stream.h"

namespace moe {

/// GPUs that this process may use; 0 in a build without CUDA, and where there is no driver.
int gpu_count();

/// cuda: GPU `local_rank` modulo gpu_count(). Throws BadInput in a build without CUDA, and without a GPU. Ranks
/// that are threads and share data take the same GPU. CUDA_DEVICE_MAX_CONNECTIONS is set to 32, unless it is set: with
/// fewer, streams wait for each other.
std::unique_ptr<Device> make_device(DeviceKind kind, int local_rank = 0);

}  // namespace moe
