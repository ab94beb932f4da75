// Parm S2 with SAA (section III-D): the second AlltoAll in phases, one EP peer's slice each; a slice is summed over ESP
// and gathered over MP while the next one is exchanged.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void parm_s2_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  for (int peer = 0; peer < b.peers(); ++peer) {
    b.part(TaskKind::exchange, peer, b.peers());
    if (b.spans(GroupKind::esp)) b.part(TaskKind::sum, peer, b.peers());
    b.part(TaskKind::gather, peer, b.peers());
  }
}

}  // namespace

const Schedule kParmS2{
    .name = "parm-s2",
    .summary = "tokens split over MP after the gate, AlltoAll beside AllGather in phases (Parm S2, SAA)",
    .lanes = LaneLayout::by_network,
    .degrees = DegreePolicy::one,
    .gradients = GradientPolicy::after,
    .moe_part = parm_s2_part,
    .flow = Flow::fused_gated};

}  // namespace moe
