#pragma once
// `tune` of one layer or one model, checked by real runs.
#include "tuner/tune.h"

namespace moe::tuner {

/// Measures the target, ranks the schedules, runs the best two, the baselines and the user's present one, and prints
/// the answer. Every process of the run calls it.
int run_verified_answer(const TuneOptions& options, World* processes);

}  // namespace moe::tuner
