#pragma once
// Makes a device: the CPU's threads or a GPU.
#include <memory>

#include "moe/base/device_kind.h"
#include "moe/device/stream.h"

namespace moe {

/// Returns how many GPUs this process may use; 0 in a build without CUDA, and on a machine without a driver.
int gpu_count();

/// Sets CUDA_DEVICE_MAX_CONNECTIONS to 32 for the whole process, unless it is set. It is the number of hardware queues;
/// streams that share a queue wait for each other. An executable calls this before CUDA starts.
void set_cuda_connections();

/// Makes a device. DeviceKind::cuda: GPU `local_rank` modulo gpu_count(); throws BadInput in a build without CUDA or
/// without a GPU. Ranks that are threads and share data must use the same GPU. DeviceKind::cpu: the work of each stream
/// may compute with `threads` threads.
std::unique_ptr<Device> make_device(DeviceKind kind, int local_rank = 0, int threads = 1);

}  // namespace moe
