#pragma once
// What the reports of all verbs that run layers say of an outcome.
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "verbs/run/layer_run.h"

namespace moe::verbs {

/// Shows for every schedule that was timed each kind of task's time beside its prediction.
std::string tasks_text(const LayerOutcome& outcome);
/// Says which predictions weak rows made, and why a schedule is not ok.
std::string reasons_text(const LayerOutcome& outcome);
/// Returns "dilation D", or "dilations D to E" where disturbed passes ran slower than others.
std::string dilation_text(const std::vector<ScheduleRun>& runs);
/// Returns schedules[] = {schedule, status, degrees, measured, predicted, tasks}.
Json schedules_json(const LayerOutcome& outcome);

}  // namespace moe::verbs
