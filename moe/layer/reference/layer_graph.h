#pragma once
// The layer as a differentiable function of full weights: one rank, all tokens, float64, by LibTorch's operations and
// autograd. Slow and obvious; shares no code with the layer but the counter-based beginnings of parameter.h. Includes
// LibTorch: only for this folder and its tests.
#include <ATen/core/Tensor.h>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"

namespace moe {

/// Full tensors, float64, rounded to the case's element type as the layer's are. Weights by their names (parameter.h).
struct GraphInputs {
  at::Tensor input;            // (tokens of all DP groups, M)
  at::Tensor output_gradient;  // likewise
  at::Tensor gate_noise;       // (tokens, E)
  std::map<std::string, at::Tensor> weights;
};
GraphInputs graph_inputs(const Case& shape, const LayerSeed& seed);

struct GraphOutputs {
  at::Tensor output;             // (tokens, M)
  at::Tensor loss;               // sum of output * output_gradient
  std::vector<int32_t> choices;  // (tokens, top_k): experts, from the most to the least preferred
};

/// Tokens are routed and capped in groups of B L / N_MP, as the ranks do. `preferred` (empty, or (tokens, top_k)) are
/// choices to follow where each is as good as the layer's own but for `tie` times the largest logit.
GraphOutputs run_graph(const Case& shape, const GraphInputs& inputs, std::span<const int32_t> preferred, double tie);

}  // namespace moe
