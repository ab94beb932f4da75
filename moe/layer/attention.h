#pragma once
// Multi-head attention, this MP rank's heads: softmax(q k^T / sqrt(d)) v, then W_o; no norm, no residual; causal unless
// the layer says otherwise, perhaps in a sliding window. Grouped-query (Ainslie et al. 2023): heads / kv_heads
// consecutive heads read the same keys and values. W_q, W_k, W_v are sharded by columns, W_o by rows, so outputs are
// partial sums over the MP group; a rank has whole key-value heads and those that read them, which may divide unevenly.
// Biases, where the layer has them, are sharded by columns, W_o's too. 6 GEMMs forward, 12 backward; unless
// Recompute::none the backward computes the scores again (attention_heads.h). With rope_theta, queries and keys are
// rotated by their places in the sequence (Su et al. 2021); pairs are numbers j and j + d / 2 of a head, as the
// published weights of Llama's and Mixtral's kind have them.
#include <memory>
#include <vector>

#include "moe/layer/part.h"

namespace moe {

class Attention {
 public:
  virtual ~Attention() = default;

  // These four are called under context parallelism, where the functions below leave out what they do; the third by the
  // parts of samples behind, too.

  /// Computes keys and values of the rank's tokens from input (B L / N_CP, M), before CP ranks gather them.
  virtual void keys_values(TensorView /*input*/) {}
  /// Adds the part of keys and values to d_input, after their gradients were summed over CP, and computes the gradients
  /// of their weights, which lie in `gradients`.
  virtual void keys_values_backward(TensorView /*input*/, TensorView /*d_input*/, TensorView /*gradients*/,
                                    Into /*into*/) {}
  /// Shows keys, then values, of the rank's tokens, or their gradients: what a rank gives to a gather, or has of a sum.
  virtual TensorView own_keys_values(Phase /*phase*/) { return {}; }
  /// Shows those of all CP ranks, in their order.
  virtual TensorView all_keys_values(Phase /*phase*/) { return {}; }

  /// Computes out (B L, M), this rank's part of the sum, from input (B L, M); sequences are L consecutive tokens. With
  /// context parallelism a rank has L / N_CP of each, in the two pieces of HeadsShape.
  virtual void forward(TensorView input, TensorView out) = 0;
  /// Computes d_input (B L, M), this rank's part of the sum, from d_out (B L, M): half of a backward.
  virtual void backward_input(TensorView d_out, TensorView d_input) = 0;
  /// Computes the weights' gradients, one after the other in `gradients`: the other half, any time behind the first.
  /// `input` is the forward's, `d_out` what the first half read.
  virtual void backward_weights(TensorView input, TensorView d_out, TensorView gradients,
                                Into into = Into::overwrite) = 0;
  /// Shows the parameters. First those that are summed over DP, whose gradients lie in `gradients`; then, of latent
  /// attention, those that the stage sums, which have gradients of their own.
  virtual std::vector<Parameter> parameters(TensorView gradients) = 0;
};

/// Makes attention, or latent attention (latent_attention.h), as the layer has it.
std::unique_ptr<Attention> make_attention(const PartSetup& setup);

}  // namespace moe
