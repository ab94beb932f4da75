#pragma once
// One rank's part of a layer: its place in every group, its tokens, experts, heads and hidden columns.
#include <cstdint>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// A contiguous part of a whole: [first, first + count) of `total`.
struct ShardRange {
  int64_t first = 0, count = 0, total = 0;
  bool operator==(const ShardRange&) const = default;
};

/// Returns part `index` of `parts`, which are equal, except that the first total % parts have one more.
ShardRange share_of(int64_t total, int parts, int index);

/// A rank's part of a layer. rank = dp N_MP + mp; ep, esp and edp follow by the placement (ParallelShape). The
/// ranks of an MP group have B L tokens together; a group of tokens is the B L / N_MP of them that are one rank's own.
struct RankShape {
  LayerCase shape;
  Flow flow = Flow::sharded;
  int rank = 0;
  int dp = 0, mp = 0, ep = 0, esp = 0, edp = 0;  // positions in the groups
  int64_t rows = 0;                              // T_rank, padded
  int64_t head_dim = 0;
  ShardRange tokens;              // this rank's own, of all tokens: dp B L + mp B L / N_MP is the first
  ShardRange held_tokens;         // tokens whose input and output are here: its own (sharded), or the MP group's
  std::vector<ShardRange> gated;  // runs of tokens that this rank gates; more than one in the replicated flow
  int own_group = 0;              // index of its own tokens' group among the gated ones
  ShardRange experts;             // experts of E that this EP rank holds
  ShardRange heads;               // heads of this MP rank; they need not divide evenly
  ShardRange hidden;              // columns of W1 and rows of W2, of H, that this ESP rank holds
  ShardRange shared;              // this MP rank's part of the hidden size of the shared expert or of a dense layer

  bool is_dense() const { return moe::is_dense(shape); }
  DType dtype() const { return shape.layer.dtype; }
  int64_t model_dim() const { return shape.layer.model_dim; }
  int64_t mp_tokens() const { return moe::mp_tokens(shape); }  // of the MP group: B L / N_CP
  ShardRange mp_group() const {
    return share_of(mp_tokens() * shape.parallel.replicas(), shape.parallel.replicas(), dp);
  }
  int64_t gated_tokens() const;
  int groups() const { return static_cast<int>(gated_tokens() / tokens.count); }
  const FlowTraits& traits() const { return traits_of(flow); }
  /// Return the number of held groups (this rank's own tokens or its MP group's) among the gated ones, and the first.
  int held_group_count() const { return gates_esp_groups() ? shape.parallel.mp : groups(); }
  int first_held_group() const { return gates_esp_groups() ? esp * shape.parallel.mp : 0; }
  bool gates_esp_groups() const { return traits().gates == Tokens::esp_groups; }
  int gate_copies() const { return traits().gate_copies(shape.parallel); }
  /// Return how often a sum over the stage counts each token: in the gradients of the gate and the second norm, and in
  /// those of the experts.
  int stage_copies() const { return traits().gates == Tokens::own ? 1 : shape.parallel.mp; }
  int expert_copies() const { return traits().expert_copies(shape.parallel); }
};

/// Returns a token's number in the order of samples, from its number in the order of ranks; modulo L it is the place in
/// its sample. The orders differ only under context parallelism: of each sample's 2 N_CP pieces, a rank has one from
/// the front and the one as far from the back. A pass over a part of the samples has the tokens of that part alone.
int64_t sample_order_index(const LayerCase& shape, int64_t token);

/// Returns one rank's part. Throws BadInput naming the field if this layer can't be run: pipeline stages, fewer
/// key-value heads than MP ranks, the exact (unrounded) capacity.
RankShape rank_shape(const LayerCase& shape, int rank, Flow flow = Flow::sharded);

}  // namespace moe
