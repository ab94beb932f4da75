#pragma once
// Proves what ranks computed: every rank's outputs and gradients against the autograd reference of the whole.
#include <vector>

#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/measure/layers/references.h"

namespace moe::measure {

/// What all runs of a bench are proven with.
struct Proof {
  World& world;
  References& references;     // of the bench
  const Inspection& inspect;  // sees the ranks first; may be empty
};
/// Proves a run. `ranks`: of this process, in rank order, each after two passes of `plan` and finish_gradients. Every
/// process of the world calls it and gets the same verdict: sets `run`'s load, proven_tokens, worst_error and
/// worst_tensor, or `wrong`.
void prove_run(const Proof& proof, const std::vector<RankRun*>& ranks, const Plan& plan, MeasuredRun& run);

}  // namespace moe::measure
