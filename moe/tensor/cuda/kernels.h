#pragma once
// The kernels of dense math, launched. Every function enqueues on `stream` (a cudaStream_t) and returns. Pointers are
// to device memory of elements of `dtype`; what a sum is kept in is float32, of float64 elements float64. Sums are in a
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

// Norms and attention (norms.cu) --------------------------------------------------------------------------------

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
