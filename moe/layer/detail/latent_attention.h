#pragma once
// Multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1) for the heads of this MP rank. A token
// is compressed to a latent for keys and values and, unless q_lora_rank is 0, to a latent for queries; each latent has
// an RMSNorm. The heads' queries, keys and values are projections of the normed latents. The last qk_rope_head_dim
// elements of a query are rotated by the token's position. So is the token's rotary key, which is appended to the keys
// of all heads. The projections from the latents are sharded by heads and W_o by rows, so outputs are partial sums over
// the MP group. The projections to the latents and to the rotary key are not sharded: every rank applies them to all
// tokens of its MP group, and their gradients, each from the rank's own heads, are summed over the stage.
#include <memory>

#include "moe/layer/attention.h"

namespace moe {

std::unique_ptr<Attention> make_latent_attention(const PartSetup& setup);

}  // namespace moe
