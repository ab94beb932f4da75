#pragma once
// Measures the overhead of running a plan on this machine, by unpaced runs of empty tasks.
#include "moe/device/device.h"

namespace moe {

struct Overhead {
  double task_s = 0;      // time of a run per task: 200 tasks on three lanes, in chunks that move from lane to lane
  double crossing_s = 0;  // from the end of a task to the start of the next, on a lane that slept until then
  // Time per task of one empty kernel, issued and replayed (Executor::record), on a GPU with one rank; else 0.
  double kernel_task_s = 0, replayed_task_s = 0;
};

inline constexpr int kOverheadRuns = 20;

/// Returns medians over `runs` runs, in which the ranks (threads) run concurrently; the time of a run is that of its
/// slowest rank. On GPUs, all ranks share the first one.
Overhead measure_overhead(int ranks, int runs, DeviceKind kind);

}  // namespace moe
