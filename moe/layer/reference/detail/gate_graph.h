#pragma once
// The gates' graphs, one file each (gates/), and what they share. A gate's row names its graph
// (moe/layer/gates/gate.cpp).
#include "moe/layer/reference/detail/graph_parts.h"

namespace moe {

struct AutogradGate {
  std::vector<GraphWeight> (*weights)(const LayerCase& shape);
  GateGraph (*graph)(const GateGraphInputs& inputs);
};

/// Returns B L / N_MP, the tokens of a group.
int64_t tokens_of_group(const LayerCase& shape);
/// Sets choices and rows of the best top_k experts by logits (tokens, E), and leaves the weights to the gate.
GateGraph top_k_gate(const GateGraphInputs& inputs, const at::Tensor& logits);
/// Picks from values (tokens, E) those of the chosen experts: (tokens, choices).
at::Tensor chosen(const GateGraph& gate, const at::Tensor& values);
/// Routes as a top-k gate whose weights are the chosen experts' probabilities, with both losses.
GateGraph probability_gate(const GateGraphInputs& inputs, const at::Tensor& logits);

/// Computes z_loss times the mean squared log-sum-exp of a token's logits (tokens, E).
at::Tensor z_loss(const GateGraphInputs& inputs, const at::Tensor& logits);
/// Computes z_loss() plus aux_loss E times the sum over experts of (share of the tokens that choose it first) (its mean
/// probability). It is undefined where both coefficients are 0.
at::Tensor auxiliary_losses(const GateGraphInputs& inputs, const GateGraph& gate, const at::Tensor& logits);

}  // namespace moe
