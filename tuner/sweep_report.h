#pragma once
// A swept grid as a table.
#include <string>
#include <vector>

#include "verbs/sweep.h"

namespace moe::tuner {

/// Mean speedups over tutel beside the paper's, degrees, bounds, and what has to be known of them.
std::string sweep_report(const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                         const Grid& grid, const std::string& cluster);

}  // namespace moe::tuner
