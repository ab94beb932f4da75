#pragma once
// The verb `tune`, without its real runs: a grid swept on a profile, its table, its records.
#include "moe/plan/grid.h"
#include "tuner/tune_options.h"
#include "verbs/sweep.h"

namespace moe {

/// Mean speedups over tutel beside the paper's, degrees, efficiency, and what has to be known of them.
std::string sweep_report(const std::vector<SweepRow>& rows, const std::vector<const Schedule*>& schedules,
                         const Grid& grid, const std::string& cluster);

/// `tune --no-verify`: plans on the profile as it stands.
int run_planned_tune(const TuneOptions& options);

}  // namespace moe
