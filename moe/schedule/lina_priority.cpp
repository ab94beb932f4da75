// Lina with priority alone (section 7.2.2): an AllReduce of fused gradients starts only when no AlltoAll waits or runs.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kLinaPriority{.name = "lina-priority",
                             .summary = "fused gradients where no AlltoAll waits or runs (Lina, priority)",
                             .lanes = LaneLayout::by_network,
                             .degrees = DegreePolicy::one,
                             .gradients = GradientPolicy::micro_ops,
                             .moe_part = one_lane_order,
                             .pieces = Pieces::fused};

}  // namespace moe
