// As fsmoe, but on the intra lane each ReduceScatter follows the AllGather of the next chunk: G1 G2 S1 G3 S2 .. Sr.
#include "moe/schedule/layer_builder.h"
#include "tests/adding/parts.h"

namespace moe {
namespace {

void moe_part(LayerBuilder& b) {
  if (b.uses_one_lane()) return one_lane_order(b);     // AlltoAll and AllGather on one network
  for (int c = 0; c < b.degree(); ++c) b.dispatch(c);  // inter lane: D1 .. Dr
  b.gradient_in_moe();                                 //             [GAR]
  for (int c = 0; c < b.degree(); ++c) {
    b.allgather(c);
    b.expert(c);
    if (c > 0) b.reducescatter(c - 1);
  }
  b.reducescatter(b.degree() - 1);
  for (int c = 0; c < b.degree(); ++c) b.combine(c);  //             C1 .. Cr
}

}  // namespace

const Schedule kLagged{.name = "lagged",
                       .summary = "as fsmoe, each ReduceScatter one AllGather behind its chunk",
                       .lanes = LaneLayout::by_network,
                       .degrees = DegreePolicy::apart,
                       .gradients = GradientPolicy::adaptive,
                       .moe_part = moe_part};

}  // namespace moe
