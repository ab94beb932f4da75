#pragma once
// A layer's job, run: what `layerbench` and `tune` do with each of their layers.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "commands/shared/plan_file.h"
#include "commands/shared/run/target.h"
#include "commands/shared/selection.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/overlap.h"
#include "moe/prices/pricer.h"
#include "moe/record/writer.h"
#include "moe/schedule/model_plan.h"
#include "moe/search/degrees.h"
#include "moe/simulator/simulator.h"

namespace moe::commands {

/// One layer, a stack of layers, or a whole model under several schedules, as a verb asks for it.
struct LayerJob {
  std::string name;
  /// What is planned and run, with its whole step. Ends that are no tasks (add_ends()) are not run, so it has none.
  ModelShape model = {.shape = {}, .step = {.planned = true}};
  const LayerCase& shape() const { return model.shape; }
  bool one_layer() const {
    return model.layers == 1 && model.micro_batches == 1 && shape().parallel.pp == 1 && model.vocabulary == 0;
  }
  bool predicted = true;  // else the degrees are given, and all is planned by nominal prices, which predict nothing
  Profile predicted_by;   // what the plans are tuned and predicted with
  std::optional<Profile> paced_by;  // what the emulated cluster is; none: this machine, unpaced
  std::vector<const Schedule*> schedules;
  bool packs_online = false;  // schedules that pack experts begin with those that the layer's EP groups give a device
  DegreeChoice degrees;
  std::optional<Plan> plan;         // a plan from a file, run unchanged under its schedule's name; none: planned
  const Schedule* tried = nullptr;  // schedule to run at each of tried_degrees too; null: none
  std::vector<int> tried_degrees;   // degrees of both phases; those above largest_degree() are skipped
  PricingOptions pricing;
  measure::LayerBenchSettings settings;

  std::string_view backend() const { return settings.ranks.processes ? settings.ranks.processes->backend() : "local"; }
};

/// Returns what the jobs of one run share: all but a layer and the profile that predicts it. `settings`: what the
/// target does not decide.
LayerJob jobs_on(const Target& target, const Selection& selection, measure::LayerBenchSettings settings);

/// Why a job can't run.
struct RunRefusal {
  CaseStatus status;
  std::string reason;
};
/// Runs `job`, and returns why it can't run; none: it did. Threads fail alone: of `processes` a rank's own failure ends
/// them all, and is thrown, as missing hardware is.
std::optional<RunRefusal> refusal_of(const std::function<void()>& job, const World* processes);

/// Returns the tried degrees that the layer has rows for.
std::vector<int> runnable_degrees(const LayerJob& job);

/// Returns "run/LAYER/SCHEDULE", of a tried degree "run/LAYER/SCHEDULE/r4".
std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree = 0);

/// Steps of a run with equally many experts a device, beside what its plan predicts.
struct RanPacking {
  measure::PackedSteps steps;
  double predicted_s = 0;
  double planned_bytes = 0;  // of a rank of the plan as named, with its optimizer (estimate_memory)
};

/// One schedule's run. All but the record is empty where it did not run, or is taken from an earlier run.
struct ScheduleRun {
  CaseRecord record;
  Plan plan = {};                                   // nominal
  Timeline predicted = {};                          // of that plan
  measure::RankTimes measured = {};                 // of the median iteration, by rank; empty: it was not timed
  int rank = 0;                                     // the slowest of that iteration
  std::vector<measure::TaskComparison> tasks = {};  // empty: it was not timed
  std::vector<RanPacking> packings = {};            // of a run that packed experts online
};

struct LayerOutcome {
  std::string layer;
  std::vector<ScheduleRun> runs;       // of the schedules that ran, in their order, then of those that can't
  std::vector<CaseRecord> tried = {};  // of the job's tried degrees
};

/// Plans, runs, compares, records (layer_records.h). `parameters`: of every record.
LayerOutcome run_layer_job(const LayerJob& job, const Fields& parameters);

/// Runs the job like run_layer_job, but leaves a record of every schedule, with status and reason, where the job can't
/// run or its threads fail.
LayerOutcome run_or_record_why(const LayerJob& job, const Fields& parameters);

/// Returns what a job that did not run leaves: a record of every schedule with this status and reason.
LayerOutcome failed_layer_job(const LayerJob& job, const Fields& parameters, CaseStatus status,
                              const std::string& reason);

/// Returns what a broken-off run left of this layer already, all of it or nothing: nothing where a schedule has no
/// record, failed or ran out of memory.
std::optional<LayerOutcome> known_outcome(const LayerJob& job, const RecordWriter& writer);

/// Appends the records that the writer has not.
void append(const LayerOutcome& outcome, RecordWriter& writer);

inline constexpr size_t kMostRankTasks = 100000;

/// Throws WrongResult naming the first run whose result was wrong, and Unsupported where none of one layer's or model's
/// schedules can be run: a grid's layer that can't is a row among others.
void require_sound(const LayerOutcome& outcome, bool alone);

/// Returns whether a run of the outcome has times.
bool was_timed(const LayerOutcome& outcome);
/// Writes a Perfetto timeline: for each timed schedule the measured ranks' lanes above the simulated ones; a plan of
/// more than kMostRankTasks tasks over all ranks has the slowest rank's lanes alone.
void write_layer_trace(const LayerOutcome& outcome, const TraceFlags& flags);

/// A schedule planned for a layer's job, and what its run is predicted to take.
struct PlannedSchedule {
  std::string_view schedule;
  int degree_forward = 1, degree_backward = 1;        // of a stack, the last layer's in the last micro-batch
  int64_t gar_in_moe_bytes = 0, gar_after_bytes = 0;  // of a layer: Decision's
  double bound_s = 0;
  measure::PlannedRun run;
  Timeline timeline;                         // predicted
  std::string by;                            // name of the profile that decided, "nominal" of nominal costs
  std::string weak;                          // weak_rows (pricer.h)
  bool nominal = false;                      // by nominal costs, which predict nothing
  std::vector<PlannedSchedule> packed = {};  // of run.packed
};

/// Throws Unsupported naming what of a plan the job can't run.
void require_runs_of(const LayerJob& job, const Plan& plan);

/// Plans a schedule, tuned for the job's rounding. Throws Unsupported for what can't be planned or run; where the job
/// only checks, what predicted_by has no price for is planned by nominal costs (profile.h).
PlannedSchedule plan_schedule(const LayerJob& job, const Schedule& schedule);
/// Plans the job's tried schedule at that degree, forward and backward.
PlannedSchedule plan_tried(const LayerJob& job, int degree);

/// Plans a schedule at that degree, forward and backward, by nominal costs whatever the job predicts with.
PlannedSchedule plan_nominally(const LayerJob& job, const Schedule& schedule, int degree);

/// Returns about how many seconds the job will run on an emulated cluster.
double estimated_seconds(const LayerJob& job);

}  // namespace moe::commands
