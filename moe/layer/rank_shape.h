#pragma once
// What one rank of a layer holds: its place in every group, its tokens, experts, heads and hidden columns.
#include <cstdint>

#include "moe/plan/shape.h"

namespace moe {

/// A contiguous part of a whole: [first, first + count) of `total`.
struct Share {
  int64_t first = 0, count = 0, total = 0;
  bool operator==(const Share&) const = default;
};

/// Part `index` of `parts`: equal but for the first total % parts, which get one more.
Share share_of(int64_t total, int parts, int index);

/// rank = dp N_MP + mp = (edp N_EP + ep) N_ESP + esp.
struct RankShape {
  Case shape;
  int rank = 0;
  int dp = 0, mp = 0, ep = 0, esp = 0, edp = 0;  // positions in the groups
  int64_t rows = 0;                              // T_rank
  int64_t head_dim = 0;
  Share tokens;   // gated here; of all tokens, dp B L + mp B L / N_MP is the first
  Share experts;  // of E, held by this EP rank
  Share heads;    // of this MP rank; they need not divide
  Share hidden;   // of H: columns of W1 and rows of W2 that this ESP rank holds

  DType dtype() const { return shape.layer.dtype; }
  int64_t model_dim() const { return shape.layer.model_dim; }
  int64_t group_tokens() const { return shape.layer.batch * shape.layer.seq; }  // of the MP group: B L
  /// Rows of one expert that carry the same row number: one from each rank that shares the expert's tokens.
  int64_t sources() const { return int64_t{shape.parallel.ep} * shape.parallel.esp; }
};

/// Throws BadInput naming the field if this layer can't be run yet: pipeline stages, grouped-query attention, dropless
/// routing, the exact (unrounded) capacity, Mixtral experts, 16-bit elements.
RankShape rank_shape(const Case& shape, int rank);

}  // namespace moe
