#pragma once
// Multi-head attention, this MP rank's heads: softmax(q k^T / sqrt(d)) v, then W_o; no norm, no residual; causal unless
// the layer says otherwise, with a sliding window if it has one. Grouped-query (Ainslie et al. 2023): heads / kv_heads
// consecutive heads read the same keys and values. W_q, W_k, W_v are sharded by columns, W_o by rows, so outputs are
// partial sums over the MP group; a rank has whole key-value heads and the heads that read them, perhaps not equally
// many on all ranks. Biases, if the layer has them, are sharded by columns, W_o's too. 6 GEMMs forward, 12 backward;
// unless Recompute::none the backward computes the scores again (attention_heads.h). With rope_theta, queries and keys
// are rotated by their places in the sequence (Su et al. 2021); pairs are numbers j and j + d / 2 of a head, as in the
// published weights of Llama and Mixtral.
#include <memory>
#include <vector>

#include "moe/layer/part.h"

namespace moe {

class Attention {
 public:
  virtual ~Attention() = default;

  // These four are called only under context parallelism, where the functions below leave out this work; the third is
  // also called by later parts of the samples.

  /// Computes keys and values of the rank's tokens from input (B L / N_CP, M), before CP ranks gather them.
  virtual void keys_values(TensorView /*input*/) {}
  /// Adds the part of keys and values to d_input, after their gradients were summed over CP, and computes the gradients
  /// of their weights, which lie in `gradients`.
  virtual void keys_values_backward(TensorView /*input*/, TensorView /*d_input*/, TensorView /*gradients*/,
                                    Into /*into*/) {}
  /// Returns keys, then values, of the rank's tokens, or their gradients: a rank's input of a gather, output of a sum.
  virtual TensorView local_keys_values(Phase /*phase*/) { return {}; }
  /// Returns those of all CP ranks, in rank order.
  virtual TensorView all_keys_values(Phase /*phase*/) { return {}; }

  // These are called only in a ring (moe/tensor/ring_heads.h), in which keys_values() computes queries too, and the
  // functions below no heads. Block 0 is the rank's own, block i that of the i-th rank before it.

  /// Computes the heads with one block of keys and values, or the gradients of both.
  virtual void heads(Phase /*phase*/, int /*block*/) {}
  /// Returns keys, then values, of a block: the memory from which a pass sends it and into which it receives it.
  virtual TensorView block(Phase /*phase*/, int /*block*/) { return {}; }
  /// Returns the gradients of a block's keys and values from the rank's own tokens.
  virtual TensorView block_gradients(int /*block*/) { return {}; }

  /// Computes out (B L, M), this rank's part of the sum, from input (B L, M); sequences are L consecutive tokens. With
  /// context parallelism a rank has L / N_CP of each, in the two pieces of HeadsShape.
  virtual void forward(TensorView input, TensorView out) = 0;
  /// Computes d_input (B L, M), this rank's part of the sum, from d_out (B L, M): half of a backward.
  virtual void backward_input(TensorView d_out, TensorView d_input) = 0;
  /// Computes the weights' gradients, one after the other in `gradients`: the other half, at any time after the first.
  /// `input` is the forward's, `d_out` the gradient that the first half read.
  virtual void backward_weights(TensorView input, TensorView d_out, TensorView gradients,
                                Into into = Into::overwrite) = 0;
  /// Returns the parameters. First those that are summed over DP, whose gradients lie in `gradients`; then, in latent
  /// attention, those that are summed over the stage, which have gradients of their own.
  virtual std::vector<Parameter> parameters(TensorView gradients) = 0;
};

/// Makes the layer's attention: multi-head or latent (latent_attention.h).
std::unique_ptr<Attention> make_attention(const PartSetup& setup);

}  // namespace moe
