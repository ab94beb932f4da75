#pragma once
// A reference computes what a layer must, by other means (layer_graph.h). This header names nothing of LibTorch.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"

namespace moe {

/// Sizes of the terms that gradients are sums of, the largest of each tensor (graph_terms.h), times 1 + sqrt(N) / 32
/// for the roundings of the longest sum, of N terms. A gradient that all but vanishes is as exact as these.
using TermSizesOf = std::map<std::string, double>;
inline constexpr const char* kInputGradient = "input gradient";

/// Full tensors in float64, row-major, whatever the case's element type.
struct LayerReference {
  std::vector<double> output, input_gradient;            // (tokens of all DP groups, M)
  std::map<std::string, std::vector<double>> gradients;  // by weight (parameter.h)
  std::vector<int32_t> choices;                          // (tokens, choices): experts
  double auxiliary = 0;                                  // the gate's auxiliary losses
  TermSizesOf sizes = {};                                // of the gradients, the input's as kInputGradient
};

/// The layer's own choices, (tokens, choices). A near-tie of two experts may be decided either way by rounding:
/// they are followed where their scores are as good but for `tie` times the largest one; `preset` ones whatever they
/// are.
struct LayerChoices {
  std::span<const int32_t> preferred = {};
  double tie = 0;
  bool preset = false;
};

/// Computes forward and backward of the whole layer.
LayerReference reference_layer(const LayerCase& shape, const LayerSeed& seed, const LayerChoices& choices = {});

/// What a gate alone computes, with the loss <weight, d_weight> + <fill, d_fill> over the kept pairs and the
/// auxiliary losses.
struct GateReference {
  std::vector<int32_t> expert, row;                      // of each pair; row < 0: dropped
  std::vector<double> weight, fill, d_hidden;            // as in Routing and GateBackward; fill empty: 1
  std::map<std::string, std::vector<double>> gradients;  // by weight
  TermSizesOf sizes = {};                                // of the gradients, d_hidden's as kInputGradient
};
/// What reference_gate reads, full, in float64: hidden (tokens, M), d_weight and, of gates that mix tokens,
/// d_fill (tokens, choices).
struct GateInputs {
  std::span<const double> hidden, d_weight, d_fill;
};
GateReference reference_gate(const LayerCase& shape, const LayerSeed& seed, const GateInputs& inputs,
                             const LayerChoices& choices = {});

}  // namespace moe
