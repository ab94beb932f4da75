#pragma once
// Dense math on CPU tensors of float32 or float64, by LibTorch's kernels. On one thread a caller unless asked: ranks
// are threads of one process and must not fight for cores.
#include <functional>

#include "moe/tensor/math.h"

namespace moe {

/// out = a b, or out += a b. `out` is not transposed and overlaps neither. Any extent may be 0.
void gemm(Matrix a, Matrix b, Matrix out, Into into = Into::overwrite);

/// out = x Phi(x) with the normal distribution's exact Phi (erf, no tanh approximation).
void gelu(TensorView x, TensorView out);
/// d_x = d_out (Phi(x) + x phi(x)); d_x may be d_out.
void gelu_backward(TensorView x, TensorView d_out, TensorView d_x);

/// out = silu(a) b, silu(x) = x / (1 + exp(-x)).
void swiglu(TensorView a, TensorView b, TensorView out);
/// d_a = d_out silu'(a) b, d_b = d_out silu(a); d_a may be d_out.
void swiglu_backward(TensorView a, TensorView b, TensorView d_out, TensorView d_a, TensorView d_b);

/// to = from; to += from. Of equal size, not overlapping.
void assign(TensorView from, TensorView to);
void add(TensorView from, TensorView to);
/// t *= by.
void scale(TensorView t, double by);
/// to = from in another element type, to nearest even.
void convert(TensorView from, TensorView to);

/// Threads that each caller's math may use from now on, in the whole process.
void set_math_threads(int threads);
/// Calls body(begin, end) on that many threads for parts of [0, count), each of which moves about `bytes`; on fewer
/// where a thread costs more than it saves. `body` does not throw.
void parallel_for(int64_t count, int64_t bytes, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace moe
