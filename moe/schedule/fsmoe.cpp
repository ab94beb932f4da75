// FSMoE (ASPLOS'25, sections 4 and 5): AlltoAll between nodes, AllGather/ReduceScatter inside nodes and experts
// overlap; the inter lane runs D1..Dr [GAR] C1..Cr, the intra lane G1..Gr S1..Sr. Separate degrees r_f and r_b,
// gradients partitioned adaptively.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {

void fsmoe_order(LayerBuilder& b) {
  if (b.uses_one_lane()) return one_lane_order(b);
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

// fsmoe with the backwards of experts and attention in halves. Each chunk's gradient of the experts' input is sent at
// once; the gradients of the experts' weights are computed after those of all chunks, while the last chunks are in
// transit (as Lancet, MLSys'24, schedules weight gradients). The gradients of attention's weights are computed while MP
// ranks sum the gradients of its input.

void halves_order(LayerBuilder& b) {
  fsmoe_order(b);
  for (int c = 0; c < b.degree(); ++c) b.expert_weights(c);
}

const Schedule kFsmoeDw{.name = "fsmoe-dw",
                        .summary = "as fsmoe, weight gradients behind those of inputs (Lancet)",
                        .lanes = LaneLayout::by_network,
                        .degrees = DegreePolicy::apart,
                        .gradients = GradientPolicy::adaptive,
                        .moe_part = halves_order,
                        .halves_backward = true};

// FSMoE with a searched order of AllGathers and ReduceScatters on the intra lane: FSMoE queues every G before any S,
// which delays the last chunks if a ReduceScatter could have run earlier.

namespace {

void interleaved_order(LayerBuilder& b) {
  const LaneOrder& order = b.pass().order;
  if (b.uses_one_lane() || order.empty()) return fsmoe_order(b);
  for (int c = 0; c < b.degree(); ++c) b.dispatch(c);
  b.gradient_in_moe();
  int gathered = 0, scattered = 0;
  for (const char task : order) {
    if (task == 'G') {
      b.allgather(gathered);
      b.expert(gathered++);
    } else {
      b.reducescatter(scattered++);
    }
  }
  for (int c = 0; c < b.degree(); ++c) b.combine(c);
}

}  // namespace

const Schedule kFsmoeInterleaved{.name = "fsmoe-interleaved",
                                 .summary = "as fsmoe, the order of AllGathers and ReduceScatters searched",
                                 .lanes = LaneLayout::by_network,
                                 .degrees = DegreePolicy::apart,
                                 .gradients = GradientPolicy::adaptive,
                                 .moe_part = interleaved_order,
                                 .searched_order = true};

// FSMoE-No-IIO (FSMoE section 6.3): adaptive degrees and gradients; inter- and intra-node communication alternate.

const Schedule kFsmoeNoIio{"fsmoe-no-iio",           "as fsmoe on one communication lane (FSMoE's No-IIO)",
                           LaneLayout::one_comm,     DegreePolicy::apart,
                           GradientPolicy::adaptive, one_lane_order};

// FSMoE without gradient partitioning (FSMoE Fig. 3c): all gradients are sent after the backward.

const Schedule kFsmoeNoPartition{"fsmoe-no-partition",   "as fsmoe, all gradients after the backward (FSMoE Fig. 3c)",
                                 LaneLayout::by_network, DegreePolicy::apart,
                                 GradientPolicy::after,  fsmoe_order};

}  // namespace moe
