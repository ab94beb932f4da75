#pragma once
// The dense math of a layer on one device. The CPU's is done at once, on thread_count() of cores.h, and has no state.
// CUDA's is queued on the stream that use() named last, as with cuBLAS' handle, so all calls of a layer must come from
// the one thread that issues.
#include <memory>

#include "moe/device/memory.h"
#include "moe/plan/step.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// A view of a row-major matrix, perhaps of some columns of a wider one: row i begins at data + i stride elements.
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = DType::float32;
  bool transposed = false;  // read as its transpose; rows and cols are those before transposing
};

/// Returns a view of a whole tensor of rank 2 as a matrix.
Matrix matrix(TensorView tensor);
/// Returns a view of columns [first, first + count) of such a tensor.
Matrix columns(TensorView tensor, int64_t first, int64_t count);
Matrix transpose(Matrix m);

enum class Into { overwrite, add };

/// A batch of `count` products of one shape. The operands of the i-th begin i steps, in elements, after the first
/// one's. A step of `a` or `b` may be 0.
struct Batch {
  int64_t count = 1;
  int64_t a = 0, b = 0, out = 0;
  /// Lets a device use the fastest algorithm for a shape that is used often: the first call may block to time several,
  /// and another rank or process may get other last bits.
  bool fastest = false;
};

/// The input of a norm: x (rows, width), as out is; gain (width). `centred`: norms by the mean and the deviation;
/// false: by the mean of squares.
struct NormInput {
  TensorView x, gain;
  bool centred = false;
  double epsilon = 0;
};

/// The tokens that an attention's token sees: all up to itself, the last `window` of these (0: all), or its sequence.
struct AttentionMask {
  bool causal = true;
  int64_t window = 0;  // 0 unless causal
};

/// Tokens and their rows of a table, by token and by row. All arrays lie in the math's memory.
struct TokenRows {
  int64_t tokens = 0;
  const int32_t* row = nullptr;                       // (tokens); negative: a row that the table lacks
  int64_t used = 0;                                   // rows that some token uses
  const int32_t* table_row = nullptr;                 // (used), ascending
  const int32_t *begin = nullptr, *by_row = nullptr;  // tokens of the i-th used row: by_row[begin[i]] to
                                                      // by_row[begin[i + 1]], ascending
};

/// The token that each row of a matrix of logits should predict. Column 0 is token `first` of the vocabulary.
struct Targets {
  const int32_t* target = nullptr;  // (tokens), in the math's memory; negative: none
  int64_t first = 0;
};

/// An optimizer's step (moe/train/optimizer.h) on the own elements of a weight; `rate` and all fields after it are
/// those of this step. 16-bit weights have a master copy, which takes the step and is then rounded to the weight.
struct WeightStep {
  TensorView value, gradient;
  ElementSelection own;
  TensorView master, first, second;  // for the own elements, in the sums' type; no data: not used
  OptimizerKind kind = OptimizerKind::adamw;
  double rate = 0, decay = 0;
  double momentum = 0;                       // momentum of sgd
  double beta1 = 0, beta2 = 0, epsilon = 0;  // parameters of adamw
  double correction1 = 1, correction2 = 1;   // of adamw: 1 - beta^t
  double scale = 1;                          // factor of the gradient
  /// The sum of squares of all gradients, in the math's memory, float64; if its root is above `max_norm`, gradients
  /// are also multiplied by max_norm over that root. Null: gradients are not clipped.
  const double* squares = nullptr;
  double max_norm = 0;
};

/// The direction of rotate().
enum class Turn { forward, back };

class AttentionHeads;
struct Fp8Matrix;
struct HeadsShape;
class TensorStore;

class Math {
 public:
  virtual ~Math() = default;
  virtual MemorySpace& memory() = 0;
  /// Sends all later calls to this native stream, as Stream::launch hands it out.
  virtual void use(void* native) = 0;

  /// Computes out = a b, or out += a b. `out` is not transposed and overlaps neither. Any extent may be 0.
  virtual void gemm(const Matrix& a, const Matrix& b, const Matrix& out, Into into = Into::overwrite,
                    const Batch& batch = {}) = 0;
  /// Returns whether one gemm() of several products of one shape is faster than one call for each.
  virtual bool batches() const = 0;
  /// Rounds a matrix, which is not transposed, to FP8 numbers of the same shape (fp8.h), and sets the scale of each
  /// block. If both have tiles, `turned` gets the transpose.
  virtual void round_fp8(const Matrix& from, const Fp8Matrix& to, const Fp8Matrix* turned = nullptr) = 0;
  /// Computes out = a b^T, or out += a b^T, of FP8 numbers; b has tiles. `out` is not transposed.
  virtual void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into = Into::overwrite) = 0;

  /// Computes out = x Phi(x) with the normal distribution's exact Phi (erf, no tanh approximation).
  virtual void gelu(TensorView x, TensorView out) = 0;
  /// Computes d_x = d_out (Phi(x) + x phi(x)); d_x may be d_out.
  virtual void gelu_backward(TensorView x, TensorView d_out, TensorView d_x) = 0;
  /// Computes out = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, GPT-2's approximation; its backward as gelu's.
  virtual void gelu_tanh(TensorView x, TensorView out) = 0;
  virtual void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x) = 0;
  /// Computes out = silu(a) b, silu(x) = x / (1 + exp(-x)).
  virtual void swiglu(TensorView a, TensorView b, TensorView out) = 0;
  /// Computes d_a = d_out silu'(a) b, d_b = d_out silu(a); d_a may be d_out.
  virtual void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) = 0;
  /// These compute to = from and to += from. Both have one size and do not overlap.
  virtual void assign(TensorView from, TensorView to) = 0;
  virtual void add(TensorView from, TensorView to) = 0;
  /// Computes t *= by.
  virtual void scale(TensorView t, double by) = 0;
  /// Converts to = from into another element type, rounded to nearest even.
  virtual void convert(TensorView from, TensorView to) = 0;

  virtual void norm(const NormInput& in, TensorView out) = 0;
  /// Turns d from d_out to d_x, in place; overwrites d_gain.
  virtual void norm_backward(const NormInput& in, TensorView d, TensorView d_gain) = 0;
  /// Rotates the last d numbers of each head of rows (tokens, heads `head`) in place: each pair of numbers j and j + d
  /// / 2, by the angle whose cosine and sine are numbers j and j + d / 2 of row token % L of `turns` (L, d), which are
  /// of the sums' type. Turn::back rotates by the negative angle.
  virtual void rotate(TensorView rows, int64_t head, TensorView turns, Turn turn) = 0;
  /// Turns scores (n, rows, L), in place, into softmaxes of scale times the scores that a row's token sees; all other
  /// scores become 0. The rows are those of a sequence's last tokens.
  virtual void attention_softmax(TensorView scores, double scale, AttentionMask mask) = 0;
  /// Sets d = scale p (d - <p, d>), in place, row by row; p is the result of attention_softmax().
  virtual void attention_softmax_backward(TensorView p, TensorView d, double scale, AttentionMask mask) = 0;
  /// Makes the heads of an attention (attention_heads.h), out of GEMMs and these softmaxes if a device has nothing
  /// better. Scores that they keep are tensors of `kept`.
  virtual std::unique_ptr<AttentionHeads> make_heads(const HeadsShape& shape, TensorStore& kept);

  // Computations of a model outside its layers.

  /// Sets out (tokens, M) to each token's row of `table` (rows, M), zeros if the table lacks the row, or adds the row.
  virtual void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into) = 0;
  /// Adds to each row of `table` the rows of d (tokens, M) of its tokens, in their order.
  virtual void add_to_rows(TensorView d, const TokenRows& rows, TensorView table) = 0;
  /// Sets sums (tokens, kSoftmaxSums), float64, from the logits (tokens, words) of a part of the vocabulary: the
  /// largest logit, the sum of exponentials relative to it, and the target's logit (0: not in this part). Leaves in
  /// `logits` what cross_entropy_backward() reads.
  virtual void softmax_sums(TensorView logits, const Targets& targets, TensorView sums) = 0;
  /// Turns what softmax_sums() left into the gradient of the logits: (p - [target]) / counted, 0 for tokens without a
  /// target. p is the softmax over all parts of the vocabulary, by the sums (parts, tokens, kSoftmaxSums) of all parts;
  /// the logits are those of `part`.
  virtual void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part,
                                      double counted) = 0;
  /// Adds to *sum, float64 in this memory, the sum of squares of t divided by `copies`.
  virtual void add_squares(TensorView t, int copies, double* sum) = 0;
  /// Takes a step. CUDA: value and gradient have one type; float32 and narrower types are computed in float32.
  virtual void step(const WeightStep& step) = 0;
};

/// Returns the CPU's math, which computes by cpu/math.h and has no state.
Math& cpu_math();

}  // namespace moe
