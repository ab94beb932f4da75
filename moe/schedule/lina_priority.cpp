// Lina with priority alone (section 7.2.2): an AllReduce of fused gradients starts only when no AlltoAll waits or runs.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kLinaPriority{.name = "lina-priority",
                             .summary = "fused gradients where no AlltoAll waits or runs (Lina, priority)",
                             .lanes = LaneLayout::one_comm,
                             .degrees = DegreePolicy::one,
                             .gradients = GradientPolicy::micro_ops,
                             .moe_part = one_lane_order,

                             .pieces = Pieces::fused,
                             .holds_micro_ops = true};

}  // namespace moe
