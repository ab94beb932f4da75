#pragma once
// The gate of Mixtral and other open models, for any k: it chooses the k largest logits of x W_g; weight = softmax over
// the chosen logits only, which equals the expert's probability among all experts divided by the sum of the chosen
// experts' probabilities (Mixtral, arXiv:2401.04088, section 2.1). The gate has the balance and the z loss
// (gate_parts.h) of the softmax over all logits.
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_topk_gate(const PartSetup& setup);
extern const AutogradGate kTopKReference;  // reference/gates/topk_graph.cpp

}  // namespace moe
