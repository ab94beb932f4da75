#pragma once
// What one rank of a layer holds: its place in every group, its tokens, experts, heads and hidden columns.
#include <cstdint>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// A contiguous part of a whole: [first, first + count) of `total`.
struct ShardRange {
  int64_t first = 0, count = 0, total = 0;
  bool operator==(const ShardRange&) const = default;
};

/// Returns part `index` of `parts`, which are equal but for the first total % parts, which get one more.
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
  ShardRange held;                // those whose input and output are here: its own (sharded), or the MP group's
  std::vector<ShardRange> gated;  // runs of tokens that this rank gates; more than one in the replicated flow
  int own_group = 0;              // which of the gated groups are its own tokens
  ShardRange experts;             // of E, held by this EP rank
  ShardRange heads;               // of this MP rank; they need not divide
  ShardRange hidden;              // of H: columns of W1 and rows of W2 that this ESP rank holds
  ShardRange shared;              // likewise of the shared expert's hidden size, or a dense layer's, of this MP rank

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
  /// These count the gated groups that are this rank's own tokens or its MP group's, and name the first of them.
  int held_groups() const { return gates_esp_groups() ? shape.parallel.mp : groups(); }
  int first_held_group() const { return gates_esp_groups() ? esp * shape.parallel.mp : 0; }
  bool gates_esp_groups() const { return traits().gates == Tokens::esp_groups; }
  int gate_copies() const { return traits().gate_copies(shape.parallel); }
  /// These say how often a sum over the stage counts each token: in the gate's and the second norm's gradients; in the
  /// experts'.
  int stage_copies() const { return traits().gates == Tokens::own ? 1 : shape.parallel.mp; }
  int expert_copies() const { return traits().expert_copies(shape.parallel); }
};

/// Returns a token's number in the order of samples, by its number in the order of ranks: % L, its place in its sample.
/// The order differs under context parallelism alone: of each sample's 2 N_CP pieces a rank has one from the front and
/// that as far from the back. A pass over a part of the samples has the tokens of that part alone.
int64_t in_samples(const LayerCase& shape, int64_t token);

/// Places one rank. Throws BadInput naming the field if this layer can't be run: pipeline stages, fewer key-value heads
/// than MP ranks, the exact (unrounded) capacity.
RankShape rank_shape(const LayerCase& shape, int rank, Flow flow = Flow::sharded);

}  // namespace moe
