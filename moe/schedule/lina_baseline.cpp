// Lina's baseline (section 2.2): AllReduce in DDP buckets on a communicator of its own, without coordination, so that
// it shares the network with the AlltoAlls.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kLinaBaseline{
    .name = "lina-baseline",
    .summary = "gradients in DDP buckets on a lane that shares the network with AlltoAll (Lina's baseline)",
    .lanes = LaneLayout::by_network_gradient,
    .degrees = DegreePolicy::one,
    .gradients = GradientPolicy::own_lane,
    .moe_part = one_lane_order,
    .pieces = Pieces::fused};

}  // namespace moe
