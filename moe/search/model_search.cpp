#include "moe/search/model_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "moe/cost/fluid_replay.h"
#include "moe/cost/model_bound.h"
#include "moe/search/contended_bound.h"
#include "moe/search/micro_ops.h"
#include "moe/search/model_partition.h"
#include "moe/search/priced_dense.h"
#include "moe/search/variants.h"

namespace moe {
namespace {

Partition exact(const PartitionProblem& problem) { return partition_exact(problem); }
Partition paper(const PartitionProblem& problem) { return partition_paper(problem); }

// Decides where pieces of gradients go, as priority lets them: by place in a stage's backward. `plan` has all of them
// at the end. Every stage does as the first, unless stages_apart.
void place_micro_ops(const ModelShape& model, const Schedule& schedule, const Plan& plan,
                     std::span<const double> seconds, ModelDecision& decision) {
  std::vector<search::MicroOp> pieces;
  for (const Task& task : plan.tasks()) {
    if (!sends_gradients(task.kind) || task.phase == Phase::step) continue;
    const GradientSlice& slice = plan.slices[static_cast<size_t>(task.slice)];
    pieces.push_back({seconds[static_cast<size_t>(task.work_class)], task.lane,
                      plan.gradients[static_cast<size_t>(slice.gradient)].made_by});
  }
  const search::MicroOps frozen =
      search::freeze_micro_ops(*plan.structure, seconds, pieces, schedule.holds_micro_ops, plan.micro_batches - 1);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const search::MicroOps::Place place = frozen.places[i];
    const int stage = plan.structure->lanes[static_cast<size_t>(pieces[i].lane)].stage;
    if (place.layer < 0 || (stage > 0 && !stages_apart(model))) continue;
    decision.backwards[decision_of(model, place.layer)].gaps.push_back(place.gap);
  }
}

// Prices degrees of these phases, the same of both, until no larger one's bound is below the least of them. That bound
// knows no contention, and is looser than a pass's own: so it stands for degrees alone that few layers have.
void add_passes(search::LayerReplay& layer, std::span<const Phase> phases, int fixed, search::PricedPasses& passes) {
  const auto of = [&](Phase phase) -> search::PricedDegrees& {
    return phase == Phase::forward ? passes.forward : passes.backward;
  };
  const auto from = [&](int degree) {
    double seconds = 0;
    for (const Phase phase : phases) seconds += layer.bound(phase).pass_from(degree);
    return seconds;
  };
  double least = std::numeric_limits<double>::infinity();
  constexpr int kPassesAtLeast = 64;
  int next = 1;
  for (const int r : tried_degrees(fixed, layer.pricer)) {
    if ((next = r) > kPassesAtLeast && none_from(r, least, from)) break;
    double seconds = 0;
    for (const Phase phase : phases) seconds += of(phase).passes.emplace_back(layer.pass(r, phase)).makespan_s;
    least = std::min(least, seconds);
    next = r + 1;
  }
  if (fixed > 0 || next > capacity_rows(layer.pricer.shape())) return;
  for (const Phase phase : phases) {
    const PhaseBound bound = layer.bound(phase);
    of(phase).beyond_s = bound.pass_from(next);
    if (bound.gradient_lane() >= 0) of(phase).busy_beyond_s = bound.busy(bound.gradient_lane(), next);
  }
}

// Returns what no decision for a stage with one micro-batch can beat, contention counted.
// `dense`: of its dense layers; null: it has none.
double least_seconds(search::LayerReplay layer, search::LayerReplay* dense, const ModelShape& model,
                     const DegreeChoice& choice) {
  const Schedule& schedule = layer.schedule;
  const LayerPricer& pricer = layer.pricer;
  search::PricedPasses passes{{},
                              {},
                              schedule.degrees != DegreePolicy::apart,
                              schedule.searched_order,
                              model.embedding_gradient_bytes,
                              model.head_gradient_bytes};
  constexpr std::array kBoth{Phase::forward, Phase::backward};
  if (passes.same_degree) {
    const int fixed = std::max(choice.forward, choice.backward);
    add_passes(layer, kBoth, schedule.degrees == DegreePolicy::one ? 1 : fixed, passes);
  } else {
    add_passes(layer, std::span(kBoth).first(1), choice.forward, passes);
    add_passes(layer, std::span(kBoth).last(1), choice.backward, passes);
  }
  search::PricedDense priced;
  if (dense != nullptr)
    priced = {model.dense.in(0, model.layers), model.dense.has(model.layers - 1), model.dense.has(0),
              dense->pricer.gradient_bytes(),  dense->pass(1, Phase::forward),    dense->pass(1, Phase::backward)};
  return search::least_model_seconds(pricer, model.layers - priced.layers, passes, priced, splits_gradients(schedule));
}

}  // namespace

std::span<const PartitionStrategy> partition_strategies() {
  static constexpr std::array kRows{
      PartitionStrategy{"exact", "dynamic programming, beside all others replayed; under contention from the best down",
                        exact},
      PartitionStrategy{"paper", "FSMoE's two steps, the second by differential evolution", paper},
      PartitionStrategy{"step1", "FSMoE's first step alone: what each window hides", partition_step1},
      PartitionStrategy{"none", "all gradients after the backward", partition_none}};
  return kRows;
}

ModelResult ModelSearch::tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                              const PartitionStrategy& strategy, DegreeChoice choice) {
  choice = within_rows(choice, pricer);
  const Asked asked{schedule, pricer, model, strategy, choice};
  if (!schedule.packs_experts) {
    LayerResult layer = layers_.tune(schedule, pricer, choice);
    ModelResult result = tune_as(asked, layer);
    const int degree = layer.decision.degree_forward;
    const bool is_open = choice.forward == 0 && schedule.degrees == DegreePolicy::shared;
    if (is_open && schedule.gradients == GradientPolicy::micro_ops) try_degrees(asked, layer, result.total_s());
    return layer.decision.degree_forward == degree ? result : tune_as(asked, layer);
  }
  std::optional<ModelResult> best;
  double bound_s = std::numeric_limits<double>::infinity(), at_least_s = bound_s;  // of all packings
  for (const LayerResult& layer : tune_packings(layers_.replay(schedule, pricer), choice)) {
    ModelResult result = tune_as(asked, layer);
    bound_s = std::min(bound_s, result.bound_s);
    at_least_s = std::min(at_least_s, result.at_least_s);
    if (!best || search::better(result.total_s(), best->total_s())) best = std::move(result);
  }
  best->bound_s = bound_s;
  best->at_least_s = at_least_s;
  return *std::move(best);
}

// The degree that is best where pieces of gradients fill a layer's idle lanes need not be the best of a whole model: of
// several micro-batches the last alone sends pieces. So the model is replayed at each degree that a bound leaves open.
void ModelSearch::try_degrees(const Asked& asked, LayerResult& layer, double least_s) {
  const auto& [schedule, pricer, model, strategy, choice] = asked;
  const int known = layer.decision.degree_forward;
  const auto bound = [&](BoundedDegrees degrees) { return model_bound(schedule, pricer, model, degrees); };
  std::vector<std::pair<double, int>> open;
  for (const int r : tried_degrees(0, pricer)) {
    if (none_from(r, least_s, [&](int least) { return bound({.least = least}); })) break;
    if (r != known) open.emplace_back(bound({.exact = r}), r);
  }
  std::ranges::sort(open);
  ModelSearch replays(false);
  for (const auto& [bound_s, r] : open) {
    if (!search::better(bound_s, least_s)) break;
    LayerResult other = layer;
    other.decision.degree_forward = other.decision.degree_backward = r;
    other.decision.gaps.clear();
    const double seconds = replays.tune_as(asked, other).total_s();
    if (!search::better(seconds, least_s)) continue;
    least_s = seconds;
    layer = other;
  }
}

ModelResult ModelSearch::tune_as(const Asked& asked, const LayerResult& layer) {
  const auto& [schedule, pricer, model, strategy, choice] = asked;
  const Schedule& planned = layer.decision.variant ? *layer.decision.variant : schedule;
  ModelResult result;
  result.schedule = schedule.name;
  result.variant = layer.decision.variant;
  ModelShape decided = model;
  decided.shape = decided_case(model.shape, layer.decision);
  // All layers cut the rows of that one, so that none pads them anew.
  if (decided.shape.rounding == Rounding::lcm) decided.shape.row_multiple = padded_rows(decided.shape);
  const LayerPricer decided_pricer(pricer.profile(), decided.shape, pricer.options());
  const bool has_dense = !decided.dense.none(decided.layers);
  const LayerPricer* dense_pricer = has_dense ? &decided_pricer.dense(decided.dense.hidden) : nullptr;
  check_size(planned, decided, layer.decision.degree_forward, 1);  // before a search over all layers
  ModelDecision& decision = result.decision;
  decision.degree_forward = layer.decision.degree_forward;
  decision.degree_backward = layer.decision.degree_backward;
  decision.order_forward = layer.decision.order_forward;
  decision.micro_op_bytes = layer.decision.micro_op_bytes;
  decision.backwards.assign(static_cast<size_t>(decided_layers(decided)), {layer.decision.degree_backward, 0, 0, {}});
  for (size_t i = 0; i < decision.backwards.size(); ++i)
    if (decides_dense(decided, i)) decision.backwards[i].degree = 1;
  if (splits_gradients(planned) && decided_pricer.has(GroupKind::dp)) {
    search::LayerReplay replay = layers_.replay(planned, decided_pricer);
    std::optional<search::LayerReplay> dense;
    if (dense_pricer) dense.emplace(layers_.replay(planned, *dense_pricer));
    search::split_gradients({replay, decided, strategy, choice, dense ? &*dense : nullptr}, layer.decision, result);
  }
  const bool places = planned.gradients == GradientPolicy::micro_ops;
  const auto build = checks_ ? build_model_plan : timed_model_plan;
  result.plan = (places ? timed_model_plan : build)(planned, decided, decision);
  std::vector<double> seconds = price(decided_pricer, result.plan);
  if (places) {
    if (!result.plan.slices.empty()) place_micro_ops(decided, planned, result.plan, seconds, decision);
    result.plan = build(planned, decided, decision);
    seconds = price(decided_pricer, result.plan);
  }
  result.plan.schedule = schedule.name;
  result.timeline = timeline_of(result.plan, seconds, pricer.profile().contention);
  for (const Task& task : result.plan.tasks()) {
    if (task.runs_in() == Phase::forward)
      result.last_forward_s = std::max(result.last_forward_s, result.timeline.end_s[static_cast<size_t>(task.id)]);
    if (makes_attention_gradients(task.kind)) result.last_backward = task.id;
  }
  // The bound holds for all degrees: padding only adds rows.
  LayerCase unpadded = decided.shape;
  unpadded.row_multiple = 1;
  const LayerPricer least_pricer(pricer.profile(), unpadded, pricer.options());
  result.bound_s = result.at_least_s = model_bound(planned, least_pricer, decided);
  const bool decides_places = splits_gradients(planned) || planned.gradients == GradientPolicy::after;
  const bool alone = decided.step.planned && pricer.profile().contention.none();
  const double step_s = alone ? step_least_seconds(planned, least_pricer, decided) : 0;
  const bool bounds_places = planned.flow == Flow::sharded && decides_places;
  if (!bounds_places || model.micro_batches > 1 || decided.shape.parallel.pp > 1) return result;
  std::optional<search::LayerReplay> dense;
  if (dense_pricer) dense.emplace(layers_.replay(planned, *dense_pricer));
  const double least_s =
      least_seconds(layers_.replay(planned, least_pricer), dense ? &*dense : nullptr, decided, choice);
  result.at_least_s = std::max(result.bound_s, least_s + step_s);
  return result;
}

}  // namespace moe
