#pragma once
// Turns a plan's passes on all ranks into what its MeasuredRun says of them.
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/pass_times.h"

namespace moe::measure {

/// Sets all of `run` that passes tell, by its plan and its dilation. `in_step`: they were of tasks in step (in_step.h).
void take_times(PassTimes passes, const std::vector<RankMachine>& machines, bool in_step, MeasuredRun& run);

/// Returns a number that is greater for a more disturbed run: of a paced one how much longer the median pass took than
/// the fastest one, of the latter; of another the slowdown of its cores.
double disturbance(const MeasuredRun& run);

}  // namespace moe::measure
