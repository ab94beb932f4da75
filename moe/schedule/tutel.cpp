// Tutel with PipeMoE's degree: communication on one lane, beside the experts; one r for both phases.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

void one_lane_order(LayerBuilder& b) {
  for (int c = 0; c < b.degree(); ++c) {
    b.dispatch(c);
    b.allgather(c);
    b.expert(c);
  }
  b.gradient_in_moe();
  for (int c = 0; c < b.degree(); ++c) {
    b.reducescatter(c);
    b.combine(c);
  }
}

const Schedule kTutel{"tutel",
                      "one communication lane beside the experts, one r for both phases (Tutel with PipeMoE)",
                      LaneLayout::one_comm,
                      DegreePolicy::shared,
                      GradientPolicy::after,
                      one_lane_order};

}  // namespace moe
