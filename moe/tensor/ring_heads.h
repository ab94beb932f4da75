#pragma once
// The heads of attention (attention_heads.h) if keys and values arrive in blocks, one from each rank that shares the
// sequences (ring attention, Liu et al. 2023). For each token and head, `sums_` has the logarithm of the sum of
// exp(score) over the blocks so far. A new block's softmax is merged into the output by rescaling with this number
// (Milakov and Gimelshein 2018), and the backward uses it to recompute the softmax of each block.
#include <memory>

#include "moe/tensor/attention_heads.h"

namespace moe {

class RingHeads {
 public:
  /// Makes the heads of a rank's tokens. HeadsShape::recompute and rank_stride are ignored. The forward stores one
  /// number per token and head in `kept`, the backward another in `backward`; scores are stored only during a call.
  /// Throws Unsupported unless `math` is a CPU's, WrongResult for a window or for samples in parts.
  RingHeads(Math& math, const HeadsShape& shape, TensorStore& kept, TensorStore& backward);

  /// Merges into out (tokens, heads value_dim) the attention of q (tokens, heads dim) to the block of rank `from`,
  /// whose rows are that rank's tokens. The call with `first` starts a new output. After the blocks of all ranks, `out`
  /// is the result of attention.
  void forward(TensorView q, const KeysValues& block, int from, TensorView out, bool first);

  /// Begins a backward from attention's output and its gradient.
  void begin_backward(TensorView out, TensorView d_out);
  /// Overwrites `d` by the gradients of the block that come from this rank's tokens, and adds to dq. The call with
  /// `first` overwrites dq.
  void backward(TensorView q, const KeysValues& block, int from, TensorView d_out, const KeysValues& d, TensorView dq,
                bool first);

 private:
  /// One piece of queries and one piece of keys of a sequence, for the `query`-th query head of each key-value head.
  struct Tile {
    int64_t sequence, query;
    int64_t row, key_row;  // first row of each piece among its rank's tokens of the sequence
    bool diagonal;         // whether both are the same piece under a causal mask, so that a token sees no later keys
  };
  template <class Body>
  void for_each_tile(int from, Body body) const;
  Matrix head(TensorView rows, int64_t sequence, int64_t row, int64_t heads, int64_t first) const;
  template <class T>
  T* number(TensorView numbers, const Tile& tile, int64_t kv_head) const;
  void scores(TensorView q, const KeysValues& block, const Tile& tile, TensorView out);
  Tensor make_scores() const { return {{shape_.kv_heads, piece_, piece_}, shape_.dtype, math_.memory()}; }

  Math& math_;
  HeadsShape shape_;
  int64_t piece_;    // tokens of a piece; a rank has two of each sequence
  int64_t queries_;  // query heads that read one key-value head
  double scale_;
  TensorView sums_;  // (heads, tokens): logarithms of sums of exponentials
  TensorView mean_;  // (heads, tokens): dot products of the output and its gradient
};

}  // namespace moe
