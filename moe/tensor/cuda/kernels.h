#pragma once
// Launches of the kernels of dense math. Every function enqueues on `stream` (a cudaStream_t) and returns. Untyped
// pointers are to device memory with elements of `dtype`. Sums are computed in the sums' type (float64 for float64
// elements, else float32) and in a fixed order. Sizes are in elements and may be 0. Arguments do not overlap unless a
// comment says so.
#include <cstdint>
#include <functional>

#include "moe/base/units.h"
#include "moe/tensor/fp8.h"

namespace moe::cuda {

/// Returns `bytes` bytes of device memory for the kernels of one call; later calls on the same stream reuse it.
using Scratch = std::function<void*(int64_t bytes)>;

/// The stream of a kernel and the type of its elements.
struct Work {
  void* stream = nullptr;
  DType dtype = DType::float32;
};

// Activations (activations.cu) ------------------------------------------------------------------------------------

/// These compute the functions of cpu/math.h with the same names, for `count` elements.
void gelu(Work work, const void* x, void* out, int64_t count);
void gelu_backward(Work work, const void* x, const void* d_out, void* d_x, int64_t count);
void gelu_tanh(Work work, const void* x, void* out, int64_t count);
void gelu_tanh_backward(Work work, const void* x, const void* d_out, void* d_x, int64_t count);
struct Swiglu {
  const void *a, *b, *d_out;  // d_out is used in the backward only
  void *out, *d_b;            // in the backward, `out` is d_a, which may be the same memory as d_out
};
void swiglu(Work work, const Swiglu& args, int64_t count);
void swiglu_backward(Work work, const Swiglu& args, int64_t count);

// Element by element (elementwise.cu) -----------------------------------------------------------------------------

/// The arguments of rotate(), which implements Math::rotate() for `pairs` pairs in total. A head is `width` numbers
/// wide, and pair j consists of numbers j and j + half of its last 2 * half numbers.
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
/// Converts `count` elements to another type, rounded to nearest even.
void convert(Work work, const void* from, DType to_type, void* to, int64_t count);

// Norms (norms.cu) ------------------------------------------------------------------------------------------------

/// The input of norm() and norm_backward(), which implement the functions of Math with the same names.
struct Norm {
  int64_t rows = 0, width = 0;
  bool centred = false;
  double epsilon = 0;
  const void *x, *gain;
};
void norm(Work work, const Norm& args, void* out);
/// Replaces d_out by d_x in `d`, in place, and overwrites d_gain.
void norm_backward(Work work, const Norm& args, void* d, void* d_gain, const Scratch& scratch);

// Attention (softmax.cu) ------------------------------------------------------------------------------------------

/// The input of attention_softmax(), which implements Math::attention_softmax(): matrices of `height` rows each, `rows`
/// rows in total, of `seq` scores, which are multiplied by `by`.
struct Scores {
  int64_t rows, height, seq;
  double by;
  bool causal;
  int64_t window;  // if causal, the number of tokens that a row sees, its own included; 0: no limit
};
void attention_softmax(Work work, void* scores, const Scores& args);
/// Sets d to by * p * (d - <p, d>), in place, row by row.
void attention_softmax_backward(Work work, const void* p, void* d, const Scores& args);

// Embedding (embedding.cu) ----------------------------------------------------------------------------------------

/// The arguments of look_up(), which implements Math::look_up(). `table` has rows of `width` elements.
struct LookUp {
  const void* table;
  const int32_t* row;  // (tokens)
  int64_t tokens, width;
  bool adds;
  void* out;
};
void look_up(Work work, const LookUp& args);
/// The arguments of add_to_rows(), which implements Math::add_to_rows(). Each row of `table` is summed in the sums'
/// type and rounded once.
struct RowSums {
  const void* d;
  const int32_t *table_row, *begin, *by_row;
  int64_t used, width;
  void* table;
};
void add_to_rows(Work work, const RowSums& args);

// Cross-entropy (cross_entropy.cu) --------------------------------------------------------------------------------

/// Logits (tokens, words) of the part of the vocabulary that begins with token `first`.
struct LossRows {
  void* logits;
  int64_t tokens, words;
  const int32_t* target;  // (tokens)
  int64_t first;
};
/// The number of sums per token that softmax_sums() computes.
inline constexpr int kLossSums = 3;
/// Implements Math::softmax_sums() without changing the logits.
void softmax_sums(Work work, const LossRows& args, double* sums);
/// Implements Math::cross_entropy_backward() with the sums of all `parts` parts of the vocabulary.
void cross_entropy_backward(Work work, const LossRows& args, const double* sums, int parts, double counted);

// Steps of weights (weight_step.cu) -------------------------------------------------------------------------------

/// Adds the sum of squares of `count` elements, divided by `copies`, to *sum. Computes in float64.
void add_squares(Work work, const void* t, int64_t count, int copies, double* sum, const Scratch& scratch);
/// The arguments of step_weight(), named as in WeightStep. The step changes `count` elements: of each run of `every`
/// elements of the weight, the `run` elements from index `begin` on. Weights and gradients have one type.
struct WeightStepArguments {
  void* value;
  const void* gradient;
  void *master, *first, *second;  // in the sums' type; null if not used
  int64_t count, begin, run, every;
  bool adamw;
  double rate, decay, momentum, beta1, beta2, epsilon, correction1, correction2, scale;
  const double* squares;
  double max_norm;
};
void step_weight(Work work, const WeightStepArguments& args, const Scratch& scratch);

// FP8 numbers (fp8.cu) --------------------------------------------------------------------------------------------

/// Implements Math::round_fp8() for a matrix whose rows begin `stride` elements apart. `turned` has null data if the
/// transpose is not needed.
void round_fp8(Work work, const void* from, int64_t stride, const Fp8Matrix& to, const Fp8Matrix& turned);
/// Sets out (rows, cols) to the values of m, converted to `dtype`.
void widen_fp8(Work work, const Fp8Matrix& m, void* out);

}  // namespace moe::cuda
