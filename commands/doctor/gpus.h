#pragma once
// Findings of `doctor` on NVIDIA GPUs.
#include "commands/doctor/finding.h"
#include "moe/record/gpu_watch.h"

namespace moe::doctor {

/// Returns findings on clocks and what limits them, persistence, MIG, ECC, power limit, other processes, PCIe, NVLink
/// and temperature. GPUs with equal findings share one, and values that NVML does not report are left out. Returns no
/// finding if `nvml` is null, and a single one if NVML cannot be used.
Findings gpu_findings(const Nvml* nvml);

}  // namespace moe::doctor
