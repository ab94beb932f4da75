#pragma once
// The verb `plannerbench`: how fast and how lean planning is. Timed by Google Benchmark, one thread.

namespace moe::commands {

struct PlannerbenchOptions {
  bool json = false;  // Google Benchmark's JSON instead of a line a figure
};

/// Tunes FSMoE's 1458 layers on testbed-b under every schedule; replays one layer plainly, under contention, and on all
/// ranks of a large cluster with jitter.
int run_plannerbench(const PlannerbenchOptions& options);

}  // namespace moe::commands
