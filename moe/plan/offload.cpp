#include "moe/plan/offload.h"

namespace moe {

int fetches_of_stage(PipelineOrder order, int micro_batches, const StageSplit& split, int stage,
                     const DenseLayers& dense) {
  ExpertWindow window;
  int fetches = 0;
  for (const PipelineStep& step : steps_of_stage(order, micro_batches, split, stage)) {
    const auto [first, last] = layers_of_chunk(split, step.chunk);
    for (int i = 0; i < last - first; ++i) {
      const int layer = step.phase == Phase::forward ? first + i : last - 1 - i;
      if (!dense.has(layer)) fetches += window.begin(layer).fetches;
    }
  }
  return fetches;
}

StepWeights device_weights(const LayerCase& shape, StepWeights weights) {
  if (shape.parallel.offload == Offload::experts) weights.experts = 0;
  return weights;
}

}  // namespace moe
