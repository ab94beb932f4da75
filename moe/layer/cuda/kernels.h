#pragma once
// The layer's kernels, launched, in the manner of moe/tensor/cuda/kernels.h.
#include <cstdint>

#include "moe/layer/gates/scoring.h"
#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {

// Rows (rows.cu) --------------------------------------------------------------------------------------------------

/// A routing as kernels read it. A slot is a row of an expert of a group: (group experts + expert) rows + row.
struct RoutingArrays {
  int64_t tokens = 0, choices = 0, slots = 0;
  const int32_t* slot_of = nullptr;  // of each pair; -1: dropped
  const int32_t* pair_of = nullptr;  // of each slot; -1: empty
};

/// Rows of `width` elements and where they lie: row `place[slot]`; -1: not here.
struct PlacedRows {
  void* data = nullptr;
  const int32_t* place = nullptr;
};

/// rows[slot] = tokens[the slot's token], 0 where empty.
void order_rows(Work work, const RoutingArrays& routing, const void* tokens, PlacedRows rows, int64_t width);
/// out[token] = sum over its pairs of weight (null: 1) times their rows, which are all here. At most 32 choices.
/// Weights and their gradients are of the type that sums are kept in.
struct Combine {
  const void* weight;
  PlacedRows rows;
  void* out;
};
void combine_rows(Work work, const RoutingArrays& routing, const Combine& of, int64_t width);
/// d_rows[slot] = weight * d_out[token], 0 where empty, of the slots that are here; d_weight[pair] = <d_out[token],
/// rows[slot]> of the pairs that were not dropped.
struct CombineBackward {
  const void *weight, *d_out;
  PlacedRows rows, d_rows;
  void* d_weight;
};
void combine_rows_backward(Work work, const RoutingArrays& routing, const CombineBackward& of, int64_t width);

/// Rows [begin, begin + count) of `rows` of every expert and stream, between where they lie in a layout and where the
/// experts compute: expert e's at row first + e step, row after row, each of all streams.
struct ExpertBlock {
  int64_t streams = 0, experts = 0, rows = 0, begin = 0, count = 0;
  int64_t first = 0, step = 0;
};
void unpack_rows(Work work, const ExpertBlock& block, PlacedRows from, void* experts, int64_t width);
void pack_rows(Work work, const ExpertBlock& block, const void* experts, PlacedRows to, int64_t width);

// Gates (gate.cu), in float32 or float64 ------------------------------------------------------------------------------

/// (tokens, experts), rows `stride` apart.
struct Logits {
  void* data = nullptr;
  int64_t tokens = 0, experts = 0, stride = 0;
};

/// logits += noise softplus(spread); noise (tokens, experts), spread as logits.
void add_noise(Work work, const Logits& logits, const void* noise, const void* spread);
/// Finds the `choices` largest of each token, the best first, of equal ones the lower expert. Not-a-numbers come last.
void choose_top_k(Work work, const Logits& logits, int64_t choices, int32_t* expert);
/// assign_rows of routing.h: from `expert` everything else.
struct RowAssignment {
  int64_t groups = 0, group_tokens = 0, choices = 0, experts = 0, rows = 0;
  const int32_t* expert;
  int32_t *row, *slot_of, *pair_of;
  int64_t* filled;
  int64_t padding = 0;  // slots behind an expert's rows
};
void assign_rows(void* stream, const RowAssignment& of);
/// probabilities (tokens, experts) and the logarithm of the sum of exponentials of each token.
void softmax_scores(Work work, const Logits& logits, void* probabilities, void* log_sums);
/// Sets weight[pair] as the gate's scoring says.
struct Choice {
  Scoring scoring;
  int64_t choices = 0;
  const int32_t* expert;
  void* weight;
};
void weigh(Work work, const Logits& logits, const Choice& choice);
/// SoftmaxScores' statistics of `tokens` tokens from the first of these: float64, 2 experts + 1.
struct Statistics {
  int64_t tokens = 0, experts = 0, choices = 0;
  const int32_t* expert;
  const void *probabilities, *log_sums;
  double* sums;
};
void count_statistics(Work work, const Statistics& of);
/// Overwrites d_logits by the gradients of weigh() and, if `sums` is not null, adds those of the losses: `balance`
/// times the sums of first choices, and `z`. If `noise` is not null, those of the spreads too.
struct GateGradient {
  const void *d_weight, *weight;
  const void *probabilities, *log_sums;
  const double* sums;
  double balance, z;
  const void *noise, *spread;
  void* d_spread;
  Scoring scoring;
  int64_t choices;
  const int32_t* expert;
};
void gate_backward(Work work, const GateGradient& of, const Logits& d_logits);

}  // namespace moe::cuda
