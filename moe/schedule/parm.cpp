// Parm (section V): S1 or S2, whichever Parm's cost model predicts to be faster.
#include <array>

#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {
namespace {

constexpr std::array kParmVariants{&kParmS1, &kParmS2};

}  // namespace

const Schedule kParm{.name = "parm",
                     .summary = "parm-s1 or parm-s2, by Parm's cost model",
                     .lanes = LaneLayout::by_network,
                     .degrees = DegreePolicy::one,
                     .gradients = GradientPolicy::after,
                     .moe_part = nullptr,
                     .flow = Flow::fused,
                     .variants = kParmVariants};

// Parm S1 (section III-C): tokens split over MP before the gate, one AlltoAll over EP and ESP, MP AllGather of the
// tokens at the end.

namespace {

void parm_s1_part(LayerBuilder& b) {
  b.whole(TaskKind::dispatch);
  b.whole(TaskKind::expert);
  b.whole(TaskKind::combine);
  if (b.spans(GroupKind::esp)) b.whole(TaskKind::sum);
}

}  // namespace

const Schedule kParmS1{.name = "parm-s1",
                       .summary = "tokens split over MP before the gate, fused EP and ESP AlltoAll (Parm S1)",
                       .lanes = LaneLayout::by_network,
                       .degrees = DegreePolicy::one,
                       .gradients = GradientPolicy::after,
                       .moe_part = parm_s1_part,
                       .flow = Flow::fused,
                       .in_sequence = true};

// Parm S2 with SAA (section III-D): the second AlltoAll runs in phases, one EP peer's slice each; a slice is summed
// over ESP and gathered over MP while the next one is exchanged.

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

// Parm S2 without SAA (section VI-C's ablation): tokens split after the gate, MP AllGather of the rows after the second
// AlltoAll.

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
