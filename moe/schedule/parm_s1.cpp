// Parm S1 (section III-C): tokens split over MP before the gate, one AlltoAll over EP and ESP, MP AllGather of the
// tokens at the end.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void parm_s1_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::combine);
  if (b.spans(GroupKind::esp)) b.whole(TaskKind::sum);
}

}  // namespace

const Schedule kParmS1{.name = "parm-s1",
                       .summary = "tokens split over MP before the gate, fused EP and ESP AlltoAll (Parm S1)",
                       .lanes = LaneLayout::by_network,
                       .degrees = DegreePolicy::one,
                       .gradients = GradientPolicy::after,
                       .moe_part = parm_s1_part,
                       .flow = Flow::fused,
                       .in_sequence = true};

}  // namespace moe
