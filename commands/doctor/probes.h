#pragma once
// What is looked at, a function an area. Each takes files that may be missing or hold anything, and says what it found
// of what it could read.
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "commands/doctor/finding.h"
#include "moe/base/system_files.h"

namespace moe::doctor {

/// Returns what the cores are: governor, boost, hyper-threads, NUMA nodes, affinity, quota, guests and containers.
Findings cpu_findings(const SystemFiles& files);

/// Returns what the machine does while `wait` lasts, about a second: busy cores and processes, stolen time; and the
/// load average and pressure before that. Processes are named as the kernel does, without path, arguments and user.
Findings load_findings(const SystemFiles& files, const std::function<void()>& wait);

/// Returns how much memory is left, by the machine and by the control group; swap and huge pages.
Findings memory_findings(const SystemFiles& files);

/// Returns the interfaces and InfiniBand ports: state, speed, MTU; and whether GPUs and InfiniBand see each other.
Findings network_findings(const SystemFiles& files);

using Environment = std::map<std::string, std::string>;
/// Returns the variables that change the speed of NCCL, Gloo, OpenMP, MKL, oneDNN and CUDA. A value that may be a path
/// is not shown.
Findings variable_findings(const Environment& environment);

/// What adjtimex(2) says of the system's clock.
struct ClockState {
  bool synchronised = false;
  double offset_s = 0, most_error_s = 0;
};
/// Returns the clock source, and how far the clock is off. `clock` is empty where the system does not tell.
Findings clock_findings(const SystemFiles& files, const std::optional<ClockState>& clock);

}  // namespace moe::doctor
