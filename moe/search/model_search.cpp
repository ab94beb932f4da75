#include "moe/search/model_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "moe/base/check.h"
#include "moe/schedule/schedules.h"
#include "moe/search/contended_bound.h"
#include "moe/search/detail/lane_order.h"
#include "moe/search/detail/micro_ops.h"
#include "moe/search/detail/model_partition.h"
#include "moe/search/detail/model_replay.h"
#include "moe/search/layer_search.h"
#include "moe/search/partition.h"
#include "moe/search/wave.h"
#include "moe/simulator/fluid_replay.h"
#include "moe/simulator/model_bound.h"

namespace moe {
namespace {

Partition exact(const PartitionProblem& problem) { return partition_exact(problem); }
Partition paper(const PartitionProblem& problem) { return partition_paper(problem); }

// Decides between which tasks of a stage's backward the pieces of gradients are sent, by Lina's priorities. `plan` has
// all pieces at its end. All stages are decided like the first, unless stages_decide_separately().
void place_micro_ops(const ModelShape& model, const Schedule& schedule, const Plan& plan,
                     std::span<const double> seconds, ModelDecision& decision) {
  std::vector<search::MicroOp> pieces;
  for (const Task& task : plan.tasks()) {
    if (!sends_gradients(task.kind) || task.phase == Phase::step) continue;
    const GradientSlice& slice = plan.slices[task.slice];
    pieces.push_back({seconds[task.id], task.lane, plan.gradients[slice.gradient].made_by});
  }
  const search::MicroOps frozen = search::freeze_micro_ops(*plan.structure, seconds, pieces, schedule.holds_micro_ops,
                                                           last_backward(plan.micro_batches, plan.split()));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const search::MicroOps::Place place = frozen.places[i];
    const int stage = plan.structure->lanes[pieces[i].lane].stage;
    if (place.layer < 0 || (stage > 0 && !stages_decide_separately(model))) continue;
    decision.backwards[decision_of(model, place.layer)].gaps.push_back(place.gap);
  }
}

// Adds the passes of these phases for ascending degrees (the same in each phase), until the bound of all larger degrees
// exceeds the fastest pass so far. That bound ignores contention and is looser than a pass's own time, so it is used
// only beyond kPassesAtLeast degrees; few layers have more.
void add_passes(search::LayerReplay& layer, std::span<const Phase> phases, int fixed, search::PricedLayers& passes) {
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
    if ((next = r) > kPassesAtLeast && no_faster_degree_from(r, least, from)) break;
    double seconds = 0;
    for (const Phase phase : phases) seconds += of(phase).passes.emplace_back(layer.pass(r, phase)).makespan_s;
    least = std::min(least, seconds);
    next = r + 1;
  }
  if (fixed > 0 || next > capacity_rows(layer.pricer.shape())) return;
  for (const Phase phase : phases) {
    const PhaseBound bound = layer.bound(phase);
    of(phase).beyond_s = bound.pass_from(next);
    if (bound.gradient_lane() >= 0) of(phase).busy_beyond_s = bound.busy(bound.gradient_lane(), {.min = next});
  }
}

// Replays the result's plan and sets its times.
void set_times(const std::vector<double>& seconds, const Profile& profile, ModelResult& result) {
  result.timeline = timeline_of(result.plan, seconds, profile.contention);
  result.last_forward_s = 0;
  for (const Task& task : result.plan.tasks()) {
    if (task.execution_phase() == Phase::forward)
      result.last_forward_s = std::max(result.last_forward_s, result.timeline.end_s[task.id]);
    if (makes_attention_gradients(task.kind)) result.last_backward = task.id;
  }
}

search::KindReplays kind_replays(LayerSearch& layers, const Schedule& schedule, const LayerPricer& pricer,
                                 const ModelShape& model) {
  search::KindReplays replays;
  const KindPricers pricers = kind_pricers(pricer, model.dense, model.whole, model.layers);
  for (const LayerKind kind : kAllLayerKinds)
    if (pricers[kind] != nullptr) replays[kind].emplace(layers.replay(schedule, *pricers[kind]));
  return replays;
}

// Returns a lower bound over all decisions for one stage with one micro-batch, contention included.
double min_seconds(search::KindReplays& kinds, const LayerPricer& pricer, const ModelShape& model,
                   const Schedule& schedule, const DegreeChoice& choice) {
  constexpr std::array kBoth{Phase::forward, Phase::backward};
  std::vector<search::PricedLayers> all;
  for (const LayerKind kind : kAllLayerKinds) {
    if (!kinds[kind]) continue;
    search::LayerReplay& layer = *kinds[kind];
    search::PricedLayers& priced = all.emplace_back();
    for (int i = 0; i < model.layers; ++i) priced.layers += model.kind(i) == kind ? 1 : 0;
    priced.first = model.kind(model.layers - 1) == kind;
    priced.last = model.kind(0) == kind;
    priced.made_bytes = layer.pricer.gradient_bytes();
    if (is_dense(kind)) {
      priced.forward.passes.push_back(layer.pass(1, Phase::forward));
      priced.backward.passes.push_back(layer.pass(1, Phase::backward));
      continue;
    }
    priced.same_degree = schedule.degrees != DegreePolicy::apart;
    priced.any_order = schedule.searched_order;
    if (priced.same_degree) {
      const int fixed = std::max(choice.forward, choice.backward);
      add_passes(layer, kBoth, schedule.degrees == DegreePolicy::one ? 1 : fixed, priced);
    } else {
      add_passes(layer, std::span(kBoth).first(1), choice.forward, priced);
      add_passes(layer, std::span(kBoth).last(1), choice.backward, priced);
    }
  }
  return search::min_model_seconds(pricer, all, {model.embedding_gradient_bytes, model.head_gradient_bytes},
                                   splits_gradients(schedule));
}

// Returns the numbers of layers whose activations an iteration may keep, largest first: default_kept_layers() and, for
// `wave`, also those that keep one more pass or one more layer than the minimum (raised_kept_layers()), if these are
// smaller.
std::vector<int> kept_layers(const ModelShape& model, IterationOrder order) {
  std::vector<int> kept{default_kept_layers(model, order)};
  if (order == IterationOrder::any)
    for (const int keep : {raised_kept_layers(model, 1), raised_kept_layers(model, 0)})
      if (keep < kept.back()) kept.push_back(keep);
  return kept;
}

WaveChoice wave_choice(const Schedule& schedule, DegreeChoice choice, int keep) {
  check_choice(schedule, choice);
  return {.keep = keep, .forward = choice.forward, .backward = choice.backward, .order = schedule.iteration};
}

// Returns the memory request of an iteration whose stages keep the activations of `keep` layers, with the smallest
// number of sets of everything else.
MemoryRequest min_request(const ModelShape& model, int keep) {
  MemoryRequest request = memory_request(model, model.shape, kWave.flow);
  const bool recomputes = model.shape.parallel.recompute == Recompute::full;
  const StageSplit split = model.split();
  for (int stage = 0; stage < split.stages; ++stage) {
    const int layers = layers_in(split, stage), chunk = layers / split.virtual_stages;
    const int kept = std::min(keep, layers * model.micro_batches);
    StageSlots slots{.kept = recomputes ? 1 : kept, .outputs = kept - (kept + chunk - 1) / chunk};
    if (!recomputes) slots.kept_dense = model.dense_in(stage) * kept / layers;
    request.slots.push_back(slots);
  }
  return request;
}

// A schedule that may be faster than `wave`, and a lower bound on its seconds.
struct Rival {
  double bound_s;
  const Schedule* schedule;
};

double min_of(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model, BoundShapes& shapes) {
  double min_s = model_bound(schedule, pricer, model, {}, shapes);
  for (int packing = 2; schedule.packs_experts && model.shape.parallel.ep % packing == 0; packing *= 2) try {
      ModelShape packed = model;
      packed.shape = decided_case(model.shape, {.packing = packing});
      const LayerPricer own(pricer.profile(), packed.shape, pricer.options());
      min_s = std::min(min_s, model_bound(schedule, own, packed, {}, shapes));
    } catch (const Unpriced&) {  // the profile has no rows for the smaller groups
      break;
    }
  return min_s;
}

// Returns the rivals in ascending order of their bounds.
std::vector<Rival> rivals_of(const LayerPricer& pricer, const ModelShape& model, const DegreeChoice& choice) {
  std::vector<Rival> rivals;
  BoundShapes shapes;
  for (const Schedule* other : rivals_of_wave()) {
    try {
      const double bound_s =
          other->orders_iterations()
              ? wave_bound(pricer, model, wave_choice(*other, choice, default_kept_layers(model, other->iteration)))
              : min_of(*other, pricer, model, shapes);
      rivals.push_back({bound_s, other});
    } catch (const BadInput&) {  // the schedule can't run the model, or a price is missing
    }
  }
  std::ranges::stable_sort(rivals, {}, &Rival::bound_s);
  return rivals;
}

}  // namespace

std::vector<const Schedule*> rivals_of_wave() {
  std::vector<const Schedule*> rivals;
  for (const Schedule& schedule : all_schedules())
    if (schedule.iteration != IterationOrder::any && schedule.variants.empty()) rivals.push_back(&schedule);
  return rivals;
}

std::span<const PartitionStrategy> partition_strategies() {
  static constexpr std::array kRows{
      PartitionStrategy{"exact", "dynamic programming, beside all others replayed; under contention from the best down",
                        exact, true},
      PartitionStrategy{"paper", "FSMoE's two steps, the second by differential evolution", paper, false, true},
      PartitionStrategy{"step1", "FSMoE's first step alone: what each window hides", partition_step1},
      PartitionStrategy{"none", "all gradients after the backward", partition_none}};
  return kRows;
}

ModelResult ModelSearch::tune(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model,
                              DegreeChoice choice, const PartitionStrategy& strategy) {
  choice = within_rows(choice, pricer);
  const SearchQuery query{schedule, pricer, model, strategy, choice};
  if (schedule.orders_iterations()) return tune_iteration(query);
  if (!schedule.packs_experts) {
    LayerResult layer = layers_.tune(schedule, pricer, choice);
    ModelResult result = tune_as(query, layer);
    const int degree = layer.decision.degree_forward;
    const bool is_open = choice.forward == 0 && schedule.degrees == DegreePolicy::shared;
    if (is_open && schedule.gradients == GradientPolicy::micro_ops) try_degrees(query, layer, result.total_s());
    return layer.decision.degree_forward == degree ? result : tune_as(query, layer);
  }
  std::optional<ModelResult> best;
  double bound_s = std::numeric_limits<double>::infinity(), at_least_s = bound_s;  // minimum over all packings
  for (const LayerResult& layer : tune_packings(layers_.replay(schedule, pricer), choice)) {
    ModelResult result = tune_as(query, layer);
    bound_s = std::min(bound_s, result.bound_s);
    at_least_s = std::min(at_least_s, result.at_least_s);
    if (!best || search::is_better(result.total_s(), best->total_s())) best = std::move(result);
  }
  best->bound_s = bound_s;
  best->at_least_s = at_least_s;
  return *std::move(best);
}

// Replays the whole model at each degree that no bound excludes. The degree that is best for one layer, whose idle
// lanes send pieces of gradients, need not be best for a model, because only the last micro-batch sends pieces.
void ModelSearch::try_degrees(const SearchQuery& query, LayerResult& layer, double min_s) {
  const auto& [schedule, pricer, model, strategy, choice] = query;
  const int known = layer.decision.degree_forward;
  const auto bound = [&query](BoundedDegrees degrees) {  // clang 14 can't capture structured bindings
    return model_bound(query.schedule, query.pricer, query.model, degrees);
  };
  std::vector<std::pair<double, int>> open;
  for (const int r : tried_degrees(0, pricer)) {
    if (no_faster_degree_from(r, min_s, [&](int least) { return bound({.min = least}); })) break;
    if (r != known) open.emplace_back(bound({.exact = r}), r);
  }
  std::ranges::sort(open);
  ModelSearch replays(false);
  for (const auto& [bound_s, r] : open) {
    if (!search::is_better(bound_s, min_s)) break;
    LayerResult other = layer;
    other.decision.degree_forward = other.decision.degree_backward = r;
    other.decision.gaps.clear();
    const double seconds = replays.tune_as(query, other).total_s();
    if (!search::is_better(seconds, min_s)) continue;
    min_s = seconds;
    layer = other;
  }
}

namespace {

void require_iteration(const Schedule& schedule, const ModelShape& model) {
  check_shape(schedule, model.shape);
  require_usable(model.shape.parallel.pp == 1 || schedule.iteration == IterationOrder::any, schedule,
                 "found {} pipeline stages, expected 1", model.shape.parallel.pp);
  require_usable(model.split().parts == 1 || schedule.iteration == IterationOrder::any, schedule,
                 "found samples in {} parts, expected 1", model.split().parts);
  const int64_t passes = int64_t{1} * model.layers * model.micro_batches;
  require_usable(model.shape.parallel.pp == 1 || passes <= kMaxStagedPasses, schedule,
                 "found {} layers of {} micro-batches on {} stages, expected at most {} in all", model.layers,
                 model.micro_batches, model.shape.parallel.pp, kMaxStagedPasses);
}

}  // namespace

ModelResult ModelSearch::tune_iteration(const SearchQuery& query) {
  const auto& [schedule, pricer, model, strategy, choice] = query;
  require_iteration(schedule, model);
  const auto holds = [&query](const MemoryRequest& request) {  // clang 14 can't capture structured bindings
    return !query.choice.fits_memory || query.choice.fits_memory(request);
  };
  const std::vector<int> memories = kept_layers(model, schedule.iteration);
  ModelResult best;
  bool fits = false;
  for (const int keep : memories) {
    if (keep != memories.back() && !holds(min_request(model, keep))) continue;
    best = order_iteration(query, keep);
    if ((fits = holds(memory_request(best.plan)))) break;
  }
  if (schedule.iteration != IterationOrder::any || !choice.considers_rivals) return best;
  const bool may_fit = fits || holds(memory_request(model, model.shape, schedule.flow));
  const LayerPricer apart(pricer.profile(), pricer.shape(),
                          pricer.options());  // separate, because notes on rivals' prices don't belong to the result
  for (const auto& [bound_s, rival] : rivals_of(apart, model, choice)) {
    best.bound_s = best.at_least_s = std::min(best.bound_s, bound_s);
    if (!search::is_better(bound_s, best.total_s()) && (fits || !may_fit)) break;
    const auto known = choice.known_s.find(rival);
    if (fits && known != choice.known_s.end() && !search::is_better(known->second, best.total_s())) continue;
    std::optional<ModelResult> other = tune_rival(query, *rival, apart);
    if (!other) continue;
    const bool other_fits = holds(memory_request(other->plan));
    const bool takes = other_fits == fits ? search::is_better(other->total_s(), best.total_s()) : other_fits;
    if (!takes) continue;
    other->bound_s = other->at_least_s = best.bound_s;
    best = std::move(*other);
    fits = other_fits;
  }
  if (best.variant != nullptr) price(pricer, best.plan);  // adds the notes on its prices
  best.schedule = schedule.name;
  best.plan.schedule = schedule.name;
  return best;
}

std::optional<ModelResult> ModelSearch::tune_rival(const SearchQuery& query, const Schedule& rival,
                                                   const LayerPricer& pricer) {
  try {
    ModelResult result = tune(rival, pricer, query.model, query.choice, query.strategy);
    if (result.variant == nullptr) result.variant = &rival;
    return result;
  } catch (const BadInput&) {
    return std::nullopt;
  }
}

ModelResult ModelSearch::order_iteration(const SearchQuery& query, int keep) {
  const auto& [schedule, pricer, model, strategy, choice] = query;
  const WaveChoice wave = wave_choice(schedule, choice, keep);
  WaveResult found = search_wave(pricer, model, wave, {{}, std::numeric_limits<double>::infinity(), {}});
  ModelResult result;
  result.schedule = schedule.name;
  result.plan = std::move(found.plan);
  result.plan.schedule = schedule.name;
  result.decision = wave_decision(model, *found.degrees);
  set_times(price(pricer, result.plan), pricer.profile(), result);
  result.bound_s = result.at_least_s = wave_bound(pricer, model, wave);
  return result;
}

ModelResult ModelSearch::tune_as(const SearchQuery& query, const LayerResult& layer) {
  const auto& [schedule, pricer, model, strategy, choice] = query;
  const Schedule& planned = layer.decision.variant ? *layer.decision.variant : schedule;
  ModelResult result;
  result.schedule = schedule.name;
  result.variant = layer.decision.variant;
  ModelShape decided = model;
  decided.shape = decided_case(model.shape, layer.decision);
  // All layers use this layer's rows, so no layer pads again.
  if (decided.shape.rounding == Rounding::lcm) decided.shape.row_multiple = padded_rows(decided.shape);
  const LayerPricer decided_pricer(pricer.profile(), decided.shape, pricer.options());
  check_size(planned, decided, layer.decision.degree_forward, 1);  // before the search over all layers
  ModelDecision& decision = result.decision;
  decision.degree_forward = layer.decision.degree_forward;
  decision.degree_backward = layer.decision.degree_backward;
  decision.order_forward = layer.decision.order_forward;
  decision.micro_op_bytes = layer.decision.micro_op_bytes;
  decision.backwards.assign(decided_layers(decided), {layer.decision.degree_backward, 0, 0, {}});
  for (size_t i = 0; i < decision.backwards.size(); ++i)
    if (decides_dense(decided, i)) decision.backwards[i].degree = 1;
  if (splits_gradients(planned) && decided_pricer.has(GroupKind::dp)) {
    search::LayerReplay replay = layers_.replay(planned, decided_pricer);
    search::KindReplays kinds = kind_replays(layers_, planned, decided_pricer, decided);
    search::split_gradients({replay, decided, strategy, choice, kinds}, layer.decision, result);
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
  set_times(seconds, pricer.profile(), result);
  // A bound without padding holds for all degrees, because padding only adds rows.
  LayerCase unpadded = decided.shape;
  unpadded.row_multiple = 1;
  const LayerPricer min_pricer(pricer.profile(), unpadded, pricer.options());
  result.bound_s = result.at_least_s = model_bound(planned, min_pricer, decided);
  const bool decides_places = splits_gradients(planned) || planned.gradients == GradientPolicy::after;
  const bool alone = decided.step.planned && pricer.profile().contention.none();
  const double step_s = alone ? min_step_seconds(planned, min_pricer, decided) : 0;
  const bool bounds_places = planned.flow == Flow::sharded && decides_places;
  if (!bounds_places || model.micro_batches > 1 || decided.shape.parallel.pp > 1) return result;
  search::KindReplays kinds = kind_replays(layers_, planned, min_pricer, decided);
  const double min_s = min_seconds(kinds, min_pricer, decided, planned, choice);
  result.at_least_s = std::max(result.bound_s, min_s + step_s);
  return result;
}

}  // namespace moe

// Strategy `exact` under contention: the times of paths don't add up there, so decisions from several starting points
// are replayed, and the best of them is improved until no small move helps.

namespace moe::search {
namespace {

constexpr int kGrains = 32;                     // grains into which the dynamic program divides the model's gradients
constexpr int64_t kReplayedTasks = 40'000'000;  // limit of the descent's effort: 1 to 2 seconds

bool equal_options(const BackwardOption& a, const BackwardOption& b) {
  return a.degree == b.degree && a.order == b.order;
}

void add(std::vector<BackwardOption>& options, const BackwardOption& option) {
  for (const BackwardOption& other : options)
    if (equal_options(option, other)) return;
  options.push_back(option);
}

// Returns the degree whose backward is fastest with these slices.
int best_degree(const ModelQuery& query, const std::vector<int>& tried, const PhaseBound& bound, int fixed,
                const LayerSlices& slices) {
  int best = std::max(fixed, 1);
  double min_s = std::numeric_limits<double>::max();
  const auto from = [&](int degree) { return bound.pass_from(degree); };
  for (const int r : tried) {
    if (no_faster_degree_from(r, min_s, from)) break;
    const double seconds = query.layer.backward_with({r}, slices);
    if (!is_better(seconds, min_s)) continue;
    best = r;
    min_s = seconds;
  }
  return best;
}

// Returns the option with the lane order that is fastest with these slices: its own order or one of `orders`.
BackwardOption best_ordered(const ModelQuery& query, BackwardOption option, const std::vector<LaneOrder>& orders,
                            const LayerSlices& slices) {
  double min_s = query.layer.backward_with(option, slices);
  for (const LaneOrder& order : orders) {
    const BackwardOption ordered{option.degree, order};
    const double seconds = query.layer.backward_with(ordered, slices);
    if (!is_better(seconds, min_s)) continue;
    option = ordered;
    min_s = seconds;
  }
  return option;
}

// Returns the best backwards for several ways to send a layer's gradients, and those with neighbouring degrees.
std::vector<BackwardOption> contended_options(const ModelQuery& query, int degree_forward) {
  const Schedule& schedule = query.schedule();
  const LayerPricer& pricer = query.pricer();
  const bool apart = schedule.degrees == DegreePolicy::apart, in_moe = schedule.gradients == GradientPolicy::adaptive;
  const int fixed = apart ? query.choice.backward : std::max(query.choice.forward, query.choice.backward);
  const int64_t element = bytes_of(pricer.shape().layer.dtype), made = pricer.gradient_bytes();
  const int64_t half = made / 2 / element * element;
  std::vector<LayerSlices> samples{{0, 0}, {0, half}, {0, made}, {0, 2 * made}};
  if (in_moe) samples.insert(samples.end(), {{half, half}, {half, 0}, {made, 0}, {2 * made, 0}, {made, made}});
  std::vector<BackwardOption> options;
  const std::vector<int> tried = tried_degrees(fixed, pricer);
  const PhaseBound bound = query.layer.bound(Phase::backward);
  for (const LayerSlices& slices : samples) add(options, {best_degree(query, tried, bound, fixed, slices)});
  if (!apart) add(options, {degree_forward});
  for (size_t i = options.size(); i-- > 0 && fixed == 0;)
    for (const int r : {options[i].degree - 1, options[i].degree + 1})
      if (std::ranges::find(tried, r) != tried.end()) add(options, {r});
  for (size_t i = options.size(); i-- > 0;) {
    std::vector<LaneOrder> orders = backward_orders(query.layer, options[i].degree);
    if (!orders.empty())
      for (const LaneOrder& order : lane_orders(static_cast<size_t>(options[i].degree))) orders.push_back(order);
    const BackwardOption option = options[i];  // add() may move it
    for (const LayerSlices& slices : samples) add(options, best_ordered(query, option, orders, slices));
  }
  return options;
}

PartitionProblem contended_problem(const ModelQuery& query, const std::vector<BackwardOption>& options) {
  PartitionLayers layers;
  for (const LayerKind kind : kAllLayerKinds) {
    if (!query.kinds[kind]) continue;
    LayerReplay& replay = *query.kinds[kind];
    PartitionLayer& layer = layers[kind];
    layer.key = fmt::format("kind {}", static_cast<int>(kind));
    layer.made_bytes = replay.pricer.gradient_bytes();
    layer.has_moe_part = !is_dense(kind);
    layer.seconds = [&query, &options, &replay, kind](int64_t moe_bytes, int64_t dense_bytes) {
      double least = std::numeric_limits<double>::infinity();
      if (moe_bytes > 0 && (is_dense(kind) || query.schedule().gradients != GradientPolicy::adaptive)) return least;
      if (is_dense(kind)) return replay.backward_with({}, {0, dense_bytes});
      for (const BackwardOption& option : options)
        least = std::min(least, replay.backward_with(option, {moe_bytes, dense_bytes}));
      return least;
    };
  }
  return stage_problem(query, layers, 0);
}

// Returns starting points for the descent: one layer's steady state repeated in all layers; the best decision without
// contention; and the result of dynamic programming over replays of single layers, which ignores overlap with the next
// layer.
std::vector<ModelDecision> contended_starts(const ModelQuery& query, const PartitionProblem& problem,
                                            const std::vector<BackwardOption>& options, const Decision& layer,
                                            const ModelReplay& replay, const ModelDecision& from) {
  const Schedule& schedule = query.schedule();
  const LayerPricer& pricer = query.pricer();
  std::vector<ModelDecision> starts;
  const bool in_moe = schedule.gradients == GradientPolicy::adaptive;
  ModelDecision& steady = starts.emplace_back(from);
  for (size_t i = 0; i < steady.backwards.size(); ++i) {
    const int64_t made = i > 0 ? replay.made_bytes(i - 1) : 0;
    const int64_t moe = std::min(layer.gar_in_moe_bytes, made);
    const int64_t dense = in_moe ? made - moe : std::min(layer.gar_beside_dense_bytes, made);
    steady.backwards[i] = {layer.degree_backward, moe, dense, {}, layer.order_backward};
    if (replay.is_dense(i)) steady.backwards[i] = {1, 0, made, {}, {}};
  }
  Profile free = pricer.profile();
  free.contention = {};
  const LayerPricer alone(free, pricer.shape(), pricer.options());
  KindReplays uncontended;
  const KindPricers pricers = kind_pricers(alone, query.model.dense, query.model.whole, query.model.layers);
  for (const LayerKind kind : kAllLayerKinds)
    if (pricers[kind] != nullptr) uncontended[kind].emplace(schedule, *pricers[kind], query.layer.store);
  LayerReplay uncontended_layer{schedule, alone, query.layer.store};
  const ModelQuery question{uncontended_layer, query.model, query.strategy, query.choice, uncontended};
  const KindOptions tried = kind_options(query, uncontended, from.degree_forward);
  const PartitionLayers layers = partition_layers(schedule, uncontended, tried);
  const Partition partition = query.strategy.solve(stage_problem(question, layers, 0));
  const auto best_alone = [&](LayerKind kind, LayerSlices slices) { return tried[kind].best_for(slices, alone); };
  starts.push_back(decided(query.model, partition, best_alone, from));
  const int64_t element = problem.element_bytes, grain = problem.total_bytes() / kGrains / element * element;
  const auto best_for = [&](LayerKind kind, LayerSlices slices) {
    if (is_dense(kind)) return BackwardOption();
    LayerReplay& layer_of_kind = *query.kinds[kind];
    return *std::ranges::min_element(
        options, {}, [&](const BackwardOption& option) { return layer_of_kind.backward_with(option, slices); });
  };
  starts.push_back(decided(query.model, partition_exact(problem, {std::max(element, grain)}), best_for, from));
  return starts;
}

}  // namespace

void improve_by_replay(const ModelQuery& query, ModelReplay& replay, const Decision& layer, ModelResult& result) {
  const Schedule& schedule = query.schedule();
  const bool apart = schedule.degrees == DegreePolicy::apart;
  const std::vector<BackwardOption> all = contended_options(query, result.decision.degree_forward);
  const std::vector<BackwardOption> known = apart ? all : std::vector{BackwardOption{result.decision.degree_forward}};
  const PartitionProblem problem = contended_problem(query, known);
  ModelDecision best = result.decision;
  double least = replay.seconds(best);
  for (const ModelDecision& start : contended_starts(query, problem, known, layer, replay, best))
    if (const double seconds = replay.seconds(start); is_better(seconds, least)) best = start, least = seconds;
  DescentMoves moves;
  moves.backwards = all;
  moves.one_degree = !apart;
  moves.micro_batches = apart && query.choice.backward == 0 && query.model.micro_batches > 1;
  moves.forward_too =
      apart && query.choice.forward == 0 && (query.model.micro_batches > 1 || query.model.shape.parallel.pp > 1);
  moves.in_moe = schedule.gradients == GradientPolicy::adaptive;
  moves.element_bytes = problem.element_bytes;
  moves.max_tasks = kReplayedTasks;
  descend(replay, moves, best);
  result.decision = best;
  std::vector<LayerSlices> slices;
  for (const BackwardDecision& b : best.backwards) slices.push_back({b.gar_in_moe_bytes, b.gar_beside_dense_bytes});
  result.partition = PartitionSearch(problem).finish(std::move(slices));
}

}  // namespace moe::search
