// Tutel with PipeMoE's degree: all communication on one lane, overlapping with the experts; one r for both phases.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

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

// Tutel-Improved (FSMoE section 6.3): PipeMoE with the gradients' AllReduce in parallel with the dense part; gradients
// that do not fit there are sent after it.

const Schedule kTutelImproved{"tutel-improved",
                              "as tutel, gradients beside the dense part's backward (FSMoE's Tutel-Improved)",
                              LaneLayout::one_comm,
                              DegreePolicy::shared,
                              GradientPolicy::beside_dense,
                              one_lane_order};

// PipeMoE with Lina's gradient micro-ops, FSMoE's baseline (FSMoE section 6.4): a piece of 30 MB starts whenever the
// lane is idle and no AlltoAll waits. An AlltoAll that becomes ready meanwhile waits for the piece.

const Schedule kPipemoeLina{.name = "pipemoe+lina",
                            .summary = "as tutel, gradients in 30 MB pieces wherever the lane is idle (PipeMoE + Lina)",
                            .lanes = LaneLayout::one_comm,
                            .degrees = DegreePolicy::shared,
                            .gradients = GradientPolicy::micro_ops,
                            .moe_part = one_lane_order};

}  // namespace moe
