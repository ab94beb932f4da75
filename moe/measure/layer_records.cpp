#include "moe/measure/layer_records.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/cost/fluid_replay.h"
#include "moe/cost/nominal_profile.h"
#include "moe/export/chrome_trace.h"
#include "moe/layer/binding.h"
#include "moe/measure/op_records.h"
#include "moe/measure/proxy.h"
#include "moe/measure/statistics.h"
#include "moe/rows/rank_shape.h"
#include "moe/search/layer_search.h"
#include "moe/search/within_memory.h"

namespace moe {
namespace {

struct Predicted {
  LayerResult result;
  PlannedRun run;
  Timeline timeline;
  std::string by;    // the profile's name
  std::string weak;  // weak_rows (pricer.h)
  bool nominal = false;
};

constexpr double kSetUp_s = 0.15;  // of a layer: its ranks, references and unpaced passes

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

Predicted predict_by(const Profile& profile, const Schedule& schedule, const LayerJob& job,
                     const DegreeChoice& degrees) {
  LayerSearch search;
  const LayerPricer pricer(profile, job.shape, job.pricing);
  Predicted p;
  p.result = search.tune(schedule, pricer, within_memory(degrees, profile.memory_bytes));
  p.by = profile.name;
  p.run.plan = build_plan(schedule, job.shape, p.result.decision);
  require_runnable(p.run.plan);
  const std::vector<double> seconds = price(pricer, p.run.plan);
  p.timeline = timeline_of(p.run.plan, seconds, profile.contention);
  p.weak = weak_rows(pricer.notes());
  p.run.forward_s = p.result.forward_s;
  p.run.backward_s = p.result.backward_s;
  const bool is_paced = job.paced_by && !job.settings.check_only;
  const std::vector<double> paced =
      is_paced ? price(LayerPricer(*job.paced_by, job.shape, job.pricing), p.run.plan) : seconds;
  for (const Task& task : p.run.plan.tasks()) p.run.task_seconds.push_back(paced[static_cast<size_t>(task.work_class)]);
  if (is_paced && slows_itself(p.run.plan, job.paced_by->contention)) {
    const Slowdown slowdown(job.paced_by->contention);
    p.run.slowdown = slowdown;
    if (slowdown.stalls()) p.run.stall = [slowdown](int of, int by) { return slowdown.stall_s(of, by); };
    p.run.resources = resources_of(p.run.plan);
  }
  return p;
}

// What is only checked needs no price.
Predicted predict(const Schedule& schedule, const LayerJob& job, const DegreeChoice& degrees) {
  try {
    return predict_by(job.predicted_by, schedule, job, degrees);
  } catch (const Unpriced&) {
    if (!job.settings.check_only) throw;
  }
  Predicted p = predict_by(nominal_profile(job.shape), schedule, job, degrees);
  p.nominal = true;
  return p;
}

Predicted predict_tried(const LayerJob& job, int degree) {
  DegreeChoice degrees = job.degrees;
  degrees.forward = degrees.backward = degree;
  return predict(*job.tried, job, degrees);
}

std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> d;
  for (size_t i = 0; i < a.size(); ++i) d.push_back(a[i] - b[i]);
  return d;
}

std::vector<double> predicted_task_seconds(const Predicted& p) {
  return differences(p.timeline.end_s, p.timeline.start_s);
}

double estimated_bytes(const Plan& plan) {
  MemoryRequest request;
  request.shape = plan.shape;
  request.replicated = plan.structure->flow == Flow::replicated;
  const MemoryEstimate estimate = estimate_memory(request);
  return estimate.total() - estimate.optimizer;
}

Fields prediction_of(const Predicted& p, const Plan& as_run) {
  if (p.nominal) return {{"peak_bytes", estimated_bytes(as_run)}};
  std::vector<TaskTime> times;
  for (size_t i = 0; i < p.timeline.start_s.size(); ++i) times.push_back({p.timeline.start_s[i], p.timeline.end_s[i]});
  const Overlap overlap = overlap_of(p.run.plan, times);
  Fields fields{{"forward_s", p.result.forward_s},      {"backward_s", p.result.backward_s},
                {"total_s", p.result.total_s()},        {"gar_in_moe_bytes", p.result.decision.gar_in_moe_bytes},
                {"exposed_s", overlap.exposed_s},       {"overlap_efficiency", overlap.efficiency},
                {"peak_bytes", estimated_bytes(as_run)}};
  if (!p.weak.empty()) fields.set("weak_rows", p.weak);
  return fields;
}

Fields checked_summary(const MeasuredRun& run) {
  return {{"worst_error", run.worst_error},  {"worst_tensor", run.worst_tensor}, {"proven_tokens", run.proven_tokens},
          {"drop_rate", run.load.drop_rate}, {"most_load", run.load.most_load},  {"mean_load", run.load.mean_load},
          {"imbalance", run.load.imbalance}, {"padding", run.load.padding},      {"peak_bytes", run.peak_bytes}};
}

void add_tasks(const std::vector<TaskComparison>& tasks, Fields& summary) {
  const TaskComparison* worst = nullptr;
  for (const TaskComparison& t : tasks) {
    if (t.median_ratio == 0) continue;
    summary.set(fmt::format("ratio_{}_{}", name_of(t.phase), name_of(t.kind)), t.median_ratio);
    if (worst == nullptr || farther_from_1(t.worst_ratio, worst->worst_ratio)) worst = &t;
  }
  if (worst == nullptr) return;
  summary.set("worst_task", worst->worst_task);
  summary.set("worst_task_ratio", worst->worst_ratio);
}

std::vector<double> min_over_ranks(const std::vector<std::vector<double>>& values) {
  std::vector<double> least;
  for (const auto& ranks : values) least.push_back(*std::ranges::min_element(ranks));
  return least;
}

void add_times(const MeasuredRun& run, CaseRecord& record) {
  const std::vector<double> forward = max_over_ranks(run.forward_s), total = max_over_ranks(run.total_s);
  record.samples = {{"forward_s", run.forward_s}, {"total_s", run.total_s}};
  record.summary.set("forward_s", median(forward));
  record.summary.set("backward_s", median(differences(total, forward)));
  record.summary.set("total_s", median(total));
  record.summary.set("least_total_s", quantile(total, 0));
  record.summary.set("most_total_s", quantile(total, 1));
  record.summary.set("exposed_s", median(max_over_ranks(run.exposed_s)));
  record.summary.set("overlap_efficiency", median(min_over_ranks(run.overlap)));
  if (run.paced_tasks == 0) return;
  const double share = overrun_share(run);
  record.summary.set("overrun_share", share);
  record.summary.set("repeats", int64_t{run.repeats});
  if (share <= kOverrunLimit) return;
  record.status = CaseStatus::invalid;
  record.reason = fmt::format("{:.1f} % of the tasks outlasted their modelled time", 100 * share);
}

CaseRecord record_of(const LayerJob& job, const Predicted& p, const MeasuredRun& run, const LayerMeasurement& all) {
  CaseRecord record;
  record.key = run_key(job.name, p.result.schedule);
  record.schedule = p.result.schedule;
  record.degree_forward = p.result.decision.degree_forward;
  record.degree_backward = p.result.decision.degree_backward;
  record.backend = job.backend();
  record.emulated = job.paced_by.has_value();
  record.dilation = all.dilation.factor;
  if (!p.nominal) record.bound_s = p.result.bound.total_s();
  record.prediction = prediction_of(p, run.plan);
  record.summary = checked_summary(run);
  record.summary.set("planned_by", p.by);
  if (!run.wrong.empty()) {
    record.status = CaseStatus::wrong;
    record.reason = run.wrong;
  }
  if (job.settings.check_only || !run.wrong.empty()) return record;
  add_times(run, record);
  record.summary.set("tensors_made", all.tensors_made);
  if (record.emulated) record.summary.set("dilation_set_by", all.dilation.set_by);
  record.summary.set("proving_wall_s", all.took.proving_s);
  record.summary.set("unpaced_wall_s", all.took.unpaced_s);
  record.summary.set("timed_wall_s", all.took.timed_s);
  return record;
}

}  // namespace

LayerOutcome run_layer_job(const LayerJob& job, const Fields& parameters) {
  std::vector<Predicted> predicted;
  LayerOutcome outcome;
  outcome.layer = job.name;
  std::vector<CaseRecord> unsupported;
  for (const Schedule* schedule : job.schedules) {
    try {
      predicted.push_back(predict(*schedule, job, job.degrees));
    } catch (const Unsupported& error) {
      unsupported.push_back(record_without_run(job, *schedule, CaseStatus::unsupported, error.what()));
      unsupported.back().parameters = parameters;
    }
  }
  const size_t own = predicted.size();
  for (const int degree : runnable_degrees(job)) {
    try {
      predicted.push_back(predict_tried(job, degree));
    } catch (const Unsupported& error) {
      outcome.tried.push_back(record_without_run(job, *job.tried, CaseStatus::unsupported, error.what()));
      outcome.tried.back().key = run_key(job.name, job.tried->name, degree);
      outcome.tried.back().parameters = parameters;
    }
  }
  std::vector<PlannedRun> planned;
  for (const Predicted& p : predicted) planned.push_back(p.run);
  LayerMeasurement measurement;
  if (!planned.empty()) measurement = measure_layer(planned, job.settings);
  for (size_t s = 0; s < predicted.size(); ++s) {
    const MeasuredRun& run = measurement.runs[s];
    CaseRecord record = record_of(job, predicted[s], run, measurement);
    record.parameters = parameters;
    std::vector<TaskComparison> tasks;
    if (!run.task_s.empty()) tasks = compare_tasks(run.plan, run.task_s, predicted_task_seconds(predicted[s]));
    add_tasks(tasks, record.summary);
    if (s >= own) {
      record.key = run_key(job.name, record.schedule, record.degree_forward);
      outcome.tried.push_back(std::move(record));
      continue;
    }
    outcome.records.push_back(std::move(record));
    outcome.plans.push_back(planned[s].plan);
    outcome.predicted.push_back(predicted[s].timeline);
    outcome.measured.push_back(run.median_tasks);
    outcome.tasks.push_back(std::move(tasks));
  }
  outcome.records.insert(outcome.records.end(), unsupported.begin(), unsupported.end());
  return outcome;
}

LayerOutcome failed_layer_job(const LayerJob& job, const Fields& parameters, CaseStatus status,
                              const std::string& reason) {
  LayerOutcome outcome;
  outcome.layer = job.name;
  for (const Schedule* schedule : job.schedules) {
    outcome.records.push_back(record_without_run(job, *schedule, status, reason));
    outcome.records.back().parameters = parameters;
  }
  return outcome;
}

std::vector<int> runnable_degrees(const LayerJob& job) {
  std::vector<int> degrees;
  const int most = job.tried ? largest_degree(LayerPricer(job.predicted_by, job.shape, job.pricing)) : 0;
  std::ranges::copy_if(job.tried_degrees, std::back_inserter(degrees), [&](int r) { return r <= most; });
  return degrees;
}

double estimated_seconds(const LayerJob& job) {
  std::vector<PlannedRun> planned;
  double pass_s = 0;
  const auto add = [&](const auto& predicted) {
    try {
      PlannedRun run = predicted().run;
      rank_shape(proxy_case(job.shape, run.plan.degree_forward, run.plan.degree_backward), 0);
      pass_s += run.forward_s + run.backward_s;
      planned.push_back(std::move(run));
    } catch (const Unsupported&) {
    } catch (const BadInput&) {  // no rank can hold such a layer
    }
  };
  for (const Schedule* schedule : job.schedules) add([&] { return predict(*schedule, job, job.degrees); });
  for (const int degree : runnable_degrees(job)) add([&] { return predict_tried(job, degree); });
  if (planned.empty()) return 0;
  return kSetUp_s + job.settings.iterations * pass_s * least_dilation(planned).factor;
}

std::string run_key(const std::string& layer, std::string_view schedule, int tried_degree) {
  return fmt::format("run/{}/{}{}", layer, schedule, tried_degree > 0 ? fmt::format("/r{}", tried_degree) : "");
}

double measured_over_predicted(const CaseRecord& record) {
  return record.summary.number("total_s", record.key) / record.prediction.number("total_s", record.key);
}

void write_layer_trace(const LayerOutcome& outcome, const std::string& path) {
  std::vector<std::vector<double>> starts, ends;
  std::vector<TraceGroup> groups;
  for (const auto& tasks : outcome.measured) {
    auto& start = starts.emplace_back();
    auto& end = ends.emplace_back();
    for (const TaskTime& t : tasks) start.push_back(t.start_s), end.push_back(t.end_s);
  }
  for (size_t s = 0; s < outcome.measured.size(); ++s) {
    const Plan& plan = outcome.plans[s];
    groups.push_back({plan.schedule + " measured", 0, &plan, starts[s], ends[s]});
    groups.push_back(
        {plan.schedule + " simulated", -1, &plan, outcome.predicted[s].start_s, outcome.predicted[s].end_s});
  }
  write_chrome_trace(groups, path);
}

}  // namespace moe
