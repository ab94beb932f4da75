// MoNTA O2 (Figure 7): N chunks, AllGather and re-layout copy of one under the AlltoAll of the next; one expert task
// waits for the last copy, and the same chain takes the partial sums home.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

void monta_chunks(LayerBuilder& b) {
  const auto chain = [&](TaskKind exchange, TaskKind gather, TaskKind copy) {
    for (int c = 0; c < b.degree(); ++c) {
      b.part(exchange, c, b.degree());
      b.part(gather, c, b.degree());
      if (b.degree() > 1 && b.spans(GroupKind::mp)) b.part(copy, c, b.degree());  // chunks interleave the layout
    }
  };
  chain(TaskKind::dispatch, TaskKind::allgather, TaskKind::copy);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::reducescatter);
  chain(TaskKind::combine, TaskKind::gather, TaskKind::home_copy);
}

const Schedule kMontaO2{
    .name = "monta-o2",
    .summary = "as monta-o1 in N chunks, AllGather and copy of one under the AlltoAll of the next (MoNTA O2)",
    .lanes = LaneLayout::by_network,
    .degrees = DegreePolicy::shared,
    .gradients = GradientPolicy::after,
    .moe_part = monta_chunks,
    .flow = Flow::dropped};

}  // namespace moe
