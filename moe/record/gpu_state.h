#pragma once
// Reads what changes about GPUs while a run lasts.
#include "moe/record/nvml.h"
#include "moe/record/record.h"

namespace moe {

/// Returns of all GPUs that NVML knows, in its order, gpu_driver, gpu_sm_mhz, gpu_memory_mhz, gpu_celsius and gpu_held:
/// what holds their clocks down ("none", or some of idle, set, power, slowdown, sync, heat, hardware heat, power
/// brake). Several GPUs that differ stand behind each other ("1980, 345"). Returns nothing where `nvml` is null or
/// can't be used; what it does not tell is left out.
Fields gpu_state(const Nvml* nvml);

/// Says whether this process has loaded CUDA's driver, as whoever asked for GPUs has.
bool uses_cuda();

}  // namespace moe
