// FSMoE without gradient partitioning (FSMoE Fig. 3c): all of it after the backward.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kFsmoeNoPartition{"fsmoe-no-partition",   "as fsmoe, all gradients after the backward (FSMoE Fig. 3c)",
                                 LaneLayout::by_network, DegreePolicy::apart,
                                 GradientPolicy::after,  fsmoe_order};

}  // namespace moe
