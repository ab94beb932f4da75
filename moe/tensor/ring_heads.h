#pragma once
// The heads of attention (attention_heads.h) when keys and values arrive in blocks, one from each of the ranks that
// share the sequences (ring attention, Liu et al. 2023). A block's part of the softmax is merged into the output by the
// logarithm of the sum of exponentials so far (Milakov and Gimelshein 2018), one number for each token and head, with
// which the backward computes the scores of a block again.
#include <memory>

#include "moe/tensor/attention_heads.h"

namespace moe {

class RingHeads {
 public:
  /// Makes heads of a rank's tokens; memory of scores lives for one call. Of HeadsShape, `recompute` and `rank_stride`
  /// are ignored. Forwards leave numbers in `kept` for backwards, which use `backward` too. Throws Unsupported unless
  /// `math` is a CPU's, WrongResult for a window or for samples in parts.
  RingHeads(Math& math, const HeadsShape& shape, TensorStore& kept, TensorStore& backward);

  /// Adds to out (tokens, heads value_dim) what q (tokens, heads dim) sees in the block of rank `from`, whose k and v
  /// lie as that rank's tokens; `first`: overwrites it. After the blocks of all ranks, `out` is attention's.
  void forward(TensorView q, const KeysValues& block, int from, TensorView out, bool first);

  /// Begins a backward from attention's output and its gradient.
  void begin_backward(TensorView out, TensorView d_out);
  /// Overwrites the block's gradients `d`, from this rank's tokens alone, and adds to dq; `first`: overwrites dq.
  void backward(TensorView q, const KeysValues& block, int from, TensorView d_out, const KeysValues& d, TensorView dq,
                bool first);

 private:
  /// Queries and keys of one piece each, of one sequence and one query head of each key-value head.
  struct Tile {
    int64_t sequence, query;
    int64_t row, key_row;  // first rows of the two pieces among the tokens of the sequence on their ranks
    bool diagonal;         // the same piece under a causal mask: a token sees the keys up to its own
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
  TensorView mean_;  // (heads, tokens): sums of output times its gradient
};

}  // namespace moe
