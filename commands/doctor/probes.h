#pragma once
// Functions that examine one area each. System files may be missing or malformed; findings then cover only the rest.
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "commands/doctor/finding.h"
#include "moe/base/system_files.h"

namespace moe::doctor {

/// Returns findings on cores: governor, boost, hyper-threads, NUMA nodes, affinity, quota, guests and containers.
Findings cpu_findings(const SystemFiles& files);

/// Returns findings on the load while `wait` runs, about a second (busy cores and processes, stolen time), and on the
/// load average and pressure before that. Processes have the kernel's names, without path, arguments and user.
Findings load_findings(const SystemFiles& files, const std::function<void()>& wait);

/// Returns findings on the memory left in the machine and in the control group, and on swap and huge pages.
Findings memory_findings(const SystemFiles& files);

/// Returns findings on interfaces and InfiniBand ports (state, speed, MTU), and on GPUs' access to InfiniBand.
Findings network_findings(const SystemFiles& files);

using Environment = std::map<std::string, std::string>;
/// Returns findings on variables that change the speed of NCCL, Gloo, OpenMP, MKL, oneDNN and CUDA. A value that may be
/// a path is not shown.
Findings variable_findings(const Environment& environment);

/// The state of the system's clock by adjtimex(2).
struct ClockState {
  bool synchronised = false;
  double offset_s = 0, max_error_s = 0;
};
/// Returns findings on the clock source and the offset of the clock. `clock`: none if the system does not report it.
Findings clock_findings(const SystemFiles& files, const std::optional<ClockState>& clock);

}  // namespace moe::doctor
