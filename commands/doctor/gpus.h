#pragma once
// What the verb `doctor` finds of NVIDIA's GPUs.
#include "commands/doctor/finding.h"
#include "moe/record/gpu_watch.h"

namespace moe::doctor {

/// Returns clocks and what holds them down, persistence, MIG, ECC, power limit, other processes, PCIe, NVLink and
/// temperature; GPUs of which the same is found share one finding. What NVML does not tell is left out. Returns nothing
/// where `nvml` is null, and one finding where it can't be used.
Findings gpu_findings(const Nvml* nvml);

}  // namespace moe::doctor
