#pragma once
// Launches of kernels that move rows, in the manner of moe/tensor/cuda/kernels.h.
#include <cstdint>

#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {

// Rows (rows.cu) --------------------------------------------------------------------------------------------------

/// A routing as kernels read it. A slot is a row of an expert of a group: (group experts + expert) rows +
/// row.
struct RoutingArrays {
  int64_t tokens = 0, choices = 0, slots = 0;
  const int32_t* slot_of = nullptr;  // of each pair; -1: dropped
  const int32_t* pair_of = nullptr;  // of each slot; -1: empty
};

/// Rows of `width` elements and their places: row `place[slot]`; -1: the row is not in `data`.
struct PlacedRows {
  void* data = nullptr;
  const int32_t* place = nullptr;
};

/// Computes rows[slot] = tokens[the slot's token], 0 for empty slots.
void order_rows(Work work, const RoutingArrays& routing, const void* tokens, PlacedRows rows, int64_t width);
/// The arguments of combine_rows: out[token] = sum over its pairs of weight (null: 1) times their rows, which are all
/// here. At most 32 choices. Weights and their gradients have the type of sums.
struct Combine {
  const void* weight;
  PlacedRows rows;
  void* out;
};
void combine_rows(Work work, const RoutingArrays& routing, const Combine& args, int64_t width);
/// The arguments of combine_rows_backward: d_rows[slot] = weight * d_out[token], 0 for empty slots, for the slots that
/// are here; d_weight[pair] = <d_out[token], rows[slot]>, 0 for dropped pairs; all rows are here.
struct CombineBackward {
  const void *weight, *d_out;
  PlacedRows rows, d_rows;
  void* d_weight;
};
void combine_rows_backward(Work work, const RoutingArrays& routing, const CombineBackward& args, int64_t width);

/// `count` rows of each of `experts` experts between a layout and where the experts compute. Row i of expert
/// e lies in the layout at place[from + e from_step + i] (RowReader::experts), and there at row first + e step + i.
struct ExpertBlock {
  int64_t experts = 0, count = 0;
  int64_t from = 0, from_step = 0;
  int64_t first = 0, step = 0;
};
void unpack_rows(Work work, const ExpertBlock& block, PlacedRows from, void* experts, int64_t width);
void pack_rows(Work work, const ExpertBlock& block, const void* experts, PlacedRows to, int64_t width);

// Places (places.cu) ----------------------------------------------------------------------------------------------

/// The arguments of find_places, which sets a layout's places from its table (moe/sharding/row_layout.h).
struct PlaceSearch {
  int64_t rows = 0, streams = 0, experts = 0, degree = 0;  // the layout's
  int64_t most = 0;
  bool by_expert = false;  // RowReader::experts
  const int32_t* table;
  int32_t* places;
};
void find_places(void* stream, const PlaceSearch& args);

// Masks (masks.cu) ------------------------------------------------------------------------------------------------

/// One expert's rows of one group of tokens, and its pairs: those in `pair_of`, one per row, or, if tokens are mixed,
/// choice first_choice + row of every token.
struct MaskCell {
  int64_t tokens = 0, first_token = 0, choices = 0;
  int64_t rows = 0;  // rows of the mask; only the first `filled` of them can have a pair
  int64_t filled = 0, first_choice = 0;
  const int32_t* pair_of = nullptr;  // pair of each row; null: mixed
};
/// Computes mask (tokens, rows) = values[pair] (null: 1) at its token and row, else 0. `values` are of the sums' type.
void spread_mask(Work work, const MaskCell& cell, const void* values, void* mask);
/// Computes values[pair] = products[token, row] for the pairs of the cell.
void pick_masked(Work work, const MaskCell& cell, const void* products, void* values);

}  // namespace moe::cuda
