#pragma once
// A swept grid as a table.
#include <string>
#include <vector>

#include "verbs/sweep.h"

namespace moe::tuner {

/// Returns mean speedups over tutel beside the paper's, degrees, bounds, and what has to be known of them.
std::string sweep_report(const std::vector<verbs::SweepRow>& rows, const verbs::SweepRequest& request);

/// Returns one line that names the schedule with the largest mean speedup; "" where none was compared with tutel. It
/// names none where schedules are compared over different layers.
std::string fastest_text(const std::vector<verbs::ScheduleSummary>& summaries);
/// Returns "1.220x", with how many layers it is the mean of where those are fewer than the schedule has; "-": none.
std::string simulated_speedup(const verbs::ScheduleSummary& summary);

}  // namespace moe::tuner
