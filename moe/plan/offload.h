#pragma once
// Offloaded experts (Offload::experts): the weights and optimizer states of a stage's experts are in the host's memory.
// The device has a window with the weights of kWindowLayers layers, so the weights for the next pass arrive while a
// pass computes.
#include <algorithm>
#include <array>

#include "moe/plan/pipeline.h"
#include "moe/plan/plan.h"

namespace moe {

/// The layer in each place of a stage's window. Call begin() for the passes of MoE layers in the order in which the
/// stage runs them.
class ExpertWindow {
 public:
  struct Use {
    int place = 0;
    bool fetches = false;  // true: the weights must be fetched to `place` first
  };
  /// Begins a pass of `layer`. If its weights are not in the window, they replace those that the last pass did not use.
  Use begin(int layer) {
    const auto found = std::ranges::find(layers_, layer);
    const bool fetches = found == layers_.end();
    last_ = fetches ? 1 - last_ : static_cast<int>(found - layers_.begin());
    layers_[last_] = layer;
    return {last_, fetches};
  }

 private:
  static_assert(kWindowLayers == 2);
  std::array<int, kWindowLayers> layers_{kNoLayer, kNoLayer};
  int last_ = 1;
  static constexpr int kNoLayer = -2;  // no layer and no end of a model has this number
};

/// Returns the number of times that a stage fetches a layer's weights in an iteration.
int fetches_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage,
                     const DenseLayers& dense);

/// Returns the weights that the optimizer updates on the device: all except those of offloaded experts.
StepWeights device_weights(const LayerCase& shape, StepWeights weights);

}  // namespace moe
