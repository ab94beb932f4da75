#pragma once
// What changes about GPUs while a run lasts.
#include "moe/record/nvml.h"
#include "moe/record/record.h"

namespace moe {

/// Returns of all GPUs that NVML knows, in its order, gpu_driver, gpu_sm_mhz, gpu_memory_mhz, gpu_celsius and gpu_held:
/// what holds their clocks down ("none", or some of idle, set, power, slowdown, sync, heat, hardware heat, power
/// brake). Several GPUs that differ stand behind each other ("1980, 345"). Nothing where `nvml` is null or can't be
/// used; what it does not tell is left out.
Fields gpu_state(const Nvml* nvml);

/// Returns whether this process has loaded CUDA's driver: whoever has asked for GPUs did.
bool uses_cuda();

}  // namespace moe
