#pragma once
// The verb `plannerbench`: speed and memory of planning, timed by Google Benchmark on one thread.

namespace moe::commands {

struct PlannerbenchOptions {
  bool json = false;  // prints Google Benchmark's JSON instead of a line for each figure
};

/// Tunes FSMoE's 1458 layers on testbed-b under every schedule; replays one layer without contention, with contention,
/// and with jitter on all ranks of a large cluster.
int run_plannerbench(const PlannerbenchOptions& options);

}  // namespace moe::commands
