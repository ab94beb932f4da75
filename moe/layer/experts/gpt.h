#pragma once
// GPT's feed-forward: gelu(x W1) W2, gelu exact (erf). W1 (M, H) is sharded by columns, W2 (H, M) by rows. Two GEMMs
// forward, four backward.
#include <memory>

#include "moe/layer/experts/expert.h"

namespace moe {

std::unique_ptr<Expert> make_gpt_expert(const PartSetup& setup);

}  // namespace moe
