// Tutel-Improved (FSMoE section 6.3): PipeMoE with Gradient-AllReduce beside the non-MoE part, what does not fit there
// after it.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kTutelImproved{"tutel-improved",
                              "as tutel, gradients beside the dense part's backward (FSMoE's Tutel-Improved)",
                              LaneLayout::one_comm,
                              DegreePolicy::shared,
                              GradientPolicy::beside_dense,
                              one_lane_order};

}  // namespace moe
