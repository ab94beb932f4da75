#pragma once
// What a schedule's run of a layer leaves in the records.
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/target.h"
#include "moe/measure/layers/overlap.h"
#include "moe/measure/ops/op_bench.h"
#include "moe/record/record.h"
#include "moe/record/writer.h"

namespace moe::commands {

/// What one schedule was planned as, and what `run` of `all` found.
struct RanSchedule {
  const PlannedSchedule& planned;
  const measure::MeasuredRun& run;
  const measure::LayerMeasurement& all;
};

/// Returns what one rank's layers of a plan take on such ranks, without an optimizer.
double estimated_bytes(const Plan& plan, const measure::BenchRanks& on);

/// Returns the tasks, measured beside predicted; none where the schedule was only checked, or planned by nominal costs.
std::vector<measure::TaskComparison> compared_tasks(const RanSchedule& ran);

/// Begins the names of a summary's fields of the kinds' excess.
inline constexpr std::string_view kExcess = "excess_s_";

/// Plans of more tasks leave no measured timeline in a record: it stays below 20 kB.
inline constexpr size_t kMostTimelineTasks = 200;

/// Sets `overrun_share` of a paced run; more than kOverrunLimit makes the record `invalid`, with the reason.
void judge_overruns(double share, CaseRecord& record);

/// Returns the record of a schedule that ran. More overruns than kOverrunLimit make it `invalid`. One that was only
/// checked has status ok and no samples, and where it was planned by nominal costs no prediction. Fields whose names do
/// not say what they hold:
///   summary      exposed_s, overlap_efficiency (overlap.h): medians over iterations of the worst rank;
///                excess_s_KIND: how much longer a kind's tasks took than predicted, both phases;
///                ratio_PHASE_KIND: the tasks' median of measured over predicted; worst_task, worst_task_ratio;
///                replayed_s: total_s of passes replayed as CUDA graphs, in turns with those that are issued
///                drop_rate, most_load, mean_load, imbalance, padding (moe_layer.h); peak_bytes: of the Tensors of a
///                rank's
///                layer; tensors_made: in the timed passes of all schedules
///                planned_by: name of the profile that decided degrees and order, "nominal" of nominal costs
///                proven_tokens: of the layer whose results were compared (layer_bench.h)
///                dilation_set_by (proxy.h); repeats: times its passes were discarded, being disturbed;
///                core_slowdown: how many times as long as at its best a probe took (CoreTimes)
///                out_of_time: 1 where there are fewer passes, or disturbed ones, because their time was used up
///                references: computed by all processes to verify all schedules of the layer
///                proving_wall_s, unpaced_wall_s, timed_wall_s: where the time of all the layer's schedules went
///                bubble: of a stack or a model, the share of a pass in which a rank waits for other stages
///                (working_seconds): the mean over ranks, the median over passes
///                steps, first_loss, last_loss, held_out_loss: of a model that was trained; samples: loss, by step;
///                states_bytes: of its optimizer's states, a rank
///                packing: how many times as many experts a device had in the end as in the beginning, if it packed
///                them online; times and memory are those of the steps from there on
///   prediction   exposed_s, overlap_efficiency, bubble of the replay; peak_bytes by estimate_memory, without optimizer
///                states; weak_rows: which rows of the profile are weak (fit.h), and why; absent: none
/// Loads and bytes are those of the layer that ran: on an emulated cluster of the proxy.
CaseRecord record_of(const LayerJob& job, const RanSchedule& ran, const std::vector<measure::TaskComparison>& tasks);

/// Returns the record of a schedule that did not run.
CaseRecord record_without_run(const LayerJob& job, const Schedule& schedule, CaseStatus status,
                              const std::string& reason);

/// Returns measured total over predicted total of an ok record.
double measured_over_predicted(const CaseRecord& record);

// Records that belong to no op: how lanes slow each other, how they overlap, and what handing over between them costs.

/// Adds slowdowns, overlaps (lane_bench.h) and the overhead of a target that was not measured before: those that
/// `writer` has, else measured now. Every process of the target calls it, with the same cases; the leading one writes.
void add_lane_records(const Target& target, RecordWriter& writer, const std::vector<measure::OpCase>& cases,
                      const measure::OpSettings& settings, std::vector<CaseRecord>& records);

}  // namespace moe::commands
