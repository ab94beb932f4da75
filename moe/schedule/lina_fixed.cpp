// Lina's fixed scheduling (section 4.1): AllReduce of fused gradients between the AlltoAll pairs of two MoE layers,
// whatever still runs.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kLinaFixed{.name = "lina-fixed",
                          .summary = "fused gradients between the AlltoAll pairs of two MoE layers (Lina, fixed)",
                          .lanes = LaneLayout::by_network,
                          .degrees = DegreePolicy::one,
                          .gradients = GradientPolicy::fixed,
                          .moe_part = one_lane_order,
                          .pieces = Pieces::fused};

}  // namespace moe
