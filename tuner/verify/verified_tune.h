#pragma once
// The verb `tune`, whole: measure the cluster, fit it, sweep the grid, run some of the winners to check the prediction.
#include "tuner/tune_options.h"

namespace moe {

int run_verified_tune(const TuneOptions& options);

}  // namespace moe
