// DeepSpeed-MoE: D G E S C one after the other, gradients after the backward; nothing runs beside anything.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kDsMoe{"ds-moe",
                      "everything in sequence, r = 1 (DeepSpeed-MoE)",
                      LaneLayout::one_comm,
                      DegreePolicy::one,
                      GradientPolicy::after,
                      one_lane_order};

}  // namespace moe
