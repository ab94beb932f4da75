#pragma once
// The gates' graphs, one file each; gate_graph.cpp lists them. And what they share.
#include "moe/layer/reference/graph_parts.h"

namespace moe {

struct GateGraphRow {
  std::string_view name;
  std::vector<GraphWeight> (*weights)(const Case& shape);
  GateGraph (*graph)(const GateGraphInputs& inputs);
};

extern const GateGraphRow kGShardGraph, kSwitchGraph, kSigmoidGraph, kXMoeGraph, kSoftMoeGraph, kExpertChoiceGraph;

/// B L / N_MP.
int64_t tokens_of_group(const Case& shape);
/// Choices and rows of the best top_k experts by logits (tokens, E); weights are left to the gate.
GateGraph top_k_gate(const GateGraphInputs& inputs, const at::Tensor& logits);
/// The chosen experts' of values (tokens, E): (tokens, choices).
at::Tensor chosen(const GateGraph& gate, const at::Tensor& values);
/// A top-k gate whose weights are the chosen experts' probabilities, and which has both losses.
GateGraph probability_gate(const GateGraphInputs& inputs, const at::Tensor& logits);

/// z_loss times the mean squared log-sum-exp of a token's logits (tokens, E).
at::Tensor z_loss(const GateGraphInputs& inputs, const at::Tensor& logits);
/// That and aux_loss E sum over the experts of (share of the tokens that choose it first) (its mean probability);
/// undefined where both coefficients are 0.
at::Tensor auxiliary_losses(const GateGraphInputs& inputs, const GateGraph& gate, const at::Tensor& logits);

}  // namespace moe
