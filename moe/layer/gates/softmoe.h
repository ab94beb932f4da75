#pragma once
// SoftMoE: nothing is chosen. Each expert has T_rank rows (slots) per group of tokens, and each row a column of Phi.
// With logits X Phi, row s = sum over the group's tokens of softmax over the tokens * token, and a token's output = sum
// over all rows of softmax over the rows * the row's output (Puigcerver et al. 2024, section 2.1; without section 2.3's
// normalisation). Phi is kept transposed, (E T_rank, M); all groups share it. The gate has no auxiliary loss.
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_softmoe_gate(const PartSetup& setup);
extern const AutogradGate kSoftMoeReference;  // reference/gates/softmoe_graph.cpp

}  // namespace moe
