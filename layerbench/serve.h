#pragma once
// `layerbench --serve`: batches of inference, really served, beside what they were predicted to take.

namespace moe {
class World;
}

namespace moe::layerbench {

struct LayerbenchOptions;

/// Runs it and returns its exit code. `processes`: as run_layerbench has them.
int run_serve(const LayerbenchOptions& options, World* processes);

}  // namespace moe::layerbench
