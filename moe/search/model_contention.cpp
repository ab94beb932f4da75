// Decides `exact` under contention: no path stays straight there, so that decisions from several sides are replayed,
// and the best of them goes down to where no small move helps.
#include "moe/search/model_contention.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "moe/search/lane_order.h"
#include "moe/search/model_descent.h"
#include "moe/search/partition_search.h"
#include "moe/search/searched_orders.h"

namespace moe::search {
namespace {

constexpr int kGrains = 32;                     // of the model's gradients, in the dynamic program
constexpr int64_t kReplayedTasks = 40'000'000;  // effort of the descent: 1 to 2 seconds

bool same(const BackwardOption& a, const BackwardOption& b) { return a.degree == b.degree && a.order == b.order; }

void add(std::vector<BackwardOption>& options, const BackwardOption& option) {
  for (const BackwardOption& other : options)
    if (same(option, other)) return;
  options.push_back(option);
}

// Returns the best backwards for some ways to send a layer's gradients, and their neighbours.
std::vector<BackwardOption> contended_options(const ModelQuestion& asked, int degree_forward) {
  const Schedule& schedule = asked.schedule();
  const LayerPricer& pricer = asked.pricer();
  const bool apart = schedule.degrees == DegreePolicy::apart, in_moe = schedule.gradients == GradientPolicy::adaptive;
  const int fixed = apart ? asked.choice.backward : std::max(asked.choice.forward, asked.choice.backward);
  const int64_t element = bytes_of(pricer.shape().layer.dtype), made = pricer.gradient_bytes();
  const int64_t half = made / 2 / element * element;
  std::vector<LayerSlices> samples{{0, 0}, {0, half}, {0, made}, {0, 2 * made}};
  if (in_moe) samples.insert(samples.end(), {{half, half}, {half, 0}, {made, 0}, {2 * made, 0}, {made, made}});
  std::vector<BackwardOption> options;
  const std::vector<int> tried = tried_degrees(fixed, pricer);
  const PhaseBound bound = asked.layer.bound(Phase::backward);
  const auto from = [&](int degree) { return bound.pass_from(degree); };
  for (const LayerSlices& slices : samples) {
    int best = std::max(fixed, 1);
    double least = std::numeric_limits<double>::max();
    for (const int r : tried) {
      if (none_from(r, least, from)) break;
      if (const double seconds = asked.layer.backward_with({r}, slices); better(seconds, least))
        best = r, least = seconds;
    }
    add(options, {best});
  }
  if (!apart) add(options, {degree_forward});
  for (size_t i = options.size(); i-- > 0 && fixed == 0;)
    for (const int r : {options[i].degree - 1, options[i].degree + 1})
      if (std::ranges::find(tried, r) != tried.end()) add(options, {r});
  for (size_t i = options.size(); i-- > 0;) {
    std::vector<LaneOrder> orders = backward_orders(asked.layer, options[i].degree);
    if (!orders.empty())
      for (const LaneOrder& order : lane_orders(static_cast<size_t>(options[i].degree))) orders.push_back(order);
    for (const LayerSlices& slices : samples) {
      BackwardOption best = options[i];
      double least = asked.layer.backward_with(best, slices);
      for (const LaneOrder& order : orders) {
        const BackwardOption ordered{best.degree, order};
        if (const double seconds = asked.layer.backward_with(ordered, slices); better(seconds, least))
          best = ordered, least = seconds;
      }
      add(options, best);
    }
  }
  return options;
}

PartitionProblem contended_problem(const ModelQuestion& asked, const std::vector<BackwardOption>& options) {
  PartitionLayers layers;
  PartitionLayer& layer = layers.moe;
  layer.key = "like all others";
  layer.made_bytes = asked.pricer().gradient_bytes();
  layer.seconds = [&asked, &options](int64_t moe_bytes, int64_t dense_bytes) {
    double least = std::numeric_limits<double>::infinity();
    if (moe_bytes > 0 && asked.schedule().gradients != GradientPolicy::adaptive) return least;
    for (const BackwardOption& option : options)
      least = std::min(least, asked.layer.backward_with(option, {moe_bytes, dense_bytes}));
    return least;
  };
  if (asked.dense) {
    layers.dense.key = "dense";
    layers.dense.has_moe_part = false;
    layers.dense.made_bytes = asked.dense->pricer.gradient_bytes();
    layers.dense.seconds = [&asked](int64_t moe_bytes, int64_t dense_bytes) {
      if (moe_bytes > 0) return std::numeric_limits<double>::infinity();
      return asked.dense->backward_with({}, {0, dense_bytes});
    };
  }
  return stage_problem(asked, layers, 0);
}

// Returns what is best without contention, what one layer in its steady state does, and dynamic programming over single
// layers' replays, whose sum forgets what runs on into the next layer.
std::vector<ModelDecision> contended_starts(const ModelQuestion& asked, const PartitionProblem& problem,
                                            const std::vector<BackwardOption>& options, const Decision& layer,
                                            const ModelReplay& replay, const ModelDecision& from) {
  const Schedule& schedule = asked.schedule();
  const LayerPricer& pricer = asked.pricer();
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
  LayerReplay uncontended_layer{schedule, alone, asked.layer.store};
  const BackwardOptions tried = backward_options(asked, uncontended_layer, from.degree_forward);
  PartitionLayers layers{partition_layer(schedule, alone, tried.paths), {}};
  std::optional<LayerPricer> dense_alone;
  std::vector<SplitPaths> dense_paths;
  if (asked.dense) {
    dense_alone.emplace(free, asked.dense->pricer.shape(), pricer.options());
    dense_paths.push_back(LayerReplay(schedule, *dense_alone, asked.layer.store).backward_paths({}));
    layers.dense = partition_layer(schedule, *dense_alone, dense_paths);
  }
  const Partition partition =
      asked.strategy.solve(stage_problem({uncontended_layer, asked.model, asked.strategy, asked.choice}, layers, 0));
  starts.push_back(decided(
      asked.model, partition, [&](LayerSlices slices) { return tried.best_for(slices, alone); }, from));
  const int64_t element = problem.element_bytes, grain = problem.total_bytes() / kGrains / element * element;
  const auto best_for = [&](LayerSlices slices) {
    return *std::ranges::min_element(
        options, {}, [&](const BackwardOption& option) { return asked.layer.backward_with(option, slices); });
  };
  starts.push_back(decided(asked.model, partition_exact(problem, {std::max(element, grain)}), best_for, from));
  return starts;
}

}  // namespace

void improve_by_replay(const ModelQuestion& asked, ModelReplay& replay, const Decision& layer, ModelResult& result) {
  const Schedule& schedule = asked.schedule();
  const bool apart = schedule.degrees == DegreePolicy::apart;
  const std::vector<BackwardOption> all = contended_options(asked, result.decision.degree_forward);
  const std::vector<BackwardOption> known = apart ? all : std::vector{BackwardOption{result.decision.degree_forward}};
  const PartitionProblem problem = contended_problem(asked, known);
  ModelDecision best = result.decision;
  double least = replay.seconds(best);
  for (const ModelDecision& start : contended_starts(asked, problem, known, layer, replay, best))
    if (const double seconds = replay.seconds(start); better(seconds, least)) best = start, least = seconds;
  DescentMoves moves;
  moves.backwards = all;
  moves.one_degree = !apart;
  moves.micro_batches = apart && asked.choice.backward == 0 && asked.model.micro_batches > 1;
  moves.forward_too =
      apart && asked.choice.forward == 0 && (asked.model.micro_batches > 1 || asked.model.shape.parallel.pp > 1);
  moves.in_moe = schedule.gradients == GradientPolicy::adaptive;
  moves.element_bytes = problem.element_bytes;
  moves.most_tasks = kReplayedTasks;
  descend(replay, moves, best);
  result.decision = best;
  std::vector<LayerSlices> slices;
  for (const BackwardDecision& b : best.backwards) slices.push_back({b.gar_in_moe_bytes, b.gar_beside_dense_bytes});
  result.partition = PartitionSearch(problem).finish(std::move(slices));
}

}  // namespace moe::search
