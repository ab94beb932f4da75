#pragma once
// X-MoE: logits = cos(W_proj x, w_e) / temperature, all three learned; weight = probability of the chosen k, softmax
// over all logits (Chi et al. 2022, section 3.2). The low rank is its E / 2, but at least 16 (its own with 32 experts)
// and at most M; the temperature begins about 0.3, the paper's. Norms below 1e-12 count as that.
// Has the balance and the z loss (softmax_scores.h).
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_xmoe_gate(const PartSetup& setup);
extern const AutogradGate kXMoeReference;  // reference/gates/xmoe_graph.cpp

}  // namespace moe
