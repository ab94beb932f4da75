#pragma once
// Names how a gate's kernels weigh a pair; read by the gates' table and by the kernels.
#include <cstdint>

namespace moe {

/// none: no kernels; chosen: the softmax over the chosen logits (gshard); all: over all logits (switch); sigmoid: the
/// logit's sigmoid.
enum class Scoring : uint8_t { none, chosen, all, sigmoid };

}  // namespace moe
