#pragma once
// GPT's feed-forward with GELU as GPT-2 computes it: gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
#include <memory>

#include "moe/layer/experts/expert.h"

namespace moe {

std::unique_ptr<Expert> make_gpt_tanh_expert(const PartSetup& setup);

}  // namespace moe
