#pragma once
// The reference of layers that feed each other, over several micro-batches.
#include <functional>
#include <vector>

#include "moe/layer/reference/reference.h"

namespace moe {

/// [layer][micro-batch]: each layer's output, the gradient of its input, its choices; its weights' gradients are those
/// of all micro-batches together.
using StackReference = std::vector<std::vector<LayerReference>>;

/// Forward and backward of `layers` layers over `micro_batches`. Loss = sum over micro-batches of <the last layer's
/// output, its dY>, and all auxiliary losses. `seed` is the first layer's and first micro-batch's; `choices`: of a
/// layer and micro-batch.
StackReference reference_stack(const LayerCase& shape, int layers, int micro_batches, const LayerSeed& seed,
                               const std::function<LayerChoices(int layer, int micro_batch)>& choices = {});

}  // namespace moe
