#pragma once
// The layer as a differentiable function of full weights: one rank, all tokens, float64, by LibTorch's operations and
// autograd. Slow and obvious; shares no code with the layer but the counter-based beginnings of parameter.h. Includes
// LibTorch: only for this folder and its tests.
#include <ATen/core/Tensor.h>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/reference/detail/graph_parts.h"
#include "moe/layer/reference/reference.h"

namespace moe {

/// Full tensors, float64, rounded to the case's element type as the layer's are. Weights are by their names
/// (parameter.h).
struct GraphInputs {
  at::Tensor input;                // (tokens of all DP groups, M)
  std::vector<at::Tensor> before;  // likewise, of the parts of the samples before this one
  at::Tensor output_gradient;      // likewise; undefined: the loss is not of this layer's output
  at::Tensor gate_noise;           // (tokens, E)
  GraphWeights weights;
};
GraphInputs graph_inputs(const LayerCase& shape, const LayerSeed& seed);
/// These make the weights of a part, rounded to its element type, and the noise that a gate adds.
GraphWeights graph_weights(const std::vector<GraphWeight>& weights, DType dtype, const LayerSeed& seed);
at::Tensor graph_gate_noise(const LayerCase& shape, const LayerSeed& seed);

struct GraphOutputs {
  at::Tensor output;             // (tokens, M)
  at::Tensor loss;               // sum of output * output_gradient, and the auxiliary losses; undefined: none
  double auxiliary = 0;          // the latter alone
  std::vector<int32_t> choices;  // (tokens, choices): experts, from the most to the least preferred
};

/// Computes the layer; tokens are routed and capped in groups of B L / N_MP, as the ranks do.
GraphOutputs run_graph(const LayerCase& shape, const GraphInputs& inputs, const LayerChoices& choices);

}  // namespace moe
