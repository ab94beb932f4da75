// Lina (section 4.2): as lina-partition, with the AlltoAll's micro-ops pipelined with the expert's.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kLina{.name = "lina",
                     .summary = "as lina-partition, AlltoAll micro-ops pipelined with the experts (Lina)",
                     .lanes = LaneLayout::by_network,
                     .degrees = DegreePolicy::by_size,
                     .gradients = GradientPolicy::micro_ops,
                     .moe_part = one_lane_order,
                     .holds_micro_ops = true};

}  // namespace moe
