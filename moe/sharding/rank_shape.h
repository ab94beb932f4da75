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

/// A rank's part of a layer. rank = dp N_MP + mp; the placement (ParallelShape) determines ep, esp and edp. The ranks
/// of an MP group have B L tokens together; each rank owns B L / N_MP of them, which are a group of tokens.
struct RankShape {
  LayerCase shape;
  Flow flow = Flow::sharded;
  int rank = 0;
  int dp = 0, mp = 0, ep = 0, esp = 0, edp = 0;  // positions in the groups
  int64_t rows = 0;                              // T_rank, with padding
  int64_t head_dim = 0;
  ShardRange tokens;              // this rank's own tokens, which begin at dp B L + mp B L / N_MP
  ShardRange held_tokens;         // tokens whose input and output this rank has: its own (sharded) or its MP group's
  std::vector<ShardRange> gated;  // runs of tokens that this rank gates; more than one in the replicated flow
  int own_group = 0;              // index of this rank's own group of tokens among the gated groups
  ShardRange experts;             // experts of E that this EP rank holds
  ShardRange heads;               // heads of this MP rank; MP ranks may have different numbers of heads
  ShardRange hidden;              // columns of W1 and rows of W2, of H, that this ESP rank holds
  ShardRange shared;              // this MP rank's part of the hidden size of the shared expert or of a dense layer

  bool is_dense() const { return moe::is_dense(shape); }
  DType dtype() const { return shape.layer.dtype; }
  int64_t model_dim() const { return shape.layer.model_dim; }
  int64_t mp_tokens() const { return moe::mp_tokens(shape); }  // tokens of the MP group: B L / N_CP
  ShardRange mp_group() const {
    return share_of(mp_tokens() * shape.parallel.replicas(), shape.parallel.replicas(), dp);
  }
  int64_t gated_tokens() const;
  int groups() const { return static_cast<int>(gated_tokens() / tokens.count); }
  const FlowTraits& traits() const { return traits_of(flow); }
  /// Return the number and the first index, among the gated groups, of the groups whose tokens this rank holds.
  int held_group_count() const { return gates_esp_groups() ? shape.parallel.mp : groups(); }
  int first_held_group() const { return gates_esp_groups() ? esp * shape.parallel.mp : 0; }
  bool gates_esp_groups() const { return traits().gates == Tokens::esp_groups; }
  int gate_copies() const { return traits().gate_copies(shape.parallel); }
  /// Return the number of times that a sum over the stage counts each token: in the gradients of the gate and of the
  /// second norm (stage_copies), and in those of the experts (expert_copies).
  int stage_copies() const { return traits().gates == Tokens::own ? 1 : shape.parallel.mp; }
  int expert_copies() const { return traits().expert_copies(shape.parallel); }
};

/// Converts a token's number in the order of ranks to its number in the order of samples, which modulo L is its
/// position in its sample. The orders differ only under context parallelism: a sample has 2 N_CP pieces, and CP rank i
/// has pieces i and 2 N_CP - 1 - i. A pass over a part of the samples counts only the tokens of that part.
int64_t sample_order_index(const LayerCase& shape, int64_t token);

/// Returns one rank's part. Throws BadInput naming the field if this layer can't be run: pipeline stages, fewer
/// key-value heads than MP ranks, the exact (unrounded) capacity.
RankShape rank_shape(const LayerCase& shape, int rank, Flow flow = Flow::sharded);

}  // namespace moe
