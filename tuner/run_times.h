#pragma once
// What the record of a run says of its time.
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
/// Returns how many times as long as at its best a core took while the run was timed; 1 where it is not known.
double core_slowdown(const CaseRecord& record);

}  // namespace moe::tuner
