#pragma once
// The gates' graphs, one file each (gates/), and their common parts. A gate's row names its graph
// (moe/layer/gates/gate.cpp).
#include "moe/layer/reference/detail/graph_parts.h"

namespace moe {

struct AutogradGate {
  std::vector<GraphWeight> (*weights)(const LayerCase& shape);
  GateGraph (*graph)(const GateGraphInputs& inputs);
};

/// Returns W_g (E, M), which most gates have alone.
std::vector<GraphWeight> logit_weights(const LayerCase& shape);
/// Computes x W_g (tokens, rows of W_g).
at::Tensor logits_of(const GateGraphInputs& inputs);
/// Returns B L / N_MP, the tokens of a group.
int64_t tokens_of_group(const LayerCase& shape);
/// Sets choices and rows of the top_k best experts by logits (tokens, E); the gate sets the weights.
GateGraph top_k_gate(const GateGraphInputs& inputs, const at::Tensor& logits);
/// Returns the values (tokens, E) of the chosen experts: (tokens, choices).
at::Tensor chosen(const GateGraph& gate, const at::Tensor& values);
/// Routes as a top-k gate whose weights are the chosen experts' probabilities, with both auxiliary losses.
GateGraph probability_gate(const GateGraphInputs& inputs, const at::Tensor& logits);
/// The same, but with weights that are the softmax over the chosen experts alone.
GateGraph chosen_softmax_gate(const GateGraphInputs& inputs, const at::Tensor& logits);

/// Computes z_loss times the mean squared log-sum-exp of a token's logits (tokens, E).
at::Tensor z_loss(const GateGraphInputs& inputs, const at::Tensor& logits);
/// Computes z_loss() plus aux_loss E times the sum over experts of (share of the tokens whose first choice it is) (its
/// mean probability). The result is undefined if both coefficients are 0.
at::Tensor auxiliary_losses(const GateGraphInputs& inputs, const GateGraph& gate, const at::Tensor& logits);

}  // namespace moe
