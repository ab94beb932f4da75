#pragma once
// The layer as a differentiable function of full weights: one rank, all tokens, float64, by LibTorch's operations and
// autograd. Slow and simple; shares no code with the layer except the counter-based initial values of parameter.h.
// Includes LibTorch: only for this folder and its tests.
#include <ATen/core/Tensor.h>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/reference/detail/graph_parts.h"
#include "moe/layer/reference/reference.h"

namespace moe {

/// Full tensors, float64, rounded to the case's element type as the layer's are. Weights are stored by name
/// (parameter.h).
struct GraphInputs {
  at::Tensor input;                       // (tokens of all DP groups, M)
  std::vector<at::Tensor> earlier_parts;  // likewise, of the earlier parts of the samples
  at::Tensor output_gradient;             // likewise; undefined: the loss does not depend on this layer's output
  at::Tensor gate_noise;                  // (tokens, E)
  GraphWeights weights;
};
GraphInputs graph_inputs(const LayerCase& shape, const LayerSeed& seed);
/// Make the weights of a part, rounded to its element type, and the noise that a gate adds.
GraphWeights graph_weights(const std::vector<GraphWeight>& weights, DType dtype, const LayerSeed& seed);
at::Tensor graph_gate_noise(const LayerCase& shape, const LayerSeed& seed);

struct GraphOutputs {
  at::Tensor output;             // (tokens, M)
  at::Tensor loss;               // sum of output * output_gradient, and the auxiliary losses; undefined: none
  double auxiliary = 0;          // the auxiliary losses alone
  std::vector<int32_t> choices;  // (tokens, choices): experts, from the most to the least preferred
};

/// Computes the layer; tokens are routed and capped in groups of B L / N_MP, as on the ranks.
GraphOutputs run_graph(const LayerCase& shape, const GraphInputs& inputs, const LayerChoices& choices);

}  // namespace moe
