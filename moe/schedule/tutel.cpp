// Tutel with PipeMoE's degree: communication on one lane, beside the experts; one r for both phases.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kTutel{"tutel",
                      "one communication lane beside the experts, one r for both phases (Tutel with PipeMoE)",
                      LaneLayout::one_comm,
                      DegreePolicy::shared,
                      GradientPolicy::after,
                      one_lane_order};

}  // namespace moe
