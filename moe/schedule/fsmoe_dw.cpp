// Is fsmoe with each expert's and attention's backward in halves: the gradients of an expert's input go home at once,
// and those of its weights are made behind all of them, while the last chunks travel (as Lancet, MLSys'24, schedules
// weight gradients). Those of attention's weights are made while the MP ranks add up the gradients of its input.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void halves_order(LayerBuilder& b) {
  fsmoe_order(b);
  for (int c = 0; c < b.degree(); ++c) b.expert_weights(c);
}

}  // namespace

const Schedule kFsmoeDw{.name = "fsmoe-dw",
                        .summary = "as fsmoe, weight gradients behind those of inputs (Lancet)",
                        .lanes = LaneLayout::by_network,
                        .degrees = DegreePolicy::apart,
                        .gradients = GradientPolicy::adaptive,
                        .moe_part = halves_order,
                        .halves_backward = true};

}  // namespace moe
