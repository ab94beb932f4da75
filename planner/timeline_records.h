#pragma once
// What `simulate` leaves behind: a layer's timeline under a schedule, and its time at each degree, as records.
#include <string>
#include <vector>

#include "moe/record/record.h"
#include "moe/search/degrees.h"

namespace moe::planner {

/// Returns the tasks of a plan and when they run, in issue order.
std::vector<TaskTimes> task_times(const Plan& plan, const Timeline& timeline);

/// Returns the record of one layer under one schedule as it was decided, key "simulate/SCHEDULE". prediction:
/// forward_s, backward_s, moe_forward_s, moe_backward_s, total_s, gar_in_moe_bytes, and by lane KIND_busy_s; bound_s is
/// free of degrees.
CaseRecord timeline_record(const LayerResult& result, const Plan& plan, const Timeline& timeline,
                           const Fields& parameters);

/// Returns the records of the layer with both degrees 1, 2, .. up to 64 at most, as far as the search tries them, the
/// gradient split tuned for each; a schedule that knows only degree 1 has one. Key "degrees/SCHEDULE/R"; prediction:
/// forward_s and backward_s, of each phase degree_bound_PHASE_s (moe/cost/bounds.h: of chunks of this degree) and
/// free_bound_PHASE_s (of any degree).
std::vector<CaseRecord> degree_records(const Schedule& schedule, const LayerPricer& pricer, const Fields& parameters);

}  // namespace moe::planner
