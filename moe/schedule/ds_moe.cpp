// DeepSpeed-MoE: D G E S C in sequence, gradients after the backward; no tasks overlap.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {

const Schedule kDsMoe{.name = "ds-moe",
                      .summary = "everything in sequence, r = 1 (DeepSpeed-MoE)",
                      .lanes = LaneLayout::one_comm,
                      .degrees = DegreePolicy::one,
                      .gradients = GradientPolicy::after,
                      .moe_part = one_lane_order,
                      .in_sequence = true};

// Parm's baseline (Parm section III-A): tokens are replicated over MP and gathered over ESP before the gate, and
// partial sums are added by an ESP AllReduce; everything in sequence. N_MP times the traffic and the work of ds-moe.

namespace {

void replicated_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  if (b.pass().phase == Phase::forward) b.whole(TaskKind::allreduce);  // its backward sends nothing
  b.whole(TaskKind::combine);
}

}  // namespace

const Schedule kDsMoeReplicated{
    .name = "ds-moe-replicated",
    .summary = "as DeepSpeed-MoE with tensor parallelism: tokens replicated over MP, in sequence (Parm's baseline)",
    .lanes = LaneLayout::one_comm,
    .degrees = DegreePolicy::one,
    .gradients = GradientPolicy::after,
    .moe_part = replicated_part,
    .flow = Flow::replicated,
    .in_sequence = true};

}  // namespace moe
