#pragma once
// The sigmoid gate: it chooses the k largest logits of x W_g; weight = sigmoid(logit) of each chosen one by itself
// (BASE Layers, Lewis et al. 2021, section 2.1; StableMoE, Dai et al. 2022, section 2.2; FSMoE, section 2.1). It is
// greedy in training and inference: no balanced assignment, no distilled router. It has no auxiliary loss.
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_sigmoid_gate(const PartSetup& setup);
extern const AutogradGate kSigmoidReference;  // reference/gates/sigmoid_graph.cpp

}  // namespace moe
