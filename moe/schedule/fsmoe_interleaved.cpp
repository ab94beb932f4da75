// FSMoE with the order of AllGathers and ReduceScatters on the intra lane searched: FSMoE queues every G before any S,
// which makes the last chunks wait where a ReduceScatter could have run in between.
#include "moe/schedule/layer_builder.h"
#include "moe/schedule/rows.h"

namespace moe {
namespace {

void interleaved_order(LayerBuilder& b) {
  const LaneOrder& order = b.pass().order;
  if (b.one_lane() || order.empty()) return fsmoe_order(b);
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

}  // namespace moe
