// FSMoE (ASPLOS'25, sections 4 and 5): AlltoAll between nodes, AllGather/ReduceScatter inside them and experts beside
// each other; inter D1..Dr [GAR] C1..Cr, intra G1..Gr S1..Sr. r_f and r_b apart, gradients partitioned adaptively.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {

void fsmoe_order(LayerBuilder& b) {
  if (b.one_lane()) return one_lane_order(b);
  for (int c = 0; c < b.degree(); ++c) b.dispatch(c);
  b.gradient_in_moe();
  for (int c = 0; c < b.degree(); ++c) b.allgather(c);
  for (int c = 0; c < b.degree(); ++c) b.expert(c);
  for (int c = 0; c < b.degree(); ++c) b.reducescatter(c);
  for (int c = 0; c < b.degree(); ++c) b.combine(c);
}

const Schedule kFsmoe{"fsmoe",
                      "inter and intra lanes beside the experts, r_f and r_b apart, adaptive gradients (FSMoE)",
                      LaneLayout::by_network,
                      DegreePolicy::apart,
                      GradientPolicy::adaptive,
                      fsmoe_order};

}  // namespace moe
