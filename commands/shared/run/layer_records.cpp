#include "commands/shared/run/layer_records.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/exec/overhead.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/measure/ops/lane_bench.h"
#include "moe/plan/memory.h"
#include "moe/prices/fit.h"
#include "moe/record/pass_times.h"

namespace moe::commands {
namespace {

std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> d;
  for (size_t i = 0; i < a.size(); ++i) d.push_back(a[i] - b[i]);
  return d;
}

// `run_bytes`: predicted bytes of the layer that ran.
Fields prediction_of(const PlannedSchedule& p, double run_bytes) {
  if (p.nominal) return {{"peak_bytes", run_bytes}};
  std::vector<TaskTime> times;
  for (size_t i = 0; i < p.timeline.start_s.size(); ++i) times.push_back({p.timeline.start_s[i], p.timeline.end_s[i]});
  const measure::Overlap overlap = measure::overlap_of(p.run.plan, times);
  Fields fields{{"forward_s", p.run.forward_s},
                {"backward_s", p.run.backward_s},
                {"total_s", p.run.forward_s + p.run.backward_s},
                {"gar_in_moe_bytes", p.gar_in_moe_bytes},
                {"exposed_s", overlap.exposed_s},
                {"overlap_efficiency", overlap.efficiency},
                {"peak_bytes", run_bytes}};
  if (p.gar_after_bytes > 0) fields.set("gar_after_bytes", p.gar_after_bytes);
  if (!measure::is_one_layer(p.run.plan)) fields.set("bubble", measure::bubble_of(p.run.plan, times));
  if (!p.weak.empty()) fields.set("weak_rows", p.weak);
  return fields;
}

Fields checked_summary(const measure::MeasuredRun& run) {
  return {{"worst_error", run.worst_error},  {"worst_tensor", run.worst_tensor}, {"proven_tokens", run.proven_tokens},
          {"drop_rate", run.load.drop_rate}, {"most_load", run.load.max_load},   {"mean_load", run.load.mean_load},
          {"imbalance", run.load.imbalance}, {"padding", run.load.padding},      {"peak_bytes", run.peak_bytes}};
}

void add_tasks(const std::vector<measure::TaskComparison>& tasks, Fields& summary) {
  const measure::TaskComparison* worst = nullptr;
  std::map<TaskKind, double> excess_s;
  for (const measure::TaskComparison& t : tasks) excess_s[t.kind] += t.measured_s - t.predicted_s;
  for (const auto& [kind, seconds] : excess_s) summary.set(fmt::format("{}{}", kExcess, name_of(kind)), seconds);
  for (const measure::TaskComparison& t : tasks) {
    if (t.median_ratio == 0) continue;
    summary.set(fmt::format("ratio_{}_{}", name_of(t.phase), name_of(t.kind)), t.median_ratio);
    if (worst == nullptr || measure::is_farther_from_1(t.worst_ratio, worst->worst_ratio)) worst = &t;
  }
  if (worst == nullptr) return;
  summary.set("worst_task", worst->worst_task);
  summary.set("worst_task_ratio", worst->worst_ratio);
}

// Returns the share of a pass in which ranks wait for other stages: the mean over ranks, and the median over passes.
double bubble(const measure::MeasuredRun& run, const std::vector<double>& total_s) {
  std::vector<double> shares;
  for (size_t i = 0; i < total_s.size(); ++i) shares.push_back(1 - mean(run.working_s[i]) / total_s[i]);
  return median(shares);
}

void add_times(const measure::MeasuredRun& run, CaseRecord& record) {
  const std::vector<double> forward = max_over_ranks(run.forward_s), total = max_over_ranks(run.total_s);
  record.samples = {{"forward_s", run.forward_s}, {"total_s", run.total_s}};
  record.summary.set("forward_s", median(forward));
  record.summary.set("backward_s", median(differences(total, forward)));
  record.summary.set("total_s", median(total));
  record.summary.set("least_total_s", quantile(total, 0));
  record.summary.set("most_total_s", quantile(total, 1));
  if (const auto interval = median_interval(total)) {
    record.summary.set("total_low_s", interval->low);
    record.summary.set("total_high_s", interval->high);
  }
  record.summary.set("exposed_s", median(max_over_ranks(run.exposed_s)));
  record.summary.set("overlap_efficiency", median(min_over_ranks(run.overlap)));
  if (!run.replayed_s.empty()) {
    record.samples.push_back({"replayed_s", run.replayed_s});
    record.summary.set("replayed_s", median(max_over_ranks(run.replayed_s)));
  }
  if (!measure::is_one_layer(run.plan)) record.summary.set("bubble", bubble(run, total));
  record.summary.set("repeats", int64_t{run.repeats});
  if (run.core_slowdown > 0) record.summary.set("core_slowdown", run.core_slowdown);
  if (run.paced_tasks == 0) return;
  judge_overruns(measure::overrun_share(run), record);
}

// Rounds to whole nanoseconds, because shorter numbers keep the record small.
double rounded_to_ns(double seconds) { return std::round(seconds * 1e9) / 1e9; }

MeasuredTimeline measured_timeline(const PlannedSchedule& p, const measure::MeasuredRun& run) {
  MeasuredTimeline timeline{run.median_rank, !p.nominal, {}};
  if (!measure::is_one_layer(run.plan) || run.plan.tasks().size() > kMaxTimelineTasks) return timeline;
  for (const Task& task : run.plan.tasks()) {
    const LaneKind lane = run.plan.structure->lanes[task.lane].kind;
    MeasuredTask& row = timeline.tasks.emplace_back(
        MeasuredTask{std::string(name_of(task.kind)), std::string(name_of(task.execution_phase())),
                     std::string(name_of(lane)), task.chunk, task.chunks,
                     rounded_to_ns(run.median_tasks[task.id].start_s), rounded_to_ns(run.median_tasks[task.id].end_s)});
    if (p.nominal) continue;
    row.predicted_start_s = rounded_to_ns(p.timeline.start_s[task.id]);
    row.predicted_end_s = rounded_to_ns(p.timeline.end_s[task.id]);
  }
  return timeline;
}

void add_losses(const measure::MeasuredRun& run, CaseRecord& record) {
  record.samples.push_back({"loss", single_rank_samples(run.losses)});
  record.summary.set("states_bytes", run.states_bytes);
  record.summary.set("steps", static_cast<int64_t>(run.losses.size()));
  record.summary.set("first_loss", run.losses.front());
  record.summary.set("last_loss", run.losses.back());
  if (run.held_out_loss != 0) record.summary.set("held_out_loss", run.held_out_loss);
  if (!run.packings.empty()) record.summary.set("packing", int64_t{run.packings.back().packing});
}

void add_all(const measure::LayerMeasurement& all, const measure::MeasuredRun& run, CaseRecord& record) {
  record.summary.set("tensors_made", all.tensors_made);
  if (record.emulated) record.summary.set("dilation_set_by", run.dilation.set_by);
  if (run.out_of_time) record.summary.set("out_of_time", int64_t{1});
  record.summary.set("proving_wall_s", all.took.proving_s);
  record.summary.set("unpaced_wall_s", all.took.unpaced_s);
  record.summary.set("timed_wall_s", all.took.timed_s);
}

}  // namespace

void judge_overruns(double share, CaseRecord& record) {
  record.summary.set("overrun_share", share);
  if (share <= measure::kOverrunLimit) return;
  record.status = CaseStatus::invalid;
  record.reason = fmt::format("{:.1f} % of the tasks took longer than their modelled time", 100 * share);
}

double estimated_bytes(const Plan& plan, const measure::BenchRanks& on) {
  MemoryRequest request = memory_request(plan);
  request.scores = stores_attention_scores(on.device, on.attention);
  request.keeps_ends = true;
  const MemoryEstimate estimate = measure::is_one_layer(plan)
                                      ? layer_memory(plan.shape, plan.structure->flow, request.scores)
                                      : estimate_memory(request);
  return estimate.total() - estimate.optimizer;
}

std::vector<measure::TaskComparison> compared_tasks(const ScheduleRecord& ran) {
  if (ran.run.task_s.empty() || ran.planned.nominal) return {};
  const Timeline& predicted = ran.planned.timeline;
  return measure::compare_tasks(ran.run.plan, ran.run.task_s, differences(predicted.end_s, predicted.start_s));
}

CaseRecord record_of(const LayerJob& job, const ScheduleRecord& ran,
                     const std::vector<measure::TaskComparison>& tasks) {
  const auto& [planned, run, all] = ran;
  CaseRecord record;
  record.key = run_key(job.name, planned.schedule);
  record.schedule = planned.schedule;
  record.degree_forward = planned.degree_forward;
  record.degree_backward = planned.degree_backward;
  record.backend = job.backend();
  record.emulated = job.paced_by.has_value();
  record.dilation = run.dilation.factor;
  if (!planned.nominal) record.bound_s = planned.bound_s;
  record.prediction = prediction_of(planned, estimated_bytes(run.plan, job.settings.ranks));
  record.summary = checked_summary(run);
  record.summary.set("planned_by", planned.by);
  record.summary.set("references", all.references);
  if (run.wrong) {
    record.status = CaseStatus::wrong;
    record.reason = *run.wrong;
  }
  if (job.settings.check_only || run.wrong) return record;
  add_times(run, record);
  record.measured_timeline = measured_timeline(planned, run);
  add_all(all, run, record);
  if (!run.losses.empty()) add_losses(run, record);
  add_tasks(tasks, record.summary);
  return record;
}

CaseRecord record_without_run(const LayerJob& job, const Schedule& schedule, CaseStatus status,
                              const std::string& reason) {
  CaseRecord record;
  record.key = run_key(job.name, schedule.name);
  record.schedule = schedule.name;
  record.backend = job.backend();
  record.emulated = job.paced_by.has_value();
  record.status = status;
  record.reason = reason;
  return record;
}

double measured_over_predicted(const CaseRecord& record) {
  return record.summary.number("total_s", record.key) / record.prediction.number("total_s", record.key);
}

namespace {

using Numbers = std::vector<std::vector<double>>;

CaseRecord record_for(const Target& target, std::string key, std::string_view op) {
  CaseRecord record;
  record.key = std::move(key);
  record.backend = target.backend();
  record.parameters = case_parameters(target.cluster, op);
  return record;
}

CaseRecord record_of(const measure::LaneSlowdown& slowdown, const Target& target) {
  CaseRecord record = record_for(target, fmt::format("slowdown/{}/{}", slowdown.lane, slowdown.by), "slowdown");
  record.parameters.set("lane", slowdown.lane);
  record.parameters.set("by", slowdown.by);
  record.samples = {{"alone_s", single_rank_samples(slowdown.alone_s)},
                    {"beside_s", single_rank_samples(slowdown.beside_s)}};
  record.summary = {
      {"alone_s", median(slowdown.alone_s)}, {"beside_s", median(slowdown.beside_s)}, {"factor", slowdown.factor()}};
  if (slowdown.out_of_time) record.summary.set("out_of_time", int64_t{1});
  return record;
}

CaseRecord record_of(const measure::LaneOverlap& overlap, const Target& target) {
  CaseRecord record = record_for(target, fmt::format("overlap/{}/{}", overlap.lane, overlap.other), "overlap");
  record.parameters.set("lane", overlap.lane);
  record.parameters.set("other", overlap.other);
  record.samples = {{"alone_s", single_rank_samples(overlap.alone_s)},
                    {"other_alone_s", single_rank_samples(overlap.other_alone_s)},
                    {"both_s", single_rank_samples(overlap.both_s)}};
  record.summary = {{"alone_s", median(overlap.alone_s)},
                    {"other_alone_s", median(overlap.other_alone_s)},
                    {"both_s", median(overlap.both_s)},
                    {"overlap", overlap.overlap()}};
  if (overlap.out_of_time) record.summary.set("out_of_time", int64_t{1});
  return record;
}

// Measures the cost of a task and of a hand-over between lanes, and returns those of the slowest process.
CaseRecord overhead_record(const Target& target) {
  const int here = target.ranks.processes ? 1 : target.cluster.nodes * target.cluster.ranks_per_node;
  Overhead overhead = measure_overhead(here, kOverheadRuns, target.ranks.device);
  if (target.ranks.processes)
    for (const auto& rank : gather(*target.ranks.processes, Numbers{{overhead.task_s, overhead.crossing_s}})) {
      overhead.task_s = std::max(overhead.task_s, rank.at(0));
      overhead.crossing_s = std::max(overhead.crossing_s, rank.at(1));
    }
  CaseRecord record = record_for(target, "overhead", "overhead");
  record.summary = {{"task_s", overhead.task_s}, {"crossing_s", overhead.crossing_s}};
  if (overhead.replayed_task_s > 0) {
    record.summary.set("kernel_task_s", overhead.kernel_task_s);
    record.summary.set("replayed_task_s", overhead.replayed_task_s);
  }
  return record;
}

void take_known(const RecordWriter& writer, std::vector<CaseRecord>& records) {
  for (const char* lane : {"inter", "intra", "compute"})
    for (const char* by : {"inter", "intra", "compute"})
      for (const char* what : {"slowdown", "overlap"})
        if (const CaseRecord* record = writer.find(fmt::format("{}/{}/{}", what, lane, by))) records.push_back(*record);
  if (const CaseRecord* record = writer.find("overhead")) records.push_back(*record);
}

}  // namespace

void add_lane_records(const Target& target, RecordWriter& writer, const std::vector<measure::OpCase>& cases,
                      const measure::OpSettings& settings, std::vector<CaseRecord>& records) {
  if (target.measured) return;
  if (target.leader_value(writer.find("overhead") != nullptr)) return take_known(writer, records);
  const auto keep = [&](const CaseRecord& record) {
    if (!target.is_leader()) return;
    writer.append_new(record);
    records.push_back(record);
  };
  const measure::LaneTimes lanes = measure::bench_lanes(target.ranks, cases, settings);
  for (const measure::LaneSlowdown& slowdown : lanes.slowdowns) keep(record_of(slowdown, target));
  for (const measure::LaneOverlap& overlap : lanes.overlaps) keep(record_of(overlap, target));
  keep(overhead_record(target));
}

}  // namespace moe::commands
