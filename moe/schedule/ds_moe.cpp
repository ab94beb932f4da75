// DeepSpeed-MoE: D G E S C one after the other, gradients after the backward; nothing runs beside anything.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kDsMoe{.name = "ds-moe",
                      .summary = "everything in sequence, r = 1 (DeepSpeed-MoE)",
                      .lanes = LaneLayout::one_comm,
                      .degrees = DegreePolicy::one,
                      .gradients = GradientPolicy::after,
                      .moe_part = one_lane_order,
                      .in_sequence = true};

}  // namespace moe
