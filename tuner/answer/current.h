#pragma once
// The user's own layout, and the changes that lead from it to the recommended plan.
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "tuner/answer/answer.h"
#include "tuner/tune.h"

namespace moe::tuner {

/// Returns the user's layout, which `options` has, and the steps from it to the recommended plan. Each step makes the
/// single change that saves most time, among those that are valid at this number of samples; a change that makes the
/// layout fit into memory comes before all others. The last step makes all remaining changes. Call it after the trials,
/// which can change the recommendation.
LayoutWalk layout_walk_of(const TuneOptions& options, const Answer& answer);

/// Returns the user's layout, then a line for each step: "1. --ep 8: 7.10 s, 1.183x".
std::vector<std::string> walk_lines(const Answer& answer);
Json walk_json(const Answer& answer);

}  // namespace moe::tuner
