#pragma once
// Plans and runs one layer or model under several schedules, for `layerbench`, `modelbench` and `tune`.
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

/// One layer, several layers, or a whole model to run under several schedules.
struct LayerJob {
  std::string name;
  /// The model to plan and run, including its optimizer step. Its ends have to be tasks (add_end_tasks), because a job
  /// does not run other ends (add_ends).
  ModelShape model = {.shape = {}, .step = {.planned = true}};
  const LayerCase& shape() const { return model.shape; }
  bool is_one_layer() const {
    return model.layers == 1 && model.micro_batches == 1 && shape().parallel.pp == 1 && model.vocabulary == 0;
  }
  bool predicted = true;            // false: plans use given degrees and nominal prices, which predict nothing
  Profile predicted_by;             // profile that tunes the plans and predicts their times
  std::optional<Profile> paced_by;  // profile of the emulated cluster; none: this machine, unpaced
  std::vector<const Schedule*> schedules;
  bool packs_online = false;  // schedules that pack experts begin without packing, and pack between steps
  DegreeChoice degrees;
  std::optional<Plan> plan;         // a plan from a file, run unchanged under its schedule's name; none: planned
  const Schedule* tried = nullptr;  // schedule that also runs at each of tried_degrees; null: none
  std::vector<int> tried_degrees;   // degrees of both phases; those above largest_degree() are skipped
  PricingOptions pricing;
  measure::LayerBenchSettings settings;

  std::string_view backend() const { return settings.ranks.processes ? settings.ranks.processes->backend() : "local"; }
};

/// Returns a job with the fields that all jobs of a run share: all except the layer and the profile that predicts it.
/// The target overwrites some of the `settings`.
LayerJob layer_job_on(const Target& target, const Selection& selection, measure::LayerBenchSettings settings);

/// The reason why a job cannot run, and the status of its records.
struct RunRefusal {
  CaseStatus status;
  std::string reason;
};
/// Runs `job`, and returns the reason if it cannot run; none: it ran. With `processes`, a failure of one rank ends all
/// of them, so it is thrown instead. Missing hardware is always thrown.
std::optional<RunRefusal> refusal_of(const std::function<void()>& job, const World* processes);

/// Returns the tried degrees that do not exceed the layer's rows (largest_degree).
std::vector<int> runnable_degrees(const LayerJob& job);

/// Returns the key of a run's record: "run/LAYER/SCHEDULE", or "run/LAYER/SCHEDULE/r4" for a tried degree.
std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree = 0);

/// The steps of a run with the same packing of experts, and their predictions.
struct PackingRun {
  measure::PackedSteps steps;
  double predicted_s = 0;
  double planned_bytes = 0;  // predicted bytes of a rank, with the optimizer's states (estimate_memory)
};

/// One schedule's run. Everything except the record is empty if the schedule did not run, or ran before an
/// interruption.
struct ScheduleRun {
  CaseRecord record;
  Plan plan = {};                                   // plan of the layer as named, not of its proxy
  Timeline predicted = {};                          // predicted times of that plan
  measure::RankTimes measured = {};                 // times of the median iteration, by rank; empty: not timed
  int rank = 0;                                     // slowest rank of that iteration
  std::vector<measure::TaskComparison> tasks = {};  // tasks by kind; empty: not timed
  std::vector<PackingRun> packings = {};            // packings in their order, if experts were packed online
};

struct LayerOutcome {
  std::string layer;
  std::vector<ScheduleRun> runs;       // schedules that ran, in their order, then those that cannot run
  std::vector<CaseRecord> tried = {};  // records of the job's tried degrees
};

/// Plans and runs the job, and returns its records (layer_records.h), each with these `parameters`.
LayerOutcome run_layer_job(const LayerJob& job, const Fields& parameters);

/// Runs the job like run_layer_job. If the job cannot run or its threads fail, returns a record of every schedule with
/// the status and the reason.
LayerOutcome run_or_record_failure(const LayerJob& job, const Fields& parameters);

/// Returns the outcome of a job that did not run: a record of every schedule with this status and reason.
LayerOutcome failed_layer_job(const LayerJob& job, const Fields& parameters, CaseStatus status,
                              const std::string& reason);

/// Returns the layer's outcome from an interrupted run; none unless every schedule and tried degree has a record that
/// need not be repeated (RecordWriter::answered).
std::optional<LayerOutcome> recorded_outcome(const LayerJob& job, const RecordWriter& writer);

/// Appends the records that the writer does not have yet.
void append(const LayerOutcome& outcome, RecordWriter& writer);

inline constexpr size_t kMaxRankTasks = 100000;

/// Throws WrongResult for the first run with a wrong result. If `alone` (the outcome is not one of a grid's), also
/// throws Unsupported if no schedule can run.
void require_correct_outcome(const LayerOutcome& outcome, bool alone);

/// Returns whether any run of the outcome was timed.
bool was_timed(const LayerOutcome& outcome);
/// Writes a Perfetto timeline: for each timed schedule the lanes of the measured ranks above the simulated lanes. If
/// the ranks have more than kMaxRankTasks tasks together, only the slowest rank's lanes are written.
void write_layer_trace(const LayerOutcome& outcome, const TraceFlags& flags);

/// A schedule's plan for a job, with its predicted times.
struct PlannedSchedule {
  std::string_view schedule;
  int degree_forward = 1, degree_backward = 1;        // with several layers: of the last layer's last micro-batch
  int64_t gar_in_moe_bytes = 0, gar_after_bytes = 0;  // of one layer (Decision)
  double bound_s = 0;
  measure::PlannedRun run;
  Timeline timeline;                         // predicted times
  std::string by;                            // name of the profile that decided; "nominal": nominal costs
  std::string weak;                          // weak rows that price it (weak_rows, pricer.h)
  bool nominal = false;                      // planned by nominal costs, which predict nothing
  std::vector<PlannedSchedule> packed = {};  // the plans in run.packed
};

/// Throws Unsupported with the reason if the job cannot run the plan.
void require_runnable_plan(const LayerJob& job, const Plan& plan);

/// Plans a schedule, tuned for the job's rounding. Throws Unsupported if it cannot be planned or run. If the job only
/// checks results and predicted_by lacks a price, the schedule is planned by nominal costs (profile.h).
PlannedSchedule plan_schedule(const LayerJob& job, const Schedule& schedule);
/// Plans the job's tried schedule at that degree, forward and backward.
PlannedSchedule plan_tried_degree(const LayerJob& job, int degree);

/// Plans a schedule at that degree, forward and backward, always by nominal costs.
PlannedSchedule plan_nominally(const LayerJob& job, const Schedule& schedule, int degree);

/// Returns an estimate of the seconds that the job runs on an emulated cluster; 0 if nothing can be planned.
double estimated_seconds(const LayerJob& job);

}  // namespace moe::commands
