#pragma once
// `tune` of one layer or one model that checks its predictions by real runs.
#include "tuner/tune.h"

namespace moe::tuner {

/// Measures the target, ranks the schedules, runs the best two, the baselines and the user's current schedule, and
/// prints the answer. Returns the exit code. Every process of the run calls it.
int run_verified_answer(const TuneOptions& options, World* processes);

}  // namespace moe::tuner
