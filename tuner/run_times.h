#pragma once
// What the record of a run says of its time.
#include <optional>
#include <vector>

#include "moe/base/statistics.h"
#include "moe/record/record.h"

namespace moe::tuner {

/// Returns whether the record has a measured time. One that is `invalid` may have: tables show it, no figure counts it.
bool was_timed(const CaseRecord& record);
/// Returns whether the run kept its rules and was timed. Every figure and choice is of such runs.
bool ran_well(const CaseRecord& record);

double predicted_s(const CaseRecord& record);
double run_s(const CaseRecord& record);
/// Returns the run's time over the prediction, less 1.
double error_of(const CaseRecord& record);

/// Returns each pass's seconds, of its slowest rank; empty: the record has no samples.
std::vector<double> passes_s(const CaseRecord& record);
/// Returns where the run's median lies: median_interval() of its passes, or where they are too few for one the range
/// from the shortest to the longest. None below four passes, whose ranges often lie apart by chance.
std::optional<Interval> likely_s(const CaseRecord& record);

}  // namespace moe::tuner
