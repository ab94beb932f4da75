// Lina with expert packing (section 4.2): p experts a device and EP groups of E / p, so that the expert's micro-op
// grows to the AlltoAll's; the experts' gradients are summed over their p replicas.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kLinaPacked{.name = "lina-packed",
                           .summary = "as lina, several experts a device (Lina with expert packing)",
                           .lanes = LaneLayout::by_network,
                           .degrees = DegreePolicy::by_size,
                           .gradients = GradientPolicy::micro_ops,
                           .moe_part = one_lane_order,
                           .holds_micro_ops = true,
                           .packs_experts = true};

}  // namespace moe
