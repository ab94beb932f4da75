#pragma once
// Names what a gate's kernels do; read by the gates' table and by the kernels.
#include <cstdint>

namespace moe {

/// How a pair is weighed. none: no kernels; chosen: the softmax over the chosen logits (gshard); all: over all
/// logits (switch, xmoe, expert-choice); sigmoid: the logit's sigmoid; mixture: all rows', and over tokens (softmoe).
enum class Scoring : uint8_t { none, chosen, all, sigmoid, mixture };

}  // namespace moe
