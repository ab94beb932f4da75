#pragma once
// The variants of a gate's kernels, for the gates' table and for the kernels.
#include <cstdint>

namespace moe {

/// How a pair is weighed. none: no kernels; chosen: softmax over the chosen logits (gshard, topk); all: over all logits
/// (switch, xmoe, expert-choice); sigmoid: the logit's sigmoid; mixture: over all rows, and over tokens (softmoe).
enum class Scoring : uint8_t { none, chosen, all, sigmoid, mixture };

}  // namespace moe
