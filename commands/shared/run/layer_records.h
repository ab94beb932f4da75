#pragma once
// Records of schedules that ran on a layer or model.
#include <vector>

#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/target.h"
#include "moe/measure/layers/overlap.h"
#include "moe/measure/ops/op_bench.h"
#include "moe/record/record.h"
#include "moe/record/writer.h"

namespace moe::commands {

/// A schedule's plan and its run, which is part of the measurement `all`.
struct ScheduleRecord {
  const PlannedSchedule& planned;
  const measure::MeasuredRun& run;
  const measure::LayerMeasurement& all;
};

/// Returns the bytes of memory of the plan's layers on one rank, without the optimizer's states.
double estimated_bytes(const Plan& plan, const measure::BenchRanks& on);

/// Returns the measured and predicted times of tasks by kind; empty if the schedule was only checked, or planned by
/// nominal costs.
std::vector<measure::TaskComparison> compared_tasks(const ScheduleRecord& ran);

/// Prefix of the summary's fields excess_s_KIND (record_of).
inline constexpr std::string_view kExcess = "excess_s_";

/// Largest number of tasks of a plan whose measured timeline is recorded, which keeps a record below 20 kB.
inline constexpr size_t kMaxTimelineTasks = 200;

/// Sets `overrun_share` of a paced run. A share above kOverrunLimit makes the record `invalid`, with a reason.
void judge_overruns(double share, CaseRecord& record);

/// Returns the record of a schedule that ran; judge_overruns may make it `invalid`. The record of a schedule that was
/// only checked has status ok and no samples and, if it was planned by nominal costs, no prediction. Fields that need a
/// definition:
///   summary      exposed_s, overlap_efficiency (overlap.h): medians over iterations of the worst rank
///                excess_s_KIND: measured minus predicted seconds of the tasks of a kind, in both phases
///                ratio_PHASE_KIND: median over tasks of measured over predicted; worst_task, worst_task_ratio: the
///                task with the ratio farthest from 1
///                replayed_s: total_s of passes that are replayed as CUDA graphs, alternating with issued passes
///                drop_rate, most_load, mean_load, imbalance, padding (moe_layer.h)
///                peak_bytes: peak memory of a rank's Tensors; tensors_made: Tensors made in all timed passes
///                planned_by: name of the profile that decided degrees and order; "nominal": nominal costs
///                proven_tokens: tokens of the layer whose results were verified (layer_bench.h)
///                dilation_set_by (proxy.h); repeats: number of times that disturbed passes were discarded
///                core_slowdown: time of a probe over its shortest time (CoreTimes)
///                out_of_time: 1 if the time limit cut passes, or left no time to repeat disturbed ones
///                references: number of references computed by all processes to verify the layer's schedules
///                proving_wall_s, unpaced_wall_s, timed_wall_s: wall time of all schedules of the layer, by step
///                bubble: share of a pass in which a rank waits for other stages (working_seconds), the mean over
///                ranks and median over passes; only with several layers or stages
///                steps, first_loss, last_loss, held_out_loss: of a model that was trained; samples `loss`: by step
///                states_bytes: bytes of the optimizer's states on a rank
///                packing: experts of a device at the end over those at the beginning, if experts were packed online;
///                times and memory are then those of the last packing
///   prediction   exposed_s, overlap_efficiency, bubble: of the replay; peak_bytes: by estimate_memory, without
///                optimizer states; weak_rows: weak rows of the profile (fit.h) with reasons; absent: none
/// Loads and bytes are those of the layer that ran, which is the proxy on an emulated cluster.
CaseRecord record_of(const LayerJob& job, const ScheduleRecord& ran, const std::vector<measure::TaskComparison>& tasks);

/// Returns the record of a schedule that did not run.
CaseRecord record_without_run(const LayerJob& job, const Schedule& schedule, CaseStatus status,
                              const std::string& reason);

/// Returns measured total over predicted total of an ok record.
double measured_over_predicted(const CaseRecord& record);

// Records of lanes: their slowdown by each other, their overlap, and the cost of a hand-over between them.

/// Adds the records of slowdowns, overlaps (lane_bench.h) and overhead if the target has to be measured. Takes them
/// from `writer` if it has them, else measures them. Every process of the target has to call it with the same cases;
/// the leading process writes.
void add_lane_records(const Target& target, RecordWriter& writer, const std::vector<measure::OpCase>& cases,
                      const measure::OpSettings& settings, std::vector<CaseRecord>& records);

}  // namespace moe::commands
