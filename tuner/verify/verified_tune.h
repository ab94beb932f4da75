#pragma once
// The verb `tune`, whole: measure the cluster, fit it, sweep the grid, run some of the winners to check the prediction.
#include "moe/comm/world.h"
#include "tuner/tune_options.h"

namespace moe {

/// `processes`: of the run, one rank each, which all call it; none: ranks are threads.
int run_verified_tune(const TuneOptions& options, World* processes);

}  // namespace moe
