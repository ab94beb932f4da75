#include "moe/search/strategies.h"

#include <algorithm>
#include <array>
#include <vector>

#include "moe/search/algorithm1.h"
#include "moe/search/differential_evolution.h"
#include "moe/search/partition.h"

namespace moe {
namespace {

LayerResult exact(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  return search.tune(schedule, pricer);
}

// Returns the bytes in the MoE part by section 5 for one layer in the steady state. Of the gradients that wait when its
// backward begins, the dense part first takes those that it hides, then the MoE part those that it hides, and step 2
// puts more into the MoE part if that is cheaper than sending them separately.
int64_t bytes_in_moe(const LayerPricer& pricer, DegreeRounding rounding) {
  const int64_t all = pricer.gradient_bytes();
  if (!pricer.has(GroupKind::dp) || all == 0) return 0;
  const int most = largest_degree(pricer);
  const PhaseCosts costs = phase_costs(pricer, Phase::backward, 0);
  const Algorithm1Result alone = algorithm1(costs, most, rounding);
  double dense = 0;
  for (const TaskKind kind : {TaskKind::mp_allgather, TaskKind::attention, TaskKind::mp_reducescatter, TaskKind::gate})
    if (group_of(Flow::sharded, kind) == GroupKind::none || pricer.has(GroupKind::mp))
      dense += pricer.dense_seconds(kind, Phase::backward);
  if (pricer.has(GroupKind::cp))
    for (const TaskKind kind :
         {TaskKind::keys_values, pricer.uses_ring() ? TaskKind::heads : TaskKind::cp_reducescatter})
      dense += std::max(1, kind == TaskKind::heads ? pricer.shape().parallel.cp : 1) *
               pricer.dense_seconds(kind, Phase::backward);
  PartitionLayer layer;
  layer.moe_window_s = overlappable_seconds(costs, alone.degree);
  layer.dense_window_s = dense;
  layer.seconds = [&, dense](int64_t moe_bytes, int64_t dense_bytes) {
    PhaseCosts with = costs;
    with.gar_s = pricer.slice_seconds(moe_bytes);
    return algorithm1(with, most, rounding).seconds + std::max(dense, pricer.slice_seconds(dense_bytes));
  };
  PartitionProblem problem;
  problem.layers = {layer};
  problem.waiting_bytes = all;
  problem.allreduce_seconds = [&](int64_t bytes) { return pricer.slice_seconds(bytes); };
  problem.element_bytes = bytes_of(pricer.shape().layer.dtype);
  return partition_paper(problem).layers.front().moe_bytes;
}

LayerResult by_algorithm1(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer,
                          DegreeRounding rounding) {
  const int most = largest_degree(pricer);
  const bool adaptive = schedule.gradients == GradientPolicy::adaptive;
  const int64_t bytes = adaptive ? bytes_in_moe(pricer, rounding) : 0;
  const int forward = algorithm1(phase_costs(pricer, Phase::forward, 0), most, rounding).degree;
  const int backward =
      algorithm1(phase_costs(pricer, Phase::backward, pricer.slice_seconds(bytes)), most, rounding).degree;
  return search.evaluate(schedule, pricer, with_split(schedule, forward, backward, bytes));
}

LayerResult neighbours(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  return by_algorithm1(search, schedule, pricer, DegreeRounding::neighbours);
}

LayerResult snapped(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  return by_algorithm1(search, schedule, pricer, DegreeRounding::powers_of_two);
}

// Searches r_b and the share of gradients in the MoE part together, as a point of the unit square.
LayerResult evolution(LayerSearch& search, const Schedule& schedule, const LayerPricer& pricer) {
  LayerResult best = search.tune(schedule, pricer, {0, 1});
  const int most = largest_degree(pricer);
  const int64_t element = bytes_of(pricer.shape().layer.dtype);
  const double elements = static_cast<double>(pricer.gradient_bytes() / element);
  const bool adaptive = schedule.gradients == GradientPolicy::adaptive && pricer.has(GroupKind::dp);
  const auto decided = [&](std::span<const double> x) {
    const int degree = 1 + std::min(most - 1, static_cast<int>(x[0] * most));
    const int64_t bytes = adaptive ? element * static_cast<int64_t>(x[1] * elements) : 0;
    return with_split(schedule, best.decision.degree_forward, degree, bytes);
  };
  const auto backward = [&](std::span<const double> x) {
    return search.replay(schedule, pricer).seconds(decided(x), Phases::backward);
  };
  const EvolutionResult found = minimise({.generations = 60}, 2, backward);
  return search.evaluate(schedule, pricer, decided(found.x));
}

}  // namespace

std::span<const LayerStrategy> layer_strategies() {
  static constexpr std::array kRows{
      LayerStrategy{"exact", "every integer degree and every split, replayed", exact},
      LayerStrategy{"algorithm1", "FSMoE's Algorithm 1 and its two steps for gradients", neighbours},
      LayerStrategy{"snapped", "as algorithm1, degrees snapped to 1, 2, 4 or 8", snapped},
      LayerStrategy{"evolution", "degree and split by differential evolution", evolution}};
  return kRows;
}

}  // namespace moe
