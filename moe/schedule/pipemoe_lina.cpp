// PipeMoE with Lina's gradient micro-ops, as FSMoE compares itself with them (FSMoE section 6.4): whenever its lane is
// idle and no AlltoAll waits, the next piece of 30 MB is started; an AlltoAll that arrives then waits for it.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kPipemoeLina{.name = "pipemoe+lina",
                            .summary = "as tutel, gradients in 30 MB pieces wherever the lane is idle (PipeMoE + Lina)",
                            .lanes = LaneLayout::one_comm,
                            .degrees = DegreePolicy::shared,
                            .gradients = GradientPolicy::micro_ops,
                            .moe_part = one_lane_order};

}  // namespace moe
