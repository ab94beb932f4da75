#pragma once
// Mixtral's feed-forward, SwiGLU (Shazeer 2020): (silu(x W1) * (x W3)) W2, without biases. W1, W3 (M, H) are sharded by
// columns, W2 (H, M) by rows. Three GEMMs forward, six backward. In FP8 rows and weights are rounded before they are
// multiplied, with the scales of DeepSeek-V3's training (2024): 128 numbers of a row, 128 x 128 of a weight.
#include <memory>

#include "moe/layer/experts/expert.h"

namespace moe {

std::unique_ptr<Expert> make_mixtral_expert(const PartSetup& setup);
std::unique_ptr<Expert> make_mixtral_fp8_expert(const PartSetup& setup);

}  // namespace moe
