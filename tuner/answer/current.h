#pragma once
// The user's own layout, and the changes that lead from it to the recommended plan.
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "tuner/answer/answer.h"
#include "tuner/tune.h"

namespace moe::tuner {

/// Returns the user's layout and the way from it to the recommended plan, which runs may have changed. Every step takes
/// the change, of those that a layout of these samples can have on its own, that gains most, and one that makes the
/// plan fit before all others; the last step takes all changes that are left. `options` has the layout.
Walk walk_of(const TuneOptions& options, const Answer& answer);

/// Returns the user's layout, then a line for each step: "1. --ep 8: 7.10 s, 1.183x".
std::vector<std::string> walk_lines(const Answer& answer);
Json walk_json(const Answer& answer);

}  // namespace moe::tuner
