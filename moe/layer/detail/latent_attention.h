#pragma once
// Multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434, section 2.1), this MP rank's heads. A token is
// compressed to a latent of keys and values and, unless q_lora_rank is 0, to one of queries; each latent has an
// RMSNorm. Heads get queries, keys and values from the normed latents. The last qk_rope_head_dim numbers of a query are
// rotated by its place, and so is one key of the token, which is appended to the keys of all heads. Weights from the
// latents on are sharded by heads, W_o by rows, so outputs are partial sums over the MP group. Every rank has the whole
// weights that make the latents and that key, and applies them to all tokens of its MP group; their gradients, from the
// rank's own heads, are summed over the stage.
#include <memory>

#include "moe/layer/attention.h"

namespace moe {

std::unique_ptr<Attention> make_latent_attention(const PartSetup& setup);

}  // namespace moe
