#include "moe/layer/binding/bound_plan.h"

namespace moe::layer {

BoundPhase::BoundPhase(const RankShape& rank, const Plan& plan, Phase phase)
    : cuts(chunk_counts_of(plan, phase)), layouts(rank, cuts), rows(layouts.gathered) {
  for (const Task& task : plan.tasks()) {
    if (task.phase != phase) continue;
    copies |= task.kind == TaskKind::copy;
    if (makes_expert_gradients(task.kind) && first_expert < 0) first_expert = task.id;
  }
}

void check_case(const LayerCase& planned, const LayerCase& expected, std::string_view owner) {
  require<WrongResult>(planned == expected,
                       "the plan is for another case than the {}: found {}, {}, {} rows; expected {}, {}, {} rows",
                       owner, describe(planned.layer), describe_groups(planned.parallel), name_of(planned.rounding),
                       describe(expected.layer), describe_groups(expected.parallel), name_of(expected.rounding));
}

BoundPlan::BoundPlan(LayerState& layer, const Plan& bound)
    : plan(bound),
      phases{{{{layer.shape, bound, Phase::forward}, {layer.shape, bound, Phase::backward}}}},
      equal(bound.shape.layer.capacity_factor || pads_to_largest_load(bound.shape)) {
  check_case(plan.shape, layer.shape.shape, "layer");
  require<WrongResult>(plan.structure->flow == layer.shape.flow, "the plan's flow is {}, the layer's {}",
                       name_of(plan.structure->flow), name_of(layer.shape.flow));
  require_equal(plan.rows, layer.shape.rows, "the plan's T_rank");
  require<Unsupported>(plan.layers == 1, "a layer runs plans of one layer, found {}", plan.layers);
  const int64_t dense_bytes = layer.gradients.pending.view().bytes();
  const int64_t expert_bytes = layer.expert_gradients.view().bytes();
  for (const Gradient& g : plan.gradients)
    require_equal(g.bytes, g.experts ? expert_bytes : dense_bytes, "the plan's gradient bytes");
  for (BoundPhase& phase : phases) {
    require<WrongResult>(phase.first_expert >= 0, "the plan lacks a phase, expected forward and backward");
    phase.layouts.place_tables_on(layer.memory(), layer.routing.slots());
  }
}

}  // namespace moe::layer
