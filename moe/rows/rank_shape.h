#pragma once
// What one rank of a layer holds: its place in every group, its tokens, experts, heads and hidden columns.
#include <cstdint>
#include <vector>

#include "moe/plan/plan.h"

namespace moe {

/// A contiguous part of a whole: [first, first + count) of `total`.
struct Share {
  int64_t first = 0, count = 0, total = 0;
  bool operator==(const Share&) const = default;
};

/// Part `index` of `parts`: equal but for the first total % parts, which get one more.
Share share_of(int64_t total, int parts, int index);

/// rank = dp N_MP + mp; ep, esp and edp by the placement (ParallelShape). The ranks of an MP group have B L tokens
/// together; a group of tokens is the B L / N_MP of them that are one rank's own.
struct RankShape {
  Case shape;
  Flow flow = Flow::sharded;
  int rank = 0;
  int dp = 0, mp = 0, ep = 0, esp = 0, edp = 0;  // positions in the groups
  int64_t rows = 0;                              // T_rank, padded
  int64_t head_dim = 0;
  Share tokens;              // this rank's own, of all tokens: dp B L + mp B L / N_MP is the first
  Share held;                // those whose input and output are here: its own (sharded), or the MP group's
  std::vector<Share> gated;  // runs of tokens that this rank gates; more than one in the replicated flow
  int own_group = 0;         // which of the gated groups are its own tokens
  Share experts;             // of E, held by this EP rank
  Share heads;               // of this MP rank; they need not divide
  Share hidden;              // of H: columns of W1 and rows of W2 that this ESP rank holds

  DType dtype() const { return shape.layer.dtype; }
  int64_t model_dim() const { return shape.layer.model_dim; }
  int64_t mp_tokens() const { return shape.layer.batch * shape.layer.seq; }  // of the MP group: B L
  Share mp_group() const { return share_of(mp_tokens() * shape.parallel.dp, shape.parallel.dp, dp); }
  int64_t gated_tokens() const;
  int groups() const { return static_cast<int>(gated_tokens() / tokens.count); }
  /// Of the gated groups, those of this rank's own tokens or of its MP group's: how many, and the first.
  int held_groups() const { return flow == Flow::replicated ? shape.parallel.mp : groups(); }
  int first_held_group() const { return flow == Flow::replicated ? esp * shape.parallel.mp : 0; }
  /// Only its own tokens are gated here; the rows of all gated groups are sent from here, not its own group's alone;
  /// rows pass `peer` (layouts.h) on their way.
  bool gates_own_tokens() const { return flow == Flow::sharded || flow == Flow::fused; }
  bool sends_all_groups() const { return flow == Flow::replicated || flow == Flow::tensor; }
  bool through_peer() const { return flow == Flow::sharded || flow == Flow::dropped; }
  /// The ranks that gate a token and add up the gradients that they make of it (those of its hidden state).
  int gate_copies() const { return flow == Flow::replicated ? shape.parallel.esp : 1; }
  /// How often a sum over the stage counts each token: in the gate's and the second norm's gradients; in the experts'.
  int stage_copies() const { return gates_own_tokens() ? 1 : shape.parallel.mp; }
  int expert_copies() const { return flow == Flow::replicated ? shape.parallel.mp : 1; }
};

/// Throws BadInput naming the field if this layer can't be run: pipeline stages, fewer key-value heads than MP ranks,
/// the exact (unrounded) capacity.
RankShape rank_shape(const Case& shape, int rank, Flow flow = Flow::sharded);

}  // namespace moe
