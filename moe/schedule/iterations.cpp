// Orders of whole iterations: `wave`, and the orders of papers and frameworks as restrictions of it. All have the tasks
// of fsmoe-dw. Each is searched (moe/search/wave.h), so it is the best that its turns allow; the originals fix the
// order within a turn by hand, and some use kernels that plans here lack.
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

// DeepSeek-V3's technical report (arXiv:2412.19437, section 3.2.1) pairs a forward and a backward chunk in DualPipe;
// Megatron-Core's --overlap-moe-expert-parallel-comm with --delay-wgrad-compute does so on one stage too.
const Schedule kPair1f1b =
    searched("pair-1f1b", "wave, a layer's forward beside another micro-batch's backward (DualPipe, Megatron)",
             DegreePolicy::one, IterationOrder::pairs);

// Lancet (MLSys'24): chunks of a forward, and weight gradients whenever the backward's AlltoAlls leave computation
// idle. Lancet's chunks include the tasks before and after the MoE part; here they are only of the MoE part.
const Schedule kLancet =
    searched("lancet", "wave, one micro-batch's forward or backward at a time, late weight gradients (Lancet)",
             DegreePolicy::apart, IterationOrder::late_weights);

// FlowMoE (NeurIPS'25): attention, gates, experts and AlltoAlls of the parts of a batch form one pipeline, with
// gradients between them. Its parts are two micro-batches here.
const Schedule kFlowmoe = searched("flowmoe", "wave, two micro-batches' forwards, then their backwards (FlowMoE)",
                                   DegreePolicy::one, IterationOrder::two_forwards);

// Comet (MLSys'25): the AlltoAlls and experts of one layer overlap in chunks, layer after layer. Comet's chunks are
// tiles inside one kernel.
const Schedule kChunkedEp = searched("chunked-ep", "wave, one layer's forward or backward at a time, in chunks (Comet)",
                                     DegreePolicy::apart, IterationOrder::in_turn);

}  // namespace moe
