#pragma once
// Measures the overhead of running a plan on this machine, by unpaced runs of empty tasks.
#include "moe/device/device.h"

namespace moe {

struct Overhead {
  double task_s = 0;      // a run's time per task: 200 tasks on three lanes, in chunks that pass from lane to lane
  double crossing_s = 0;  // from the end of a task to the start of one on another lane that slept until then
  // On a GPU with one rank: a task of one empty kernel, issued and replayed (Executor::record); else 0.
  double kernel_task_s = 0, replayed_task_s = 0;
};

inline constexpr int kOverheadRuns = 20;

/// Returns medians over `runs` runs, whose time is that of the slowest rank; the ranks (threads) run at the same time.
/// On GPUs, all ranks share the first one.
Overhead measure_overhead(int ranks, int runs, DeviceKind kind);

}  // namespace moe
