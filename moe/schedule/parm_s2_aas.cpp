// Parm S2 without SAA (section VI-C's ablation): tokens split after the gate, MP AllGather of the rows after the second
// AlltoAll.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void parm_s2_aas_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::combine);
  if (b.spans(GroupKind::esp)) b.whole(TaskKind::sum);
  b.whole(TaskKind::gather);
}

}  // namespace

const Schedule kParmS2Aas{
    .name = "parm-s2-aas",
    .summary = "tokens split over MP after the gate, AlltoAll and AllGather in sequence (Parm S2, AAS)",
    .lanes = LaneLayout::by_network,
    .degrees = DegreePolicy::one,
    .gradients = GradientPolicy::after,
    .moe_part = parm_s2_aas_part,
    .flow = Flow::fused_gated,
    .in_sequence = true};

}  // namespace moe
