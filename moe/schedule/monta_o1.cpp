// MoNTA O1 (Figure 5, Eq. 11): each TP rank drops all but its share before the AlltoAll, an AllGather inside the node
// makes it whole; one chunk, so nothing is to be laid out anew.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void monta_o1_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::allgather);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::reducescatter);
  b.whole(TaskKind::combine);
  b.whole(TaskKind::gather);
}

}  // namespace

const Schedule kMontaO1{.name = "monta-o1",
                        .summary = "rows dropped to 1 / TP, AlltoAll, AllGather, in sequence (MoNTA O1)",
                        .lanes = LaneLayout::by_network,
                        .degrees = DegreePolicy::one,
                        .gradients = GradientPolicy::after,
                        .moe_part = monta_o1_part,
                        .flow = Flow::dropped,
                        .in_sequence = true};

}  // namespace moe
