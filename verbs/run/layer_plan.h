#pragma once
// A schedule planned for a layer's job, and what its run is predicted to take.
#include <string>

#include "moe/cost/simulator.h"
#include "verbs/run/layer_job.h"

namespace moe::verbs {

struct PlannedSchedule {
  std::string_view schedule;
  int degree_forward = 1, degree_backward = 1;        // of a stack, the last layer's in the last micro-batch
  int64_t gar_in_moe_bytes = 0, gar_after_bytes = 0;  // of a layer: Decision's
  double bound_s = 0;
  measure::PlannedRun run;
  Timeline timeline;     // predicted
  std::string by;        // name of the profile that decided, "nominal" of nominal costs
  std::string weak;      // weak_rows (pricer.h)
  bool nominal = false;  // by nominal costs, which predict nothing
};

/// Throws Unsupported naming what of a plan the job can't run.
void require_runs_of(const LayerJob& job, const Plan& plan);

/// Returns the model that a job's layer is stacked to.
ModelShape stacked_model(const LayerCase& shape, const Stacked& stacked);

/// Plans a schedule, tuned for the job's rounding. Throws Unsupported for what can't be planned or run; where the job
/// only checks, what predicted_by has no price for is planned by nominal costs (nominal_profile.h).
PlannedSchedule plan_schedule(const LayerJob& job, const Schedule& schedule);
/// Plans the job's tried schedule at that degree, forward and backward.
PlannedSchedule plan_tried(const LayerJob& job, int degree);

/// Plans a schedule at that degree, forward and backward, by nominal costs whatever the job predicts with.
PlannedSchedule plan_nominally(const LayerJob& job, const Schedule& schedule, int degree);

/// Returns about how many seconds the job will run on an emulated cluster.
double estimated_seconds(const LayerJob& job);

}  // namespace moe::verbs
