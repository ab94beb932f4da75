#pragma once
// Keeps layouts and buffers to sizes that are known at run time only: the rows of a layer that drops no token. After
// each forward's gate all ranks tell each other how many rows they fill. The layouts of both phases and all buffers
// follow.
#include "moe/layer/binding/bound_plan.h"

namespace moe::layer {

class RunTimeSizes {
 public:
  RunTimeSizes(LayerState& layer, BoundPlan& plan);

  /// Does nothing for a layer with a capacity. Else it stops the issuing thread, since what that issues next depends on
  /// the counts.
  void agree(Stream& stream);
  /// Gives the layer's buffers and stored activations the room that the layouts need.
  void fit();

 private:
  /// Fills counts_ from of_ranks_.
  void take_counts();
  /// Lets the device find all places anew, and waits for it.
  void place(Stream& stream);

  LayerState& layer_;
  BoundPlan& plan_;
  std::vector<int64_t> of_ranks_;  // [rank][held group][E]
  Array<int64_t> of_ranks_there_;  // likewise, where ranks exchange them
  RowCounts counts_;
};

}  // namespace moe::layer
