// Lina (section 4.2): as lina-partition, but experts compute the rows of one AlltoAll micro-op while the next is sent.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {

const Schedule kLina{.name = "lina",
                     .summary = "as lina-partition, AlltoAll micro-ops pipelined with the experts (Lina)",
                     .lanes = LaneLayout::by_network,
                     .degrees = DegreePolicy::by_size,
                     .gradients = GradientPolicy::micro_ops,
                     .moe_part = one_lane_order,
                     .holds_micro_ops = true};

// Lina's baseline (section 2.2): AllReduces in DDP buckets on their own communicator. Nothing coordinates them with the
// AlltoAlls, so both share the network's bandwidth.

const Schedule kLinaBaseline{
    .name = "lina-baseline",
    .summary = "gradients in DDP buckets on a lane that shares the network with AlltoAll (Lina's baseline)",
    .lanes = LaneLayout::by_network_gradient,
    .degrees = DegreePolicy::one,
    .gradients = GradientPolicy::own_lane,
    .moe_part = one_lane_order,
    .pieces = Pieces::fused};

// Lina's fixed scheduling (section 4.1): AllReduce of fused gradients between the AlltoAll pairs of two MoE layers,
// even if the tasks before them still run.

const Schedule kLinaFixed{.name = "lina-fixed",
                          .summary = "fused gradients between the AlltoAll pairs of two MoE layers (Lina, fixed)",
                          .lanes = LaneLayout::by_network,
                          .degrees = DegreePolicy::one,
                          .gradients = GradientPolicy::fixed,
                          .moe_part = one_lane_order,
                          .pieces = Pieces::fused};

// Lina with priority only (section 7.2.2): an AllReduce of fused gradients starts only if no AlltoAll waits or runs.

const Schedule kLinaPriority{.name = "lina-priority",
                             .summary = "fused gradients where no AlltoAll waits or runs (Lina, priority)",
                             .lanes = LaneLayout::by_network,
                             .degrees = DegreePolicy::one,
                             .gradients = GradientPolicy::micro_ops,
                             .moe_part = one_lane_order,
                             .pieces = Pieces::fused};

// Lina with priority and tensor partitioning (section 4.2): each gradient tensor is cut into micro-ops, and the
// AlltoAll is cut along tokens; the expert waits for all of it.

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

// Lina with expert packing (section 4.2): p experts per device and EP groups of E / p, so that the expert's micro-op
// takes as long as the AlltoAll's; the experts' gradients are summed over their p replicas.

const Schedule kLinaPacked{.name = "lina-packed",
                           .summary = "as lina, several experts a device (Lina with expert packing)",
                           .lanes = LaneLayout::by_network,
                           .degrees = DegreePolicy::by_size,
                           .gradients = GradientPolicy::micro_ops,
                           .moe_part = one_lane_order,
                           .holds_micro_ops = true,
                           .packs_experts = true};

}  // namespace moe
