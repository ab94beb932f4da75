// Lina with priority and tensor partitioning (section 4.2): each gradient tensor cut alone into micro-ops, the AlltoAll
// cut along tokens; the expert waits for all of it.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void partition_part(LayerBuilder& b) {
  for (int c = 0; c < b.degree(); ++c) {
    b.dispatch(c);
    b.allgather(c);
  }
  b.whole(TaskKind::expert);
  for (int c = 0; c < b.degree(); ++c) {
    b.reducescatter(c);
    b.combine(c);
  }
}

}  // namespace

const Schedule kLinaPartition{
    .name = "lina-partition",
    .summary = "as lina-priority, gradients and AlltoAll cut into micro-ops (Lina, priority and partition)",
    .lanes = LaneLayout::by_network,
    .degrees = DegreePolicy::by_size,
    .gradients = GradientPolicy::micro_ops,
    .moe_part = partition_part};

}  // namespace moe
