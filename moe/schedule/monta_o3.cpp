// MoNTA O3 (Figure 9): as O2, with the copies on a stream of their own, under the next AllGather.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

const Schedule kMontaO3{.name = "monta-o3",
                        .summary = "as monta-o2, the copy on its own lane under the next AllGather (MoNTA O3)",
                        .lanes = LaneLayout::by_network_copy,
                        .degrees = DegreePolicy::shared,
                        .gradients = GradientPolicy::after,
                        .moe_part = monta_chunks,
                        .flow = Flow::dropped};

}  // namespace moe
