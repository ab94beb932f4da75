#pragma once
// The components of both kinds of attention: rotary positions, the heads between their projections, and the keys and
// values that CP ranks gather.
#include <array>
#include <memory>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/layer/part.h"
#include "moe/tensor/attention_heads.h"
#include "moe/tensor/tensor.h"

namespace moe {

/// Rotates heads by the positions of the rank's tokens; does nothing if the layer has no rotary positions.
class RotaryPositions {
 public:
  /// Prepares to rotate the last `width` elements of each head.
  RotaryPositions(const PartSetup& setup, int64_t width);
  /// Rotates in place rows (B L / N_CP, heads x `head`), where `head` is the width of a head.
  void rotate(TensorView rows, int64_t head, RotationDirection turn);

 private:
  Math& math_;
  Tensor turns_;  // (L / N_CP, width); empty: nothing is rotated
};

/// Widths of a head: of queries and keys, and of values.
struct HeadWidths {
  int64_t key = 0, value = 0;
};

/// Returns the number of query heads that read the same key-value head.
int64_t queries_of(const PartSetup& setup);

HeadsShape heads_shape(const PartSetup& setup, HeadWidths widths);
/// Makes the rank's heads.
std::unique_ptr<AttentionHeads> make_heads(const PartSetup& setup, HeadWidths widths);

/// Keys and values of one rank or several, or their gradients: (ranks, keys of B L / N_CP tokens, then values).
struct KeysValuesBlock {
  TensorView all;
  TensorView k, v;  // keys and values of the first rank
};

/// Keys and values by phase. Without context parallelism, and in a ring's forward, `own` and `gathered` are the same
/// memory.
struct KeysValuesBuffers {
  KeysValuesBuffers(const PartSetup& setup, HeadWidths widths);
  EnumArray<Phase, KeysValuesBlock, 2> local, gathered;  // of the rank's tokens; of all CP ranks, in their order
  /// For ring attention: each pass's two buffers for blocks of other ranks, and two for this rank's contributions to
  /// the gradients of blocks.
  EnumArray<Phase, std::array<KeysValuesBlock, 2>, 2> received;
  std::array<KeysValuesBlock, 2> gradients;
  EnumArray<Phase, std::vector<KeysValues>, 2> earlier_parts;  // keys and values of the earlier parts of the samples
};

/// Returns the columns of the key-value heads that `heads` read, if each is `width` wide and is read by `queries`
/// heads. With `queries` = 1, these are the columns of `heads` themselves.
inline ShardRange columns_of_heads(ShardRange heads, int64_t width, int64_t queries = 1) {
  return {heads.first / queries * width, heads.count / queries * width, heads.total / queries * width};
}

}  // namespace moe
