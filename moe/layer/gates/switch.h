#pragma once
// Switch Transformer's gate, for any k: it chooses the k largest logits of x W_g; weight = the expert's probability, a
// softmax over all logits (Fedus et al. 2022, section 2.1). The gate has the balance and the z loss (gate_parts.h).
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_switch_gate(const PartSetup& setup);
extern const AutogradGate kSwitchReference;  // reference/gates/switch_graph.cpp

}  // namespace moe
