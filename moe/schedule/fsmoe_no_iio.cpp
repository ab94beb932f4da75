// FSMoE-No-IIO (FSMoE section 6.3): adaptive degrees and gradients, inter- and intra-node communication in turn.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kFsmoeNoIio{"fsmoe-no-iio",           "as fsmoe on one communication lane (FSMoE's No-IIO)",
                           LaneLayout::one_comm,     DegreePolicy::apart,
                           GradientPolicy::adaptive, one_lane_order};

}  // namespace moe
