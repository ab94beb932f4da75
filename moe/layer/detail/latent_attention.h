#pragma once
// Multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1), this MP rank's heads. A token is
// compressed to a latent of keys and values, and unless q_lora_rank is 0 to one of queries; each has an RMSNorm. Heads
// have queries, keys and values from the normed latents. The last qk_rope_head_dim numbers of a query are rotated by
// its place, and so is one key of the token itself, which all heads share behind their own. Weights from the latents on
// are sharded by heads, W_o by rows: outputs are partial sums over the MP group. What makes the latents and that key
// every rank has whole, and computes for all tokens of its MP group; its gradients, parts of its rank's heads, are
// summed over the stage.
#include <memory>

#include "moe/layer/attention.h"

namespace moe {

std::unique_ptr<Attention> make_latent_attention(const PartSetup& setup);

}  // namespace moe
