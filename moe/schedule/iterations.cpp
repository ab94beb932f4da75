// Schedules that order the tasks of a whole iteration: `wave`, and the orders of papers and frameworks as restrictions
// of it. All have the tasks of fsmoe-dw. A search (moe/search/wave.h) finds the order within the limits of the turns
// (IterationOrder); the originals fix that order by hand, and some use kernels that plans here lack.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/schedules.h"

namespace moe {
namespace {

constexpr Schedule searched(std::string_view name, std::string_view summary, DegreePolicy degrees,
                            IterationOrder iteration) {
  return {.name = name,
          .summary = summary,
          .lanes = LaneLayout::by_network,
          .degrees = degrees,
          .gradients = GradientPolicy::adaptive,
          .moe_part = halves_order,
          .halves_backward = true,
          .iteration = iteration};
}

}  // namespace

const Schedule kWave =
    searched("wave", "fsmoe-dw's tasks of all layers and micro-batches in one searched order; models alone",
             DegreePolicy::apart, IterationOrder::any);

// A forward paired with another micro-batch's backward, as in DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1).
// Megatron-Core's --overlap-moe-expert-parallel-comm with --delay-wgrad-compute does the same on a single stage.
const Schedule kPair1f1b =
    searched("pair-1f1b", "wave, a layer's forward beside another micro-batch's backward (DualPipe, Megatron)",
             DegreePolicy::one, IterationOrder::pairs);

// Lancet (MLSys'24): the forward is chunked, and weight gradients are computed while the backward's AlltoAlls leave the
// compute lane idle. Lancet also chunks the tasks before and after the MoE part; here only the MoE part is chunked.
const Schedule kLancet =
    searched("lancet", "wave, one micro-batch's forward or backward at a time, late weight gradients (Lancet)",
             DegreePolicy::apart, IterationOrder::late_weights);

// FlowMoE (NeurIPS'25): the batch is cut into parts, and the attention, gates, experts and AlltoAlls of all parts form
// one pipeline, with gradients between them. Two micro-batches take the place of the parts here.
const Schedule kFlowmoe = searched("flowmoe", "wave, two micro-batches' forwards, then their backwards (FlowMoE)",
                                   DegreePolicy::one, IterationOrder::two_forwards);

// Comet (MLSys'25): chunks of a layer's AlltoAlls and experts overlap, one layer at a time. Comet's chunks are tiles
// inside one kernel; here they are tasks.
const Schedule kChunkedEp = searched("chunked-ep", "wave, one layer's forward or backward at a time, in chunks (Comet)",
                                     DegreePolicy::apart, IterationOrder::in_turn);

}  // namespace moe
