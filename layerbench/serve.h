#pragma once
// `layerbench --serve`: serves batches of inference and compares their times with the predictions.

namespace moe {
class World;
}

namespace moe::layerbench {

struct LayerbenchOptions;

/// Serves the batches and returns the exit code. `processes`: as in run_layerbench.
int run_serve(const LayerbenchOptions& options, World* processes);

}  // namespace moe::layerbench
