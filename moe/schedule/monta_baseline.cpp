// MoNTA's baseline (Figure 4): every rank of a TP group sends all rows through the AlltoAll; in sequence.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void tensor_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::allreduce);
  b.whole(TaskKind::combine);
}

}  // namespace

const Schedule kMontaBaseline{.name = "monta-baseline",
                              .summary = "every TP rank sends all rows, in sequence (MoNTA's baseline)",
                              .lanes = LaneLayout::by_network,
                              .degrees = DegreePolicy::one,
                              .gradients = GradientPolicy::after,
                              .moe_part = tensor_part,
                              .flow = Flow::tensor,
                              .in_sequence = true};

}  // namespace moe
