#pragma once
// Measures what running a plan costs beside its work, on this machine, by unpaced runs of empty tasks.
#include "moe/device/device.h"

namespace moe {

struct Overhead {
  double task_s = 0;      // a run's time over its tasks: 200 of them, on three lanes, chunks passing from lane to lane
  double crossing_s = 0;  // from the end of a task to the start of one on another lane that waited for it, asleep
  // On a GPU that one rank has, a task of one empty kernel, issued and replayed (Executor::record); else 0.
  double kernel_task_s = 0, replayed_task_s = 0;
};

inline constexpr int kOverheadRuns = 20;

/// Returns medians over `runs` runs, each as slow as its slowest rank; the ranks (threads) run at the same time. All
/// ranks on GPUs share the first.
Overhead measure_overhead(int ranks, int runs, DeviceKind kind);

}  // namespace moe
