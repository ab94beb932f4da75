#pragma once
// Launches of gates' kernels, in the manner of moe/tensor/cuda/kernels.h. Their numbers are float32 or float64.
#include <cstdint>

#include "moe/layer/gates/scoring.h"
#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {

/// Logits (tokens, experts), whose rows are `stride` apart.
struct Logits {
  void* data = nullptr;
  int64_t tokens = 0, experts = 0, stride = 0;
};

// Logits (logits.cu) ----------------------------------------------------------------------------------------------

/// The arguments of logits += noise softplus(spread); noise is (tokens, experts), spread has the layout of logits.
struct Noise {
  const void *noise, *spread;
};
void add_noise(Work work, const Logits& logits, const Noise& args);
/// Computes d_spread = d_logits noise softplus'(spread), in the layout of d_logits.
void noise_backward(Work work, const Logits& d_logits, const Noise& args, void* d_spread);
/// Rows of unit length and the factor of each; norms below 1e-12 count as 1e-12.
struct UnitRows {
  int64_t rows = 0, width = 0;
  void *units, *scale;
};
void make_units(Work work, const void* in, const UnitRows& out);
/// Turns the gradients of the unit rows into those of the original rows, in place.
void units_backward(Work work, const UnitRows& args, void* d);
/// Computes t /= *by.
void divide(Work work, void* t, const void* by, int64_t count);
/// Sets d_temperature, or with `add` adds to it, from d_logits, the gradients of logits that were divided by the
/// temperature, and divides these.
struct Temperature {
  const void *temperature, *logits;
  void* along;  // (tokens), scratch memory
  void* d_temperature;
  bool add;
};
void temperature_backward(Work work, const Logits& d_logits, const Temperature& args);

// Choices (choose.cu) ---------------------------------------------------------------------------------------------

/// Finds each token's `choices` largest logits, the best first, of equal ones the lower expert; NaNs come last.
void choose_top_k(Work work, const Logits& logits, int64_t choices, int32_t* expert);
/// A routing (moe/sharding/routing.h): an expert may fill `rows` rows, with `padding` slots after them.
struct RowAssignment {
  int64_t groups = 0, group_tokens = 0, choices = 0, experts = 0, rows = 0;
  const int32_t* expert;
  int32_t *row, *slot_of, *pair_of;
  int64_t* filled;
  int64_t padding = 0;
};
/// Sets everything else from `expert`, as assign_rows of routing.h does.
void assign_rows(void* stream, const RowAssignment& args);
/// Lets every expert take as many of each group's tokens as it has rows: those with the highest scores, of equal ones
/// the lower token, NaN last. `scores` (tokens, experts) are not negative. Sets `expert` and all else.
void take_tokens(Work work, const void* scores, const RowAssignment& args, int32_t* expert);
/// Makes choice c of every token row c % rows of expert c / rows. Sets `expert` and all else except pair_of.
void mix_tokens(void* stream, const RowAssignment& args, int32_t* expert);

// Scores (scores.cu) ----------------------------------------------------------------------------------------------

/// Computes probabilities (tokens, experts) and the logarithm of the sum of exponentials of each token.
void softmax_scores(Work work, const Logits& logits, void* probabilities, void* log_sums);
/// Sets weight[pair] by the gate's scoring; 0 for pairs without an expert.
struct Choice {
  Scoring scoring;
  int64_t choices = 0;
  const int32_t* expert;
  const void* probabilities;  // used by Scoring::all
  void* weight;
};
void weigh(Work work, const Logits& logits, const Choice& choice);
/// SoftmaxScores' statistics (float64, 2 experts + 1) of `tokens` tokens, and the first of these tokens.
struct Statistics {
  int64_t tokens = 0, experts = 0, choices = 0;
  const int32_t* expert;  // null: no first choices are counted
  const void *probabilities, *log_sums;
  double* sums;
};
void count_statistics(Work work, const Statistics& args);
/// Overwrites d_logits by the gradients of weigh() and, if `sums` is not null, adds those of the losses: `balance`
/// times the sums of first choices, and `z`.
struct GateGradient {
  const void *d_weight, *weight;
  const void *probabilities, *log_sums;
  const double* sums;
  double balance, z;
  Scoring scoring;
  int64_t choices;
  bool by_expert;  // choice e is expert e or no expert
  const int32_t* expert;
};
void gate_backward(Work work, const GateGradient& args, const Logits& d_logits);

// Mixtures (mixtures.cu) ------------------------------------------------------------------------------------------

/// Computes fill = the softmax of logits (tokens, rows) over the tokens of each group.
void softmax_over_tokens(Work work, const Logits& logits, int64_t group_tokens, void* fill);
/// The input of mixture_backward: d_logits = the gradients of weight, the softmax over rows, and of fill.
struct Mixture {
  int64_t group_tokens = 0;
  const void *weight, *d_weight, *fill, *d_fill;
};
void mixture_backward(Work work, const Mixture& args, const Logits& d_logits);

}  // namespace moe::cuda
