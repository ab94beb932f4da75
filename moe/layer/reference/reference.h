#pragma once
// What a layer must compute, by other means: see layer_graph.h. No LibTorch in this header.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"

namespace moe {

/// Full tensors in float64, row-major, whatever the case's element type.
struct LayerReference {
  std::vector<double> output, input_gradient;            // (tokens of all DP groups, M)
  std::map<std::string, std::vector<double>> gradients;  // by weight (parameter.h)
  std::vector<int32_t> choices;                          // (tokens, top_k): experts
};

/// Forward and backward of the whole layer. A near-tie of two experts may be decided either way by rounding:
/// `preferred` (empty, or the layer's own choices, (tokens, top_k)) is followed where its logits are as good but for
/// `tie` times the largest one.
LayerReference reference_layer(const Case& shape, const LayerSeed& seed, std::span<const int32_t> preferred = {},
                               double tie = 0);

}  // namespace moe
