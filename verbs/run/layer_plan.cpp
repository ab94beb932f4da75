#include "verbs/run/layer_plan.h"

#include "moe/base/check.h"
#include "moe/cost/fluid_replay.h"
#include "moe/cost/nominal_profile.h"
#include "moe/measure/layers/proxy.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/rows/rank_shape.h"
#include "moe/search/layer_search.h"
#include "moe/search/model_search.h"
#include "moe/search/within_memory.h"
#include "verbs/plan_file.h"

namespace moe::verbs {
namespace {

constexpr double kSetUpS = 0.15;  // of a layer: its ranks, references and unpaced passes

// Sets how long the tasks of an emulated run last, and how they slow each other down; of any other run, what they are
// predicted to take.
void pace(const LayerJob& job, const std::vector<double>& predicted, measure::PlannedRun& run) {
  const bool paced = job.paced_by && !job.settings.check_only;
  const std::vector<double> seconds =
      paced ? price(LayerPricer(*job.paced_by, job.shape, job.pricing), run.plan) : predicted;
  for (const Task& task : run.plan.tasks()) run.task_seconds.push_back(seconds[static_cast<size_t>(task.work_class)]);
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

// Takes the plan of a file as it stands; its bound is the schedule's.
void take_plan(const LayerPricer& pricer, const Schedule& schedule, const Plan& plan, PlannedSchedule& p) {
  p.schedule = schedule.name;
  p.run.plan = plan;
  p.degree_backward = plan.degree_backward;
  p.bound_s = LayerSearch().tune(schedule, pricer).bound.total_s();
}

void plan_stack(const LayerPricer& pricer, const Stacked& stacked, const Schedule& schedule,
                const DegreeChoice& degrees, PlannedSchedule& p) {
  const ModelShape model = stacked_model(pricer.shape(), stacked);
  ModelSearch search;
  ModelResult result = search.tune(schedule, pricer, model, partition_strategies().front(),
                                   within_memory(degrees, pricer.profile().memory_bytes, model));
  p.schedule = result.schedule;
  p.degree_backward = result.plan.degree_backward;
  p.bound_s = result.bound_s;
  p.run.forward_s = result.last_forward_s;
  p.run.backward_s = result.total_s() - result.last_forward_s;
  p.run.plan = std::move(result.plan);
}

// Predicts a file's plan by a replay, since no search has.
void predict_by_replay(const LayerPricer& pricer, PlannedSchedule& p) {
  const PlanTimes times = times_of(p.run.plan, pricer);
  p.run.forward_s = times.forward_s;
  p.run.backward_s = times.backward_s;
  p.gar_in_moe_bytes = times.gar_in_moe_bytes;
}

PlannedSchedule plan_by(const Profile& profile, const LayerJob& job, const Schedule& schedule,
                        const DegreeChoice& degrees) {
  const LayerPricer pricer(profile, job.shape, job.pricing);
  PlannedSchedule p;
  p.by = profile.name;
  if (job.plan)
    take_plan(pricer, schedule, *job.plan, p);
  else if (job.one_layer())
    plan_layer(pricer, schedule, degrees, p);
  else
    plan_stack(pricer, job.stacked, schedule, degrees, p);
  require_runs_of(job, p.run.plan);
  p.degree_forward = p.run.plan.degree_forward;
  const std::vector<double> seconds = price(pricer, p.run.plan);
  p.timeline = timeline_of(p.run.plan, seconds, profile.contention);
  if (job.plan) predict_by_replay(pricer, p);
  p.weak = weak_rows(pricer.notes());
  pace(job, seconds, p.run);
  return p;
}

PlannedSchedule plan(const LayerJob& job, const Schedule& schedule, const DegreeChoice& degrees) {
  if (job.predicted) try {
      return plan_by(job.predicted_by, job, schedule, degrees);
    } catch (const Unpriced&) {
      if (!job.settings.check_only) throw;
    }
  PlannedSchedule p = plan_by(nominal_profile(job.shape), job, schedule, degrees);
  p.nominal = true;
  return p;
}

}  // namespace

void require_runs_of(const LayerJob& job, const Plan& plan) {
  measure::require_runs(plan);
  require<Unsupported>(
      job.paced_by.has_value() || job.shape.layer.node_limit == 0,
      "node-limit {}: gates choose experts of any nodes, expected none in runs that are not paced (tune "
      "--no-verify and simulate plan with it)",
      job.shape.layer.node_limit);
}

ModelShape stacked_model(const LayerCase& shape, const Stacked& stacked) {
  ModelShape model;
  model.shape = shape;
  model.layers = stacked.layers;
  model.micro_batches = stacked.micro_batches;
  model.order = stacked.order;
  model.virtual_stages = stacked.virtual_stages;
  model.dense = stacked.dense;
  model.step = {true, stacked.clips, stacked.optimizer, stacked.tied};
  add_end_tasks(model, stacked.vocabulary);
  return model;
}

PlannedSchedule plan_schedule(const LayerJob& job, const Schedule& schedule) {
  return plan(job, schedule, job.degrees);
}

PlannedSchedule plan_tried(const LayerJob& job, int degree) {
  DegreeChoice degrees = job.degrees;
  degrees.forward = degrees.backward = degree;
  return plan(job, *job.tried, degrees);
}

PlannedSchedule plan_nominally(const LayerJob& job, const Schedule& schedule, int degree) {
  DegreeChoice degrees;
  degrees.forward = degrees.backward = degree;
  return plan_by(nominal_profile(job.shape), job, schedule, degrees);
}

double estimated_seconds(const LayerJob& job) {
  std::vector<measure::PlannedRun> planned;
  double pass_s = 0;
  const auto add = [&](const auto& plan) {
    try {
      measure::PlannedRun run = plan().run;
      rank_shape(measure::proxy_case(job.shape, run.plan.degree_forward, run.plan.degree_backward), 0);
      pass_s += run.forward_s + run.backward_s;
      planned.push_back(std::move(run));
    } catch (const Unsupported&) {
    } catch (const BadInput&) {  // no rank can hold such a layer
    }
  };
  for (const Schedule* schedule : job.schedules) add([&] { return plan_schedule(job, *schedule); });
  for (const int degree : runnable_degrees(job)) add([&] { return plan_tried(job, degree); });
  if (planned.empty()) return 0;
  return kSetUpS + job.settings.iterations * pass_s * least_dilation(planned).factor;
}

}  // namespace moe::verbs
