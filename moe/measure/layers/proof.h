#pragma once
// Proves what ranks computed: every rank's outputs and gradients against the autograd reference of the whole.
#include <vector>

#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/rank_run.h"

namespace moe::measure {

/// Proves a run. `ranks`: of this process, in rank order, each after two passes of `plan` and finish_gradients. Every
/// process of `world` calls it and gets the same verdict: sets `run`'s load, proven_tokens, worst_error and
/// worst_tensor, or `wrong`. `inspect`, where it is given, sees the ranks first.
void prove_run(World& world, const std::vector<RankRun*>& ranks, const Plan& plan, const Inspection& inspect,
               MeasuredRun& run);

}  // namespace moe::measure
