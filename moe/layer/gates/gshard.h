#pragma once
// GShard's noisy top-k gate: weight = softmax(keep_top_k(x W_g + N(0, 1) softplus(x W_noise), k)) (FSMoE, section 2.1).
// The softmax is over the kept logits only; ties go to the lower expert; the noise depends on seed, layer, step, token
// and expert. The gate has the balance and the z loss (gate_parts.h), of the softmax over all logits with noise.
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_gshard_gate(const PartSetup& setup);
extern const AutogradGate kGShardReference;  // reference/gates/gshard_graph.cpp

}  // namespace moe
