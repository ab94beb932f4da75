#include "commands/shared/run/layer_run.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <iterator>

#include "commands/shared/plan_file.h"
#include "commands/shared/run/layer_records.h"
#include "commands/shared/run/run_report.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/device/memory.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/layers/proxy.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/prices/profile.h"
#include "moe/search/degrees.h"
#include "moe/search/layer_search.h"
#include "moe/search/model_search.h"
#include "moe/sharding/rank_shape.h"
#include "moe/simulator/fluid_replay.h"

namespace moe::commands {
namespace {

/// A job's plans: first those of its schedules, then those of its tried degrees; and the records of those that cannot
/// be planned.
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
    if (!add([&] { return plan_tried_degree(job, degree); }, *job.tried, all.unsupported_tried))
      all.unsupported_tried.back().key = run_key(job.name, job.tried->name, degree);
  return all;
}

std::vector<measure::LayerMeasurement> measure(const LayerJob& job, const std::vector<PlannedSchedule>& planned) {
  std::vector<measure::PlannedRun> runs;
  for (const PlannedSchedule& p : planned) runs.push_back(p.run);
  return runs.empty() ? std::vector<measure::LayerMeasurement>() : measure_in_batches(runs, job.settings);
}

// Returns the plan of the schedule's last packing; without packing, its only plan.
const PlannedSchedule& last_plan(const PlannedSchedule& planned, const measure::MeasuredRun& run) {
  return run.packings.size() > 1 ? planned.packed[run.packings.size() - 2] : planned;
}

std::vector<PackingRun> packings_of(const PlannedSchedule& planned, const measure::MeasuredRun& run) {
  std::vector<PackingRun> packings;
  for (const measure::PackedSteps& steps : run.packings) {
    const PlannedSchedule& p = packings.empty() ? planned : planned.packed[packings.size() - 1];
    packings.push_back(
        {steps, p.run.forward_s + p.run.backward_s, estimate_memory(memory_request(p.run.plan)).total()});
  }
  return packings;
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
    const measure::MeasuredRun& measured = runs[s].run;
    const PlannedSchedule& planned = last_plan(all.planned[s], measured);
    const ScheduleRecord ran{planned, measured, runs[s].all};
    std::vector<measure::TaskComparison> tasks = compared_tasks(ran);
    CaseRecord record = record_of(job, ran, tasks);
    if (s < all.of_schedules) {
      outcome.runs.push_back({std::move(record), planned.run.plan, planned.timeline, measured.median_ranks,
                              measured.median_rank, std::move(tasks), packings_of(all.planned[s], measured)});
    } else {
      record.key = run_key(job.name, record.schedule, record.degree_forward);
      outcome.tried.push_back(std::move(record));
    }
  }
  for (CaseRecord& record : all.unsupported) outcome.runs.push_back({std::move(record)});
  set_parameters(parameters, outcome);
  return outcome;
}

LayerOutcome run_or_record_failure(const LayerJob& job, const Fields& parameters) {
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

std::optional<LayerOutcome> recorded_outcome(const LayerJob& job, const RecordWriter& writer) {
  LayerOutcome outcome{job.name, {}};
  for (const Schedule* schedule : job.schedules) {
    const CaseRecord* record = writer.finished_case(run_key(job.name, schedule->name));
    if (record == nullptr) return std::nullopt;
    outcome.runs.push_back({*record});
  }
  for (const int degree : runnable_degrees(job)) {
    const CaseRecord* record = writer.finished_case(run_key(job.name, job.tried->name, degree));
    if (record == nullptr) return std::nullopt;
    outcome.tried.push_back(*record);
  }
  return outcome;
}

void append(const LayerOutcome& outcome, RecordWriter& writer) {
  for (const ScheduleRun& run : outcome.runs) writer.append_new(run.record);
  for (const CaseRecord& record : outcome.tried) writer.append_new(record);
}

void require_correct_outcome(const LayerOutcome& outcome, bool alone) {
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

// Returns the trace of one rank; of a plan with several stages, only the tasks of the rank's stage.
TraceGroup measured_group(const ScheduleRun& run, size_t rank, const Timeline& times, const std::string& cluster) {
  TraceGroup group{"measured", static_cast<int>(rank), &run.plan, times.start_s, times.end_s, cluster, &run.predicted};
  const int stages = run.plan.shape.parallel.pp;
  if (stages > 1 && run.measured.size() % static_cast<size_t>(stages) == 0)
    group.stage = static_cast<int>(rank / (run.measured.size() / static_cast<size_t>(stages)));
  return group;
}

}  // namespace

void write_layer_trace(const LayerOutcome& outcome, const TraceFlags& flags) {
  std::deque<Timeline> measured;  // a deque, because `groups` refers to its elements
  std::vector<TraceGroup> groups;
  for (const ScheduleRun& run : outcome.runs) {
    if (run.measured.empty()) continue;
    const std::string* found = run.record.parameters.find_text("cluster");
    const std::string cluster = found != nullptr ? *found : "";
    const bool all = run.measured.size() * run.plan.tasks().size() <= kMaxRankTasks;
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

LayerJob layer_job_on(const Target& target, const Selection& selection, measure::LayerBenchSettings settings) {
  LayerJob job;
  if (target.emulated) job.paced_by = target.cluster;
  job.schedules = chosen_schedules(selection);
  job.degrees = selection.degrees;
  job.pricing = pricing_of(selection);
  job.settings = std::move(settings);
  job.settings.emulated = target.emulated;
  job.settings.ranks = target.ranks;
  return job;
}

std::optional<RunRefusal> refusal_of(const std::function<void()>& job, const World* processes) {
  try {
    job();
  } catch (const NoHardware&) {
    throw;
  } catch (const OutOfMemory& error) {
    if (processes != nullptr) throw;
    return RunRefusal{CaseStatus::oom, error.what()};
  } catch (const BadInput& error) {
    if (processes != nullptr && !dynamic_cast<const Unsupported*>(&error))
      throw;  // the failure has ended the other processes, too
    return RunRefusal{CaseStatus::unsupported, error.what()};
  } catch (const RankFailure& error) {
    if (processes != nullptr) throw;
    return RunRefusal{CaseStatus::error, error.what()};
  }
  return std::nullopt;
}

std::vector<int> runnable_degrees(const LayerJob& job) {
  std::vector<int> degrees;
  const int most = job.tried ? largest_degree(LayerPricer(job.predicted_by, job.shape(), job.pricing)) : 0;
  std::ranges::copy_if(job.tried_degrees, std::back_inserter(degrees), [&](int r) { return r <= most; });
  return degrees;
}

std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree) {
  return fmt::format("run/{}/{}{}", layer, schedule, tried_degree > 0 ? fmt::format("/r{}", tried_degree) : "");
}

namespace {

constexpr double kSetUpS = 0.15;  // seconds to set up a layer: its ranks, references and unpaced passes

// Sets the seconds of a run's tasks. In a paced run, these and the slowdown by other tasks determine how long tasks
// last; in other runs they are only the prediction.
void pace(const LayerJob& job, const std::vector<double>& predicted, measure::PlannedRun& run) {
  const bool paced = job.paced_by && !job.settings.check_only;
  const std::vector<double> seconds =
      paced ? price(LayerPricer(*job.paced_by, job.shape(), job.pricing), run.plan) : predicted;
  for (const Task& task : run.plan.tasks()) run.task_seconds.push_back(seconds[task.id]);
  if (!paced || !slows_itself(run.plan, job.paced_by->contention)) return;
  const Slowdown slowdown(job.paced_by->contention);
  run.slowdown = slowdown;
  if (slowdown.stalls()) run.stall = [slowdown](int of, int by) { return slowdown.stall_s(of, by); };
  run.resources = resources_of(run.plan);
}

void plan_layer(const LayerPricer& pricer, const Schedule& schedule, const DegreeChoice& degrees, PlannedSchedule& p) {
  LayerSearch search;
  const LayerResult result = search.tune(schedule, pricer, within_memory(degrees, pricer.profile().memory_bytes));
  p.schedule = result.schedule;
  p.run.plan = build_plan(schedule, pricer.shape(), result.decision);
  p.degree_backward = result.decision.degree_backward;
  p.gar_in_moe_bytes = result.decision.gar_in_moe_bytes;
  p.gar_after_bytes = result.decision.gar_after_bytes;
  p.bound_s = result.bound.total_s();
  p.run.forward_s = result.forward_s;
  p.run.backward_s = result.backward_s;
}

// Takes the plan of a file unchanged, with the bound of its schedule.
void take_plan(const LayerPricer& pricer, const Schedule& schedule, const Plan& plan, PlannedSchedule& p) {
  p.schedule = schedule.name;
  p.run.plan = plan;
  p.degree_backward = plan.degree_backward;
  p.bound_s = bound_seconds(plan, pricer);
}

void plan_stack(const LayerPricer& pricer, const ModelShape& model, const Schedule& schedule,
                const DegreeChoice& degrees, PlannedSchedule& p) {
  ModelSearch search;
  ModelResult result =
      search.tune(schedule, pricer, model, within_memory(degrees, pricer.profile().memory_bytes, model));
  p.schedule = result.schedule;
  p.degree_backward = result.plan.degree_backward;
  p.bound_s = result.bound_s;
  p.run.forward_s = result.last_forward_s;
  p.run.backward_s = result.total_s() - result.last_forward_s;
  p.run.plan = std::move(result.plan);
}

// Predicts the times of a file's plan by a replay, because no search did.
void predict_by_replay(const LayerPricer& pricer, PlannedSchedule& p) {
  const PlanTimes times = times_of(p.run.plan, pricer);
  p.run.forward_s = times.forward_s;
  p.run.backward_s = times.backward_s;
  p.gar_in_moe_bytes = times.gar_in_moe_bytes;
}

PlannedSchedule plan_by(const Profile& profile, const LayerJob& job, const Schedule& schedule,
                        const DegreeChoice& degrees) {
  const LayerPricer pricer(profile, job.shape(), job.pricing);
  PlannedSchedule p;
  p.by = profile.name;
  if (job.plan)
    take_plan(pricer, schedule, *job.plan, p);
  else if (job.is_one_layer())
    plan_layer(pricer, schedule, degrees, p);
  else
    plan_stack(pricer, job.model, schedule, degrees, p);
  require_runnable_plan(job, p.run.plan);
  p.degree_forward = p.run.plan.degree_forward;
  const std::vector<double> seconds = price(pricer, p.run.plan);
  p.timeline = timeline_of(p.run.plan, seconds, profile.contention);
  if (job.plan) predict_by_replay(pricer, p);
  p.weak = weak_rows(pricer.notes());
  pace(job, seconds, p.run);
  return p;
}

PlannedSchedule plan(const LayerJob& job, const Schedule& schedule, const DegreeChoice& degrees) {
  const auto nominal = [&] {
    PlannedSchedule p = plan_by(nominal_profile(job.shape()), job, schedule, degrees);
    p.nominal = true;
    return p;
  };
  if (!job.predicted) return nominal();
  try {
    return plan_by(job.predicted_by, job, schedule, degrees);
  } catch (const Unpriced&) {
    if (!job.settings.check_only) throw;
  }
  return nominal();
}

// A ring runs on the CPU alone, with multi-head attention, and on an emulated cluster with all its ranks.
void require_ring_runs(const LayerJob& job, const Plan& plan) {
  if (plan.shape.parallel.ring_blocks() == 0) return;
  require<Unsupported>(job.settings.ranks.device == DeviceKind::cpu,
                       "cp-exchange: found ring, expected allgather: on GPUs a ring is planned, not run");
  require<Unsupported>(!is_latent(plan.shape.layer),
                       "cp-exchange: found ring, expected allgather: with latent attention a ring is planned, not run");
  if (job.paced_by) measure::proxy_case(plan.shape, plan.degree_forward, plan.degree_backward);
}

}  // namespace

void require_runnable_plan(const LayerJob& job, const Plan& plan) {
  measure::require_runs(plan);
  require_ring_runs(job, plan);
  if (!job.paced_by) require_runnable_fields(job.shape().layer);
}

PlannedSchedule plan_schedule(const LayerJob& job, const Schedule& schedule) {
  if (!job.packs_online || !schedule.packs_experts) return plan(job, schedule, job.degrees);
  DegreeChoice degrees = job.degrees;
  degrees.packing = 1;
  PlannedSchedule planned = plan(job, schedule, degrees);
  const int ep = job.shape().parallel.ep, most = job.paced_by ? measure::max_proxy_packing(job.shape()) : ep;
  const auto warn = [&](int packing, std::string_view why) {
    if (job.settings.ranks.is_leader())
      log_warning(fmt::format("{} packs at most {} times as many experts per device: {}", schedule.name, packing, why));
  };
  if (ep == 1) warn(1, "EP has one device");
  if (most < ep) warn(most, "the proxy layer of an emulated cluster has few devices");
  try {
    for (degrees.packing = 2; degrees.packing <= most && ep % degrees.packing == 0; degrees.packing *= 2)
      planned.packed.push_back(plan(job, schedule, degrees));
  } catch (const Unsupported& error) {
    warn(degrees.packing / 2, error.what());
  }
  for (const PlannedSchedule& packed : planned.packed) planned.run.packed.push_back(packed.run);
  return planned;
}

PlannedSchedule plan_tried_degree(const LayerJob& job, int degree) {
  DegreeChoice degrees = job.degrees;
  degrees.forward = degrees.backward = degree;
  return plan(job, *job.tried, degrees);
}

PlannedSchedule plan_nominally(const LayerJob& job, const Schedule& schedule, int degree) {
  DegreeChoice degrees;
  degrees.forward = degrees.backward = degree;
  return plan_by(nominal_profile(job.shape()), job, schedule, degrees);
}

double estimated_seconds(const LayerJob& job) {
  std::vector<measure::PlannedRun> planned;
  double pass_s = 0;
  const auto add = [&](const auto& plan) {
    try {
      measure::PlannedRun run = plan().run;
      rank_shape(measure::proxy_case(job.shape(), run.plan.degree_forward, run.plan.degree_backward), 0);
      pass_s += run.forward_s + run.backward_s;
      planned.push_back(std::move(run));
    } catch (const Unsupported&) {
    } catch (const BadInput&) {  // such a layer cannot be distributed over the ranks
    }
  };
  for (const Schedule* schedule : job.schedules) add([&] { return plan_schedule(job, *schedule); });
  for (const int degree : runnable_degrees(job)) add([&] { return plan_tried_degree(job, degree); });
  if (planned.empty()) return 0;
  return kSetUpS + job.settings.iterations * pass_s * min_dilation(planned).factor;
}

}  // namespace moe::commands
