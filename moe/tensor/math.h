#pragma once
// The dense math of a layer on one device. On the CPU, a call returns when the result is there; it uses thread_count()
// threads (cores.h) and has no state. With CUDA, a call enqueues on the stream of the last use(), as with a cuBLAS
// handle, so all calls of a layer must come from the one thread that issues its work.
#include <memory>

#include "moe/device/memory.h"
#include "moe/plan/step.h"
#include "moe/tensor/tensor_view.h"

namespace moe {

/// A view of a row-major matrix, or of some columns of a wider one. Row i begins `i * stride` elements after `data`.
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  DType dtype = DType::float32;
  bool transposed = false;  // operations use the transpose; rows and cols describe the matrix before transposing
};

/// Returns a view of a whole tensor of rank 2 as a matrix.
Matrix matrix(TensorView tensor);
/// Returns a view of columns [first, first + count) of a tensor of rank 2.
Matrix columns(TensorView tensor, int64_t first, int64_t count);
Matrix transpose(Matrix m);

enum class Into { overwrite, add };

/// A batch of `count` products of one shape. `a`, `b` and `out` are steps in elements: the operands of product i begin
/// i steps after those of product 0. The steps of `a` and `b` may be 0.
struct Batch {
  int64_t count = 1;
  int64_t a = 0, b = 0, out = 0;
  /// Allows a device to time several algorithms in the first call of a shape, which then blocks, and to use the
  /// fastest. Other processes may then choose another algorithm, so their results may differ in the last bits.
  bool fastest = false;
};

/// The input of a norm: x (rows, width), which is also the output's shape, and gain (width). `centred` selects
/// LayerNorm without a bias; otherwise it is RMSNorm, which does not subtract the mean.
struct NormInput {
  TensorView x, gain;
  bool centred = false;
  double epsilon = 0;
};

/// The tokens that a token attends to: its whole sequence or, if `causal`, the tokens up to itself. If `window` > 0,
/// it sees only the last `window` of the tokens up to itself.
struct AttentionMask {
  bool causal = true;
  int64_t window = 0;  // 0 unless causal
};

/// The table row of each token, and the tokens of each row. All arrays are in the math's memory.
struct TokenRows {
  int64_t tokens = 0;
  const int32_t* row = nullptr;                       // (tokens); negative if the row is not in this table
  int64_t used = 0;                                   // number of rows that at least one token uses
  const int32_t* table_row = nullptr;                 // (used): the rows in use, ascending
  const int32_t *begin = nullptr, *by_row = nullptr;  // tokens of the i-th used row: by_row[begin[i]] to
                                                      // by_row[begin[i + 1]], ascending
};

/// The target token of each row of a matrix of logits. Column 0 of the logits is token `first` of the vocabulary.
struct Targets {
  const int32_t* target = nullptr;  // (tokens), in the math's memory; negative if the token has no target
  int64_t first = 0;
};

/// One optimizer step (moe/train/optimizer.h) on the elements `own` of a weight. A 16-bit weight has a master copy: the
/// step updates the master, which is then rounded to the weight.
struct WeightStep {
  TensorView value, gradient;
  ElementSelection own;
  TensorView master, first, second;  // states of the elements `own`, in their accumulation_type(); null data if unused
  OptimizerKind kind = OptimizerKind::adamw;
  double rate = 0, decay = 0;
  double momentum = 0;                       // momentum of sgd
  double beta1 = 0, beta2 = 0, epsilon = 0;  // parameters of adamw
  double correction1 = 1, correction2 = 1;   // bias corrections of adamw: 1 - beta1^t, 1 - beta2^t
  double scale = 1;                          // factor of the gradient
  /// The sum of squares of all gradients, float64 in the math's memory, or null if gradients are not clipped. If its
  /// root (the norm) exceeds `max_norm`, gradients are also multiplied by max_norm / norm.
  const double* squares = nullptr;
  double max_norm = 0;
};

/// The direction of rotate().
enum class RotationDirection { forward, back };

class AttentionHeads;
struct Fp8Matrix;
struct HeadsShape;
class TensorStore;

class Math {
 public:
  virtual ~Math() = default;
  virtual MemorySpace& memory() = 0;
  /// Makes later calls enqueue on this native stream, the one that Stream::launch passes to its function.
  virtual void use(void* native) = 0;

  /// Computes out = a b, or out += a b. `out` is not transposed and overlaps neither `a` nor `b`. Any extent may be 0.
  virtual void gemm(const Matrix& a, const Matrix& b, const Matrix& out, Into into = Into::overwrite,
                    const Batch& batch = {}) = 0;
  /// Returns whether one gemm() call with a Batch is faster than one call per product.
  virtual bool batches() const = 0;
  /// Rounds a matrix that is not transposed to FP8 numbers of the same shape (fp8.h), and sets the scale of each block.
  /// `turned`, which may be null, gets the transpose; then both results have tiles.
  virtual void round_fp8(const Matrix& from, const Fp8Matrix& to, const Fp8Matrix* turned = nullptr) = 0;
  /// Computes out = a b^T, or out += a b^T, of FP8 numbers; b has tiles. `out` is not transposed.
  virtual void gemm_fp8(const Fp8Matrix& a, const Fp8Matrix& b, const Matrix& out, Into into = Into::overwrite) = 0;

  /// Computes out = x Phi(x) with the normal distribution's exact Phi (erf, no tanh approximation).
  virtual void gelu(TensorView x, TensorView out) = 0;
  /// Computes d_x = d_out (Phi(x) + x phi(x)); d_x may be d_out.
  virtual void gelu_backward(TensorView x, TensorView d_out, TensorView d_x) = 0;
  /// Computes GPT-2's approximation of gelu(), out = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
  virtual void gelu_tanh(TensorView x, TensorView out) = 0;
  virtual void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x) = 0;
  /// Computes out = silu(a) b, silu(x) = x / (1 + exp(-x)).
  virtual void swiglu(TensorView a, TensorView b, TensorView out) = 0;
  /// Computes d_a = d_out silu'(a) b, d_b = d_out silu(a); d_a may be d_out.
  virtual void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b) = 0;
  /// These compute to = from and to += from. The tensors have equal sizes and do not overlap.
  virtual void assign(TensorView from, TensorView to) = 0;
  virtual void add(TensorView from, TensorView to) = 0;
  /// Computes t *= by.
  virtual void scale(TensorView t, double by) = 0;
  /// Copies `from` to `to`, which may have another element type; rounds to nearest even.
  virtual void convert(TensorView from, TensorView to) = 0;

  virtual void norm(const NormInput& in, TensorView out) = 0;
  /// Replaces d_out by d_x in `d`, in place, and overwrites d_gain.
  virtual void norm_backward(const NormInput& in, TensorView d, TensorView d_gain) = 0;
  /// Applies rotary position embedding in place: in each head, `head` numbers wide, of rows (tokens, all heads),
  /// rotates numbers j and j + d / 2 of the last d as a pair. Row token % L of turns (L, d), in the sums' type, has the
  /// cosine of pair j at column j and its sine at column j + d / 2. RotationDirection::back rotates by the negative
  /// angle.
  virtual void rotate(TensorView rows, int64_t head, TensorView turns, RotationDirection turn) = 0;
  /// Replaces each row of scores (n, rows, L) by the softmax of scale times the scores that `mask` lets its token see;
  /// the other scores become 0. The rows are the last `rows` tokens of a sequence of L.
  virtual void attention_softmax(TensorView scores, double scale, AttentionMask mask) = 0;
  /// Sets d = scale p (d - <p, d>), in place, row by row; p is the result of attention_softmax().
  virtual void attention_softmax_backward(TensorView p, TensorView d, double scale, AttentionMask mask) = 0;
  /// Makes the heads of an attention (attention_heads.h). The default uses gemm() and attention_softmax(). Scores that
  /// the forward keeps for the backward are tensors of `kept`.
  virtual std::unique_ptr<AttentionHeads> make_heads(const HeadsShape& shape, TensorStore& kept);

  // Computations of a model outside its layers.

  /// Sets each row of out (tokens, M) to the token's row of `table` (rows, M), or adds that row. A row that is not in
  /// the table counts as zeros.
  virtual void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into) = 0;
  /// Adds row t of d (tokens, M) to token t's row of `table`, in the order of tokens.
  virtual void add_to_rows(TensorView d, const TokenRows& rows, TensorView table) = 0;
  /// Sets sums (tokens, kSoftmaxSums), float64, from the logits (tokens, words) of a part of the vocabulary: the
  /// largest logit, the sum of exp(logit - largest), and the target's logit, or 0 if the target is in another part. May
  /// change `logits` to another form, which cross_entropy_backward() reads.
  virtual void softmax_sums(TensorView logits, const Targets& targets, TensorView sums) = 0;
  /// Replaces `logits`, as softmax_sums() left them, by their gradient (p - [target]) / counted, or by 0 for a token
  /// without a target. p is the softmax over the whole vocabulary, found with the sums (parts, tokens, kSoftmaxSums) of
  /// all its parts; `part` is the index of the part that these logits are of.
  virtual void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part,
                                      double counted) = 0;
  /// Adds the sum of squares of t, divided by `copies`, to *sum, which is float64 in the math's memory.
  virtual void add_squares(TensorView t, int copies, double* sum) = 0;
  /// Takes an optimizer step. On CUDA, value and gradient must have one type, and types other than float64 are computed
  /// in float32.
  virtual void step(const WeightStep& step) = 0;
};

/// Returns the math of the CPU, which calls cpu/math.h and has no state.
Math& cpu_math();

}  // namespace moe
