#pragma once
// Multi-head attention for the heads of this MP rank: softmax(q k^T / sqrt(d)) v, then W_o, without norm and residual.
// The layer's shape decides whether attention is causal and whether it has a sliding window. In grouped-query attention
// (Ainslie et al. 2023), heads / kv_heads consecutive heads read the same keys and values. W_q, W_k and W_v are sharded
// by columns and W_o by rows, so outputs are partial sums over the MP group. A rank has whole key-value heads and the
// heads that read them; ranks may have different numbers of heads. All biases, W_o's included, are sharded by columns.
// The forward takes 6 GEMMs, the backward 12. Unless Recompute::none is set, the backward recomputes the scores
// (attention_heads.h). With rope_theta, queries and keys are rotated by their positions in the sequence (Su et al.
// 2021): elements j and j + d / 2 of a head form a pair, as in the published weights of Llama and Mixtral.
#include <memory>
#include <vector>

#include "moe/layer/part.h"

namespace moe {

class Attention {
 public:
  virtual ~Attention() = default;

  // The next four functions are called only under context parallelism; forward() and the backward functions then omit
  // their work. Attention over later parts of the samples also calls local_keys_values().

  /// Computes keys and values of the rank's tokens from input (B L / N_CP, M), before CP ranks gather them.
  virtual void keys_values(TensorView /*input*/) {}
  /// Adds to d_input the gradient that comes through keys and values, and writes the gradients of W_k and W_v into
  /// `gradients`. Call it after the gradients of keys and values were summed over CP.
  virtual void keys_values_backward(TensorView /*input*/, TensorView /*d_input*/, TensorView /*gradients*/,
                                    Into /*into*/) {}
  /// Returns keys, then values, of the rank's tokens (the input of the gather over CP), or in the backward their
  /// gradients (the output of the sum over CP).
  virtual TensorView local_keys_values(Phase /*phase*/) { return {}; }
  /// Returns the same tensors of all CP ranks, in rank order.
  virtual TensorView all_keys_values(Phase /*phase*/) { return {}; }

  // The next three functions are called only in ring attention (moe/tensor/ring_heads.h). There keys_values() also
  // computes queries, and forward() computes no heads. Block 0 belongs to this rank, block i to the i-th rank before
  // it.

  /// Computes the heads from one block of keys and values, or in the backward the gradients of heads and block.
  virtual void heads(Phase /*phase*/, int /*block*/) {}
  /// Returns the memory of a block's keys, then values, which the pass sends and receives.
  virtual TensorView block(Phase /*phase*/, int /*block*/) { return {}; }
  /// Returns this rank's contribution to the gradients of a block's keys and values.
  virtual TensorView block_gradients(int /*block*/) { return {}; }

  /// Computes out (B L, M), this rank's part of the sum, from input (B L, M); sequences are L consecutive tokens. With
  /// context parallelism a rank has L / N_CP of each, in the two pieces of HeadsShape.
  virtual void forward(TensorView input, TensorView out) = 0;
  /// Computes d_input (B L, M), this rank's part of the sum, from d_out (B L, M): half of a backward.
  virtual void backward_input(TensorView d_out, TensorView d_input) = 0;
  /// Computes the weights' gradients, stored one after the other in `gradients`, at any time after backward_input().
  /// `input` is the forward's input, `d_out` the gradient that backward_input() read.
  virtual void backward_weights(TensorView input, TensorView d_out, TensorView gradients,
                                Into into = Into::overwrite) = 0;
  /// Returns the parameters: first those whose gradients lie in `gradients` and are summed over DP; then, in latent
  /// attention, those whose gradients lie elsewhere and are summed over the stage.
  virtual std::vector<Parameter> parameters(TensorView gradients) = 0;
};

/// Makes the layer's attention: multi-head or latent (latent_attention.h).
std::unique_ptr<Attention> make_attention(const PartSetup& setup);

}  // namespace moe
