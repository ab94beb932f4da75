#pragma once
// The layer's kernels, launched. Every function enqueues on `stream` (a cudaStream_t) and returns. Pointers are to
// device memory of elements of `dtype`; what a sum is kept in is float32, of float64 elements float64. Sums are in a
// fixed order. Sizes in elements; any may be 0. Nothing overlaps unless it says so.
#include <cstdint>

#include "moe/base/units.h"

namespace moe::cuda {

// Element by element (elementwise.cu) -----------------------------------------------------------------------------

/// Where they go and what types they are of.
struct Work {
  void* stream = nullptr;
  DType dtype = DType::float32;
};

/// cpu/math.h's, of `count` elements.
void gelu(Work work, const void* x, void* out, int64_t count);
void gelu_backward(Work work, const void* x, const void* d_out, void* d_x, int64_t count);
struct Swiglu {
  const void *a, *b, *d_out;  // d_out of the backward alone
  void *out, *d_b;            // out: of the backward d_a, which may be d_out
};
void swiglu(Work work, const Swiglu& of, int64_t count);
void swiglu_backward(Work work, const Swiglu& of, int64_t count);
/// to += from; t *= by.
void add(Work work, const void* from, void* to, int64_t count);
void scale(Work work, void* t, double by, int64_t count);
/// To another type, to nearest even.
void convert(Work from_type, const void* from, DType to_type, void* to, int64_t count);

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
/// The `choices` largest of each token, the best first; of equal ones the lower expert. Not-a-numbers come last.
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
/// weight[pair], as the gates have it: the softmax over the chosen logits (gshard), over all (switch), the sigmoid.
enum class Scoring : uint8_t { chosen, all, sigmoid };
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

// Norms and attention (softmax.cu) --------------------------------------------------------------------------------

/// norm.h's, of rows of `width`; `moments`: two sums' type numbers a row, written forward and backward.
struct Norm {
  int64_t rows = 0, width = 0;
  bool centred = false;
  double epsilon = 0;
  const void *x, *gain;
  void* moments;
};
void norm(Work work, const Norm& of, void* out);
/// In place in d.
void norm_backward(Work work, const Norm& of, void* d, void* d_gain);
/// In place: row i of `rows` over its first i % seq + 1 numbers times `by`; 0 beyond. Rows of seq.
void causal_softmax(Work work, void* scores, int64_t rows, int64_t seq, double by);
/// In place in d: by p (d - <p, d>).
void causal_softmax_backward(Work work, const void* p, void* d, int64_t rows, int64_t seq, double by);

}  // namespace moe::cuda
