#pragma once
// Dense math on CPU tensors of float32 or float64, by LibTorch's kernels, on thread_count() (cores.h): ranks may be
// threads of one process and must not fight for cores. All but gemm() gives the same bits on any number of threads.
#include <functional>

#include "moe/tensor/math.h"

namespace moe {

/// Computes out = a b, or out += a b. `out` is not transposed and overlaps neither. Any extent may be 0.
void gemm(Matrix a, Matrix b, Matrix out, Into into = Into::overwrite);
/// Computes `batch.count` products of one shape. If batches_products(), LibTorch's BLAS gets all of them at once, so
/// that threads need not wait for each other after each product.
void gemm(Matrix a, Matrix b, Matrix out, Into into, const Batch& batch);
/// Returns whether products of one shape are faster in one call: with several threads on MKL, 7 to 12 % as measured.
bool batches_products();

/// Computes out = x Phi(x) with the normal distribution's exact Phi (erf, no tanh approximation).
void gelu(TensorView x, TensorView out);
/// Computes d_x = d_out (Phi(x) + x phi(x)); d_x may be d_out.
void gelu_backward(TensorView x, TensorView d_out, TensorView d_x);

/// These compute the same with GPT-2's approximation (Math::gelu_tanh).
void gelu_tanh(TensorView x, TensorView out);
void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x);

/// Computes out = silu(a) b, silu(x) = x / (1 + exp(-x)).
void swiglu(TensorView a, TensorView b, TensorView out);
/// Computes d_a = d_out silu'(a) b, d_b = d_out silu(a); d_a may be d_out.
void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b);

/// These compute to = from and to += from. Both have one size and do not overlap.
void assign(TensorView from, TensorView to);
void add(TensorView from, TensorView to);
/// Computes t *= by.
void scale(TensorView t, double by);
/// Converts: to = from in another element type, to nearest even.
void convert(TensorView from, TensorView to);

/// Turns the rows of a matrix into their softmaxes.
void softmax_rows(TensorView rows);

/// Do what Math's functions of these names do (model_math.cpp).
void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into);
void add_to_rows(TensorView d, const TokenRows& rows, TensorView table);
void softmax_sums(TensorView logits, const Targets& targets, TensorView sums);
void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part, double counted);
void step_weight(const WeightStep& step);
/// Returns the sum of squares of a tensor of any type, added in float64.
double sum_of_squares(TensorView tensor);

/// Calls body(begin, end) on thread_count() for parts of [0, count), each element of which moves about `bytes`; on
/// fewer threads if a thread costs more than it saves. `body` does not throw, and makes no parallel calls.
void parallel_for(int64_t count, int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace moe
