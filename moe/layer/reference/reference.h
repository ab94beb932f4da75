#pragma once
// A reference computes a layer's results by other means (layer_graph.h). This header names nothing of LibTorch.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"

namespace moe {

/// Sizes of the terms whose sums are gradients, the largest of each tensor (graph_terms.h), times 1 + sqrt(N) / 32 for
/// the roundings of the longest sum, of N terms. A gradient that almost vanishes is only as exact as these.
using TermSizesByTensor = std::map<std::string, double>;
inline constexpr const char* kInputGradient = "input gradient";

/// Full tensors in float64, row-major, whatever the case's element type.
struct LayerReference {
  std::vector<double> output, input_gradient;            // (tokens of all DP groups, M)
  std::map<std::string, std::vector<double>> gradients;  // by weight (parameter.h)
  std::vector<int32_t> choices;                          // (tokens, choices): experts
  double auxiliary = 0;                                  // the gate's auxiliary losses
  TermSizesByTensor sizes = {};                          // for the gradients; the input's is kInputGradient
};

/// The layer's own choices, (tokens, choices). Rounding may decide a near-tie of two experts either way, so the
/// reference follows these choices if their scores are at most `tie` times the largest score lower than its own; it
/// always follows `preset` ones.
struct LayerChoices {
  std::span<const int32_t> preferred = {};
  double tie = 0;
  bool preset = false;
};

/// Computes forward and backward of the whole layer.
LayerReference reference_layer(const LayerCase& shape, const LayerSeed& seed, const LayerChoices& choices = {});

/// The results of a gate alone, with the loss <weight, d_weight> + <fill, d_fill> over the kept pairs and the auxiliary
/// losses.
struct GateReference {
  std::vector<int32_t> expert, row;                      // of each pair; row < 0: dropped
  std::vector<double> weight, fill, d_hidden;            // as in Routing and GateBackward; empty fill: 1
  std::map<std::string, std::vector<double>> gradients;  // by weight
  TermSizesByTensor sizes = {};                          // for the gradients; d_hidden's is kInputGradient
};
/// The input of reference_gate, full, in float64: hidden (tokens, M), d_weight and, for gates that mix tokens, d_fill
/// (tokens, choices).
struct GateInputs {
  std::span<const double> hidden, d_weight, d_fill;
};
GateReference reference_gate(const LayerCase& shape, const LayerSeed& seed, const GateInputs& inputs,
                             const LayerChoices& choices = {});

}  // namespace moe
