#pragma once
// Launches of the kernels of dense math. Every function enqueues on `stream` (a cudaStream_t) and returns. Pointers are
// to device memory of elements of `dtype`; sums are in float32, for float64 elements in float64, and in a fixed order.
// Sizes are in elements; any may be 0. Nothing overlaps unless its comment says so.
#include <cstdint>
#include <functional>

#include "moe/base/units.h"
#include "moe/tensor/fp8.h"

namespace moe::cuda {

/// Returns `bytes` of memory for the kernels of one call; later calls on the same stream may use it again.
using Scratch = std::function<void*(int64_t bytes)>;

/// The stream of a kernel and the type of its elements.
struct Work {
  void* stream = nullptr;
  DType dtype = DType::float32;
};

// Activations (activations.cu) ------------------------------------------------------------------------------------

/// Compute the functions of cpu/math.h, for `count` elements.
void gelu(Work work, const void* x, void* out, int64_t count);
void gelu_backward(Work work, const void* x, const void* d_out, void* d_x, int64_t count);
void gelu_tanh(Work work, const void* x, void* out, int64_t count);
void gelu_tanh_backward(Work work, const void* x, const void* d_out, void* d_x, int64_t count);
struct Swiglu {
  const void *a, *b, *d_out;  // d_out: only for the backward
  void *out, *d_b;            // out: d_a in the backward, which may be d_out
};
void swiglu(Work work, const Swiglu& args, int64_t count);
void swiglu_backward(Work work, const Swiglu& args, int64_t count);

// Element by element (elementwise.cu) -----------------------------------------------------------------------------

/// The arguments of rotate(), which does what Math::rotate() does, for `pairs` pairs of numbers j and j + half of the
/// last 2 half numbers of a head of `width`.
struct Rotation {
  void* rows;
  const void* turns;  // in the sums' type
  int64_t seq, half, heads, width;
  bool back;
};
void rotate(Work work, const Rotation& args, int64_t pairs);
/// These compute to += from and t *= by.
void add(Work work, const void* from, void* to, int64_t count);
void scale(Work work, void* t, double by, int64_t count);
/// Converts to another type, to nearest even.
void convert(Work work, const void* from, DType to_type, void* to, int64_t count);

// Norms (norms.cu) ------------------------------------------------------------------------------------------------

/// The input of the norms below, which are Math's, for rows of `width`.
struct Norm {
  int64_t rows = 0, width = 0;
  bool centred = false;
  double epsilon = 0;
  const void *x, *gain;
};
void norm(Work work, const Norm& args, void* out);
/// Computes the gradients, in place in d.
void norm_backward(Work work, const Norm& args, void* d, void* d_gain, const Scratch& scratch);

// Attention (softmax.cu) ------------------------------------------------------------------------------------------

/// The input of attention_softmax(), which does what Math::attention_softmax() does: `rows` rows of `seq` numbers,
/// multiplied by `by`; a matrix has `height` rows.
struct Scores {
  int64_t rows, height, seq;
  double by;
  bool causal;
  int64_t window;  // tokens that a causal row sees; 0: all up to its own token
};
void attention_softmax(Work work, void* scores, const Scores& args);
/// Sets d to by p (d - <p, d>), in place.
void attention_softmax_backward(Work work, const void* p, void* d, const Scores& args);

// Embedding (embedding.cu) ----------------------------------------------------------------------------------------

/// Does what Math::look_up() does: `table` has rows of `width`.
struct LookUp {
  const void* table;
  const int32_t* row;  // (tokens)
  int64_t tokens, width;
  bool adds;
  void* out;
};
void look_up(Work work, const LookUp& args);
/// Does what Math::add_to_rows() does: each row adds up its tokens' rows in the sums' type and is rounded once.
struct RowSums {
  const void* d;
  const int32_t *table_row, *begin, *by_row;
  int64_t used, width;
  void* table;
};
void add_to_rows(Work work, const RowSums& args);

// Cross-entropy (cross_entropy.cu) --------------------------------------------------------------------------------

/// Logits (tokens, words) of a part of the vocabulary that begins with token `first`.
struct LossRows {
  void* logits;
  int64_t tokens, words;
  const int32_t* target;  // (tokens)
  int64_t first;
};
/// The number of sums per token below.
inline constexpr int kLossSums = 3;
/// Does what Math::softmax_sums() does, and leaves the logits as they are.
void softmax_sums(Work work, const LossRows& args, double* sums);
/// Does what Math::cross_entropy_backward() does with the sums of all `parts`.
void cross_entropy_backward(Work work, const LossRows& args, const double* sums, int parts, double counted);

// Steps of weights (weight_step.cu) -------------------------------------------------------------------------------

/// Adds the sum of squares of `count` elements divided by `copies` to *sum. Computes in float64.
void add_squares(Work work, const void* t, int64_t count, int copies, double* sum, const Scratch& scratch);
/// A step as in WeightStep, for weights and gradients of one type: on `run` of each `every` elements, from `begin` on;
/// `count` elements in all.
struct WeightStepArguments {
  void* value;
  const void* gradient;
  void *master, *first, *second;  // in the sums' type; null: not used
  int64_t count, begin, run, every;
  bool adamw;
  double rate, decay, momentum, beta1, beta2, epsilon, correction1, correction2, scale;
  const double* squares;
  double max_norm;
};
void step_weight(Work work, const WeightStepArguments& args, const Scratch& scratch);

// FP8 numbers (fp8.cu) --------------------------------------------------------------------------------------------

/// Rounds a matrix of elements of `dtype`, whose rows begin `stride` elements apart, as Math::round_fp8() does;
/// `turned` may be empty.
void round_fp8(Work work, const void* from, int64_t stride, const Fp8Matrix& to, const Fp8Matrix& turned);
/// Sets out (rows, cols), of elements of `dtype`, to the values of m.
void widen_fp8(Work work, const Fp8Matrix& m, void* out);

}  // namespace moe::cuda
