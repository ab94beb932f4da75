#pragma once
// A lower bound on a whole model's iteration: all micro-batches, layers and stages under one schedule.
#include "moe/cost/bounds.h"
#include "moe/schedule/model_plan.h"

namespace moe {

/// Whatever the degrees and wherever the gradients are sent; `pricer` prices one layer of the model. Micro-batches may
/// overlap: a layer's tasks wait for the layer before of the same micro-batch, and on each lane for the pass before.
double model_bound(const Schedule& schedule, const LayerPricer& pricer, const ModelShape& model);

}  // namespace moe
