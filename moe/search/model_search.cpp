#include "moe/search/model_search.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "moe/cost/fluid_replay.h"
#include "moe/search/micro_ops.h"

namespace moe {
namespace {

Partition exact(const PartitionProblem& problem) { return partition_exact(problem); }
Partition paper(const PartitionProblem& problem) { return partition_paper(problem); }

// Degrees of which no other is better with and without slices.
bool worse(const SplitPaths& a, const SplitPaths& b) {
  return a.neither >= b.neither && a.first >= b.first && a.second >= b.second && a.both >= b.both;
}

struct DegreePaths {
  std::vector<SplitPaths> paths;
  std::vector<int> degrees;
  void add(int degree, const SplitPaths& found) {
    for (const SplitPaths& other : paths)
      if (worse(found, other)) return;
    for (size_t i = paths.size(); i-- > 0;)
      if (worse(paths[i], found)) {
        paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(i));
        degrees.erase(degrees.begin() + static_cast<std::ptrdiff_t>(i));
      }
    paths.push_back(found);
    degrees.push_back(degree);
  }
};

// Where pieces of gradients go, as priority lets them: by place in a stage's backward. `plan` has all of them at the
// end. Every stage does as the first.
void place_micro_ops(const Schedule& schedule, const Plan& plan, std::span<const double> seconds,
                     ModelDecision& decision) {
  std::vector<MicroOp> pieces;
  for (const Task& task : plan.tasks()) {
    if (!sends_gradients(task.kind)) continue;
    const GradientSlice& slice = plan.slices[static_cast<size_t>(task.slice)];
    pieces.push_back({seconds[static_cast<size_t>(task.work_class)], task.lane,
                      plan.gradients[static_cast<size_t>(slice.gradient)].made_by});
  }
  const MicroOps frozen =
      freeze_micro_ops(*plan.structure, seconds, pieces, schedule.holds_micro_ops, plan.micro_batches - 1);
  const int layers = static_cast<int>(decision.backwards.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const MicroOps::Place place = frozen.places[i];
    if (plan.structure->lanes[static_cast<size_t>(pieces[i].lane)].stage == 0 && place.layer >= 0)
      decision.backwards[static_cast<size_t>(layers - 1 - place.layer)].gaps.push_back(place.gap);
  }
}

// Of one stage: its layers without gradients, whatever their degrees; gradients after them, or all that their lane
// does.
double stage_bound(const Schedule& schedule, const LayerPricer& pricer, int layers, int micro_batches) {
  BoundShape forward = bound_shape(schedule, pricer.groups(), Phase::forward);
  BoundShape backward = bound_shape(schedule, pricer.groups(), Phase::backward);
  const int lane = std::exchange(backward.gradient_lane, -1);
  const PhaseBound f(schedule, forward, pricer), b(schedule, backward, pricer);
  const double each = layers * micro_batches;
  const double seconds = each * (f.degree_free().seconds + b.degree_free().seconds);
  if (lane < 0) return seconds;
  const double gradients = pricer.gradient_seconds(layers * pricer.gradient_bytes());
  if (schedule.gradients == GradientPolicy::after) return seconds + gradients;
  return std::max(seconds, gradients + each * (f.busy(lane) + b.busy(lane)));
}

// More experts a device need more memory, which a rank may not have.
bool fits_packed(const LayerPricer& pricer, const ModelShape& model, const Decision& decision) {
  if (!pricer.profile().memory_bytes) return true;
  MemoryRequest request;
  request.shape = decided_case(model.shape, decision);
  request.layers = model.layers;
  request.micro_batches = model.micro_batches;
  request.order = model.order;
  return !misfit(estimate_memory(request), *pricer.profile().memory_bytes);
}

}  // namespace

std::span<const PartitionStrategy> partition_strategies() {
  static constexpr std::array kRows{
      PartitionStrategy{"exact", "dynamic programming over the bytes that wait", exact},
      PartitionStrategy{"paper", "FSMoE's two steps, the second by differential evolution", paper},
      PartitionStrategy{"step1", "FSMoE's first step alone: what each window hides", partition_step1},
      PartitionStrategy{"none", "all gradients after the backward", partition_none}};
  return kRows;
}

ModelResult ModelSearch::tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                              const PartitionStrategy& strategy, DegreeChoice choice) {
  const Request request{schedule, pricer, model, strategy, choice};
  if (!schedule.packs_experts) return tune_as(request, layers_.tune(schedule, pricer, choice));
  std::optional<ModelResult> best;
  for (const LayerResult& layer : layers_.tune_packings(schedule, pricer, choice)) {
    if (best && !fits_packed(request.pricer, model, layer.decision)) break;
    ModelResult result = tune_as(request, layer);
    if (!best || better(result.total_s(), best->total_s())) best = std::move(result);
  }
  return *std::move(best);
}

ModelResult ModelSearch::tune_as(const Request& request, const LayerResult& layer) {
  const auto& [schedule, pricer, model, strategy, choice] = request;
  const Schedule& planned = layer.decision.variant ? *layer.decision.variant : schedule;
  ModelResult result;
  result.schedule = schedule.name;
  result.variant = layer.decision.variant;
  ModelShape decided = model;
  decided.shape = decided_case(model.shape, layer.decision);
  const LayerPricer decided_pricer(pricer.profile(), decided.shape, pricer.options());
  const auto [first, last] = layers_of_stage(decided, 0);
  ModelDecision& decision = result.decision;
  decision.degree_forward = layer.decision.degree_forward;
  decision.degree_backward = layer.decision.degree_backward;
  decision.order_forward = layer.decision.order_forward;
  decision.micro_op_bytes = layer.decision.micro_op_bytes;
  decision.backwards.assign(static_cast<size_t>(last - first), {layer.decision.degree_backward, 0, 0, {}});
  if (splits_gradients(planned) && decided_pricer.has(GroupKind::dp))
    split({planned, decided_pricer, model, strategy, choice}, result);
  result.plan = build_model_plan(planned, decided, decision);
  std::vector<double> seconds = price(decided_pricer, result.plan);
  if (planned.gradients == GradientPolicy::micro_ops && !result.plan.slices.empty()) {
    place_micro_ops(planned, result.plan, seconds, decision);
    result.plan = build_model_plan(planned, decided, decision);
    seconds = price(decided_pricer, result.plan);
  }
  result.plan.schedule = schedule.name;
  result.timeline = timeline_of(result.plan, seconds, pricer.profile().contention);
  for (const Task& task : result.plan.tasks()) {
    if (task.phase == Phase::forward)
      result.last_forward_s = std::max(result.last_forward_s, result.timeline.end_s[static_cast<size_t>(task.id)]);
    if (task.kind == TaskKind::attention) result.last_backward = task.id;
  }
  result.bound_s = stage_bound(planned, decided_pricer, last - first, model.micro_batches);
  return result;
}

// One r_b a layer and a split of what waits there; a schedule with one degree for both phases keeps it.
void ModelSearch::split(const Request& request, ModelResult& result) {
  const auto& [schedule, pricer, model, strategy, choice] = request;
  DegreePaths tried;
  const bool apart = schedule.degrees == DegreePolicy::apart;
  const int fixed = apart ? choice.backward : result.decision.degree_forward;
  const int most = largest_degree(pricer);
  for (int r = fixed > 0 ? fixed : 1; r <= (fixed > 0 ? fixed : most); ++r)
    tried.add(r, layers_.backward_paths(schedule, pricer, r));
  const auto alone = std::ranges::min_element(tried.paths, {}, &SplitPaths::neither) - tried.paths.begin();
  result.decision.degree_backward = tried.degrees[static_cast<size_t>(alone)];
  const int layers = static_cast<int>(result.decision.backwards.size());
  PartitionProblem problem = partition_problem(schedule, pricer, layers, tried.paths);
  if (pricer.shape().parallel.pp == 1) problem.waiting_bytes = model.head_gradient_bytes;
  result.partition = strategy.solve(problem);
  for (size_t i = 0; i < result.decision.backwards.size(); ++i) {
    const LayerSlices& slices = result.partition.layers[i];
    const auto time_of = [&](const SplitPaths& paths) {
      return paths.seconds(pricer.slice_seconds(slices.moe_bytes), pricer.slice_seconds(slices.dense_bytes));
    };
    const auto best = std::ranges::min_element(tried.paths, {}, time_of) - tried.paths.begin();
    result.decision.backwards[i] = {tried.degrees[static_cast<size_t>(best)], slices.moe_bytes, slices.dense_bytes, {}};
  }
}

}  // namespace moe
