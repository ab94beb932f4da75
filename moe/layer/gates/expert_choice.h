#pragma once
// Expert Choice: from every group of tokens each expert takes the T_rank tokens with the highest scores, and of equal
// scores the lower token; score = weight = softmax over the experts of x W_g (Zhou et al. 2022, section 3.2, k =
// T_rank). If a group has fewer tokens, the expert takes all. Pair (t, e) has expert e if e takes t, else none. It has
// z loss (gate_parts.h). FSMoE section 2.1 writes it differently, as a softmax of raw logits over the tokens that an
// expert took.
#include <memory>

#include "moe/layer/gates/gate.h"

namespace moe {

std::unique_ptr<Gate> make_expert_choice_gate(const PartSetup& setup);
extern const AutogradGate kExpertChoiceReference;  // reference/gates/expert_choice_graph.cpp

}  // namespace moe
