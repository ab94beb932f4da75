#pragma once
// Where a row of an expert lies on its way: before and after the collectives, and where the expert computes on it.
//
//   wire      [chunk][EP peer][row of the chunk][local expert][M], a chunk beginning at its first row times E M
//   gathered  the same with [ESP peer] before [EP peer], a chunk beginning N_ESP times as far in
//   expert    [local expert][row of T_rank][source = ESP peer * N_EP + EP peer][M]: a chunk's rows are contiguous for
//             each expert whatever the degree, so activations stored by one degree serve another
#include <vector>

#include "moe/layer/rank_shape.h"
#include "moe/layer/tensor_view.h"
#include "moe/plan/volumes.h"

namespace moe {

/// Offsets and sizes in elements. Chunks may be empty (degree > T_rank).
class WireLayout {
 public:
  WireLayout(const RankShape& shape, int degree);

  int degree() const { return static_cast<int>(chunks_.size()); }
  Rows rows(int chunk) const { return chunks_[static_cast<size_t>(chunk)]; }
  int64_t total_rows() const { return static_cast<int64_t>(places_.size()); }
  /// Of row `row` of expert `expert` (of all E) in the wire layout.
  int64_t offset(int64_t expert, int64_t row) const {
    const Place& place = places_[static_cast<size_t>(row)];
    return place.first + expert / local_experts_ * place.peer_step + expert % local_experts_ * model_dim_;
  }
  int64_t chunk_offset(int chunk) const { return rows(chunk).begin * experts_ * model_dim_; }
  /// Of one EP peer's block of a chunk, and of the whole chunk.
  int64_t block_elements(int chunk) const { return rows(chunk).count() * local_experts_ * model_dim_; }
  int64_t chunk_elements(int chunk) const { return rows(chunk).count() * experts_ * model_dim_; }

 private:
  struct Place {
    int64_t first, peer_step;  // of the first peer's first expert; from one peer to the next
  };
  int64_t experts_, local_experts_, model_dim_;
  std::vector<Rows> chunks_;
  std::vector<Place> places_;  // of each row
};

/// The rows of `shape.sources()` sources that rows [begin, end) of T_rank are in the expert layout.
Rows expert_rows(const RankShape& shape, Rows rows);

/// From a chunk's part of the gathered layout to rows [first, ...) of the expert layout (local experts, any, M).
void unpack_chunk(const RankShape& shape, Rows rows, TensorView gathered, TensorView expert, int64_t first);
/// The way back.
void pack_chunk(const RankShape& shape, Rows rows, TensorView expert, int64_t first, TensorView gathered);

}  // namespace moe
