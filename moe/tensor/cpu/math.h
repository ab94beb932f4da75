#pragma once
// Dense math on CPU tensors of float32 or float64, by LibTorch's kernels. Functions use thread_count() threads
// (cores.h), because ranks that are threads of one process share its cores. Results do not depend on the number of
// threads, except the last bits of gemm().
#include <functional>

#include "moe/tensor/math.h"

namespace moe {

/// Computes out = a b, or out += a b. `out` is not transposed and overlaps neither `a` nor `b`. Any extent may be 0.
void gemm(Matrix a, Matrix b, Matrix out, Into into = Into::overwrite);
/// Computes `batch.count` products of one shape. If batches_products(), they are one call of LibTorch's BLAS, so
/// threads do not wait for each other after each product.
void gemm(Matrix a, Matrix b, Matrix out, Into into, const Batch& batch);
/// Returns whether products of one shape are faster in one call. With several threads on MKL, 7 to 12 % was measured.
bool batches_products();

/// Computes out = x Phi(x) with the normal distribution's exact Phi (erf, no tanh approximation).
void gelu(TensorView x, TensorView out);
/// Computes d_x = d_out (Phi(x) + x phi(x)); d_x may be d_out.
void gelu_backward(TensorView x, TensorView d_out, TensorView d_x);

/// These compute GELU and its backward in GPT-2's approximation (Math::gelu_tanh).
void gelu_tanh(TensorView x, TensorView out);
void gelu_tanh_backward(TensorView x, TensorView d_out, TensorView d_x);

/// Computes out = silu(a) b, silu(x) = x / (1 + exp(-x)).
void swiglu(TensorView a, TensorView b, TensorView out);
/// Computes d_a = d_out silu'(a) b, d_b = d_out silu(a); d_a may be d_out.
void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b);

/// These compute to = from and to += from. The tensors have equal sizes and do not overlap.
void assign(TensorView from, TensorView to);
void add(TensorView from, TensorView to);
/// Computes t *= by.
void scale(TensorView t, double by);
/// Copies `from` to `to`, which may have another element type; rounds to nearest even.
void convert(TensorView from, TensorView to);

/// Replaces each row of a matrix by its softmax.
void softmax_rows(TensorView rows);

/// These implement the functions of Math with the same names (model_math.cpp).
void look_up(TensorView table, const TokenRows& rows, TensorView out, Into into);
void add_to_rows(TensorView d, const TokenRows& rows, TensorView table);
void softmax_sums(TensorView logits, const Targets& targets, TensorView sums);
void cross_entropy_backward(TensorView logits, const Targets& targets, TensorView sums, int part, double counted);
void step_weight(const WeightStep& step);
/// Returns the sum of squares of a tensor of any type, added in float64.
double sum_of_squares(TensorView tensor);

/// Calls body(begin, end) for parts of [0, count) on up to thread_count() threads. An item moves about `bytes` bytes;
/// if that is little work, fewer threads are used. `body` must not throw or make parallel calls.
void parallel_for(int64_t count, int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace moe
