#pragma once
// Offloaded experts (Offload::experts): the weights and optimizer states of a stage's experts are in the host's memory.
// The device has a window of kWindowLayers layers' weights, so that the next pass's weights arrive during a pass.
#include <algorithm>
#include <array>

#include "moe/plan/pipeline.h"
#include "moe/plan/plan.h"

namespace moe {

/// The layers whose experts a stage's device has, by place in the window. Passes of MoE layers take their places in the
/// order in which the stage runs them.
class ExpertWindow {
 public:
  struct Use {
    int place = 0;
    bool fetches = false;  // the window did not have the layer's weights
  };
  /// Begins a pass of `layer`: its weights are in the window already, or replace those of the other place than the last
  /// pass's.
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

/// Returns the number of fetches of an iteration on a stage.
int fetches_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage,
                     const DenseLayers& dense);

/// Returns the weights that the optimizer steps on the device: without those of offloaded experts.
StepWeights device_weights(const LayerCase& shape, StepWeights weights);

}  // namespace moe
