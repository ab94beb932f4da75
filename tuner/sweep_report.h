#pragma once
// A swept grid as a table.
#include <string>
#include <vector>

#include "verbs/sweep.h"

namespace moe::tuner {

/// Mean speedups over tutel beside the paper's, degrees, bounds, and what has to be known of them.
std::string sweep_report(const std::vector<SweepRow>& rows, const SweepRequest& request);

/// One line that names the schedule with the largest mean speedup; "" where none was compared with tutel.
std::string fastest_text(const std::vector<ScheduleSummary>& summaries);

}  // namespace moe::tuner
