#include "verbs/run/layer_run.h"

#include <algorithm>
#include <deque>
#include <functional>

#include "verbs/run/layer_records.h"
#include "verbs/run/schedule_batches.h"
#include "verbs/trace_file.h"

namespace moe::verbs {
namespace {

/// Holds a job's plans, of its schedules and then of its tried degrees, and the records of those that can't be planned.
struct PlannedJob {
  std::vector<PlannedSchedule> planned;
  size_t of_schedules = 0;
  std::vector<CaseRecord> unsupported, unsupported_tried;
};

PlannedJob plan(const LayerJob& job) {
  PlannedJob all;
  const auto add = [&](const std::function<PlannedSchedule()>& plan, const Schedule& schedule,
                       std::vector<CaseRecord>& unsupported) {
    try {
      all.planned.push_back(plan());
    } catch (const Unsupported& error) {
      unsupported.push_back(record_without_run(job, schedule, CaseStatus::unsupported, error.what()));
      return false;
    }
    return true;
  };
  for (const Schedule* schedule : job.schedules)
    add([&] { return plan_schedule(job, *schedule); }, *schedule, all.unsupported);
  all.of_schedules = all.planned.size();
  for (const int degree : runnable_degrees(job))
    if (!add([&] { return plan_tried(job, degree); }, *job.tried, all.unsupported_tried))
      all.unsupported_tried.back().key = run_key(job.name, job.tried->name, degree);
  return all;
}

std::vector<measure::LayerMeasurement> measure(const LayerJob& job, const std::vector<PlannedSchedule>& planned) {
  std::vector<measure::PlannedRun> runs;
  for (const PlannedSchedule& p : planned) runs.push_back(p.run);
  return runs.empty() ? std::vector<measure::LayerMeasurement>() : measure_in_batches(runs, job.settings);
}

void set_parameters(const Fields& parameters, LayerOutcome& outcome) {
  for (ScheduleRun& run : outcome.runs) run.record.parameters = parameters;
  for (CaseRecord& record : outcome.tried) record.parameters = parameters;
}

}  // namespace

LayerOutcome run_layer_job(const LayerJob& job, const Fields& parameters) {
  PlannedJob all = plan(job);
  const std::vector<measure::LayerMeasurement> batches = measure(job, all.planned);
  const std::vector<BatchedRun> runs = runs_of(batches);
  LayerOutcome outcome{job.name, {}, std::move(all.unsupported_tried)};
  for (size_t s = 0; s < all.planned.size(); ++s) {
    PlannedSchedule& planned = all.planned[s];
    const measure::MeasuredRun& measured = runs[s].run;
    const RanSchedule ran{planned, measured, runs[s].all};
    std::vector<measure::TaskComparison> tasks = compared_tasks(ran);
    CaseRecord record = record_of(job, ran, tasks);
    if (s < all.of_schedules) {
      outcome.runs.push_back({std::move(record), std::move(planned.run.plan), std::move(planned.timeline),
                              measured.median_ranks, measured.median_rank, std::move(tasks)});
    } else {
      record.key = run_key(job.name, record.schedule, record.degree_forward);
      outcome.tried.push_back(std::move(record));
    }
  }
  for (CaseRecord& record : all.unsupported) outcome.runs.push_back({std::move(record)});
  set_parameters(parameters, outcome);
  return outcome;
}

LayerOutcome run_or_record_why(const LayerJob& job, const Fields& parameters) {
  LayerOutcome outcome;
  const auto refusal = refusal_of([&] { outcome = run_layer_job(job, parameters); }, job.settings.ranks.processes);
  return refusal ? failed_layer_job(job, parameters, refusal->status, refusal->reason) : outcome;
}

LayerOutcome failed_layer_job(const LayerJob& job, const Fields& parameters, CaseStatus status,
                              const std::string& reason) {
  LayerOutcome outcome{job.name, {}};
  for (const Schedule* schedule : job.schedules)
    outcome.runs.push_back({record_without_run(job, *schedule, status, reason)});
  set_parameters(parameters, outcome);
  return outcome;
}

std::optional<LayerOutcome> known_outcome(const LayerJob& job, const RecordWriter& writer) {
  LayerOutcome outcome{job.name, {}};
  for (const Schedule* schedule : job.schedules) {
    const CaseRecord* record = writer.answered(run_key(job.name, schedule->name));
    if (record == nullptr) return std::nullopt;
    outcome.runs.push_back({*record});
  }
  for (const int degree : runnable_degrees(job)) {
    const CaseRecord* record = writer.answered(run_key(job.name, job.tried->name, degree));
    if (record == nullptr) return std::nullopt;
    outcome.tried.push_back(*record);
  }
  return outcome;
}

void append(const LayerOutcome& outcome, RecordWriter& writer) {
  const auto append_new = [&](const CaseRecord& record) {
    if (writer.find(record.key) == nullptr) writer.append(record);
  };
  for (const ScheduleRun& run : outcome.runs) append_new(run.record);
  for (const CaseRecord& record : outcome.tried) append_new(record);
}

void require_sound(const LayerOutcome& outcome, bool alone) {
  const std::vector<ScheduleRun>& runs = outcome.runs;
  for (const ScheduleRun& run : runs) require_right(run.record);
  const auto refused = [](const ScheduleRun& run) { return run.record.status == CaseStatus::unsupported; };
  if (!alone || runs.empty() || !std::ranges::all_of(runs, refused)) return;
  const CaseRecord& first = runs.front().record;
  throw Unsupported(fmt::format("{}: {}", runs.size() > 1 ? "every schedule" : first.schedule, first.reason));
}

bool was_timed(const LayerOutcome& outcome) {
  return std::ranges::any_of(outcome.runs, [](const ScheduleRun& run) { return !run.measured.empty(); });
}

namespace {

// Returns one rank's tasks; of a plan of several stages those of its own, which are all that it has run.
TraceGroup measured_group(const ScheduleRun& run, size_t rank, const Timeline& times, const std::string& cluster) {
  TraceGroup group{"measured", static_cast<int>(rank), &run.plan, times.start_s, times.end_s, cluster, &run.predicted};
  const int stages = run.plan.shape.parallel.pp;
  if (stages > 1 && run.measured.size() % static_cast<size_t>(stages) == 0)
    group.stage = static_cast<int>(rank / (run.measured.size() / static_cast<size_t>(stages)));
  return group;
}

}  // namespace

void write_layer_trace(const LayerOutcome& outcome, const TraceFlags& flags) {
  std::deque<Timeline> measured;  // groups see into it
  std::vector<TraceGroup> groups;
  for (const ScheduleRun& run : outcome.runs) {
    if (run.measured.empty()) continue;
    const Scalar* found = run.record.parameters.find("cluster");
    const std::string cluster = found != nullptr ? std::get<std::string>(*found) : "";
    const bool all = run.measured.size() * run.plan.tasks().size() <= kMostRankTasks;
    for (size_t rank = 0; rank < run.measured.size(); ++rank) {
      if (!all && static_cast<int>(rank) != run.rank) continue;
      Timeline& times = measured.emplace_back();
      for (const TaskTime& t : run.measured[rank]) times.start_s.push_back(t.start_s), times.end_s.push_back(t.end_s);
      groups.push_back(measured_group(run, rank, times, cluster));
      if (!all) groups.back().stage = -1;
    }
    groups.push_back(trace_group(run.plan, run.predicted, cluster));
  }
  write_trace(groups, flags);
}

}  // namespace moe::verbs
