// Kernels of SoftMoE's softmax over the tokens of a group and the gradients of both its softmaxes. A thread handles a
// column, and a warp's threads read adjacent ones: sums over tokens are in token order.
// Source: Puigcerver et al. 2024, section 2.1.
#include "moe/layer/cuda/gate_kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

// The beginning and end of a thread's column, and whether it has one (`here`).
struct Column {
  __device__ Column(const Logits& l, int64_t group_tokens)
      : first(thread_index() / l.experts * group_tokens * l.experts + thread_index() % l.experts),
        end(first + group_tokens * l.experts),
        step(l.experts),
        here(thread_index() < l.tokens / group_tokens * l.experts) {}
  int64_t first, end, step;
  bool here;
};

template <class T>
__global__ void token_softmax_kernel(Logits l, int64_t group_tokens, T* fill) {
  const Column c(l, group_tokens);
  if (!c.here) return;
  const T* logits = static_cast<const T*>(l.data);
  T most = -INFINITY, sum = 0;
  for (int64_t i = c.first; i < c.end; i += c.step) most = most < logits[i] ? logits[i] : most;
  for (int64_t i = c.first; i < c.end; i += c.step) sum += fill[i] = std::exp(logits[i] - most);
  for (int64_t i = c.first; i < c.end; i += c.step) fill[i] /= sum;
}

// Computes the gradient through the softmax over a token's rows; a warp handles a token.
template <class T>
__global__ void row_gradient_kernel(Mixture m, Logits d_logits) {
  const int64_t token = warp_index(), first = token * d_logits.experts;
  if (token >= d_logits.tokens) return;
  const T *weight = static_cast<const T*>(m.weight) + first, *dw = static_cast<const T*>(m.d_weight) + first;
  T mean = 0;
  for (int64_t s = lane_index(); s < d_logits.experts; s += kWarpSize) mean += weight[s] * dw[s];
  mean = warp_sum(mean);
  for (int64_t s = lane_index(); s < d_logits.experts; s += kWarpSize)
    static_cast<T*>(d_logits.data)[first + s] = weight[s] * (dw[s] - mean);
}

template <class T>
__global__ void add_token_gradient_kernel(Mixture m, Logits d_logits) {
  const Column c(d_logits, m.group_tokens);
  if (!c.here) return;
  const T *fill = static_cast<const T*>(m.fill), *df = static_cast<const T*>(m.d_fill);
  T* d = static_cast<T*>(d_logits.data);
  T mean = 0;
  for (int64_t i = c.first; i < c.end; i += c.step) mean += fill[i] * df[i];
  for (int64_t i = c.first; i < c.end; i += c.step) d[i] += fill[i] * (df[i] - mean);
}

Grid columns_of(const Logits& l, int64_t group_tokens) { return threads_for(l.tokens / group_tokens * l.experts); }

}  // namespace

void softmax_over_tokens(Work work, const Logits& l, int64_t group_tokens, void* fill) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(token_softmax_kernel<T>, columns_of(l, group_tokens), work.stream, l, group_tokens, static_cast<T*>(fill));
  });
}

void mixture_backward(Work work, const Mixture& args, const Logits& d_logits) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(row_gradient_kernel<T>, warps_for(d_logits.tokens), work.stream, args, d_logits);
    launch(add_token_gradient_kernel<T>, columns_of(d_logits, args.group_tokens), work.stream, args, d_logits);
  });
}

}  // namespace moe::cuda
