// Kernels by which gates weigh pairs, count their losses' statistics, and compute the gradients of both. A warp handles
// a token unless noted otherwise. Sums are in a fixed order (reduce.cuh) and nothing uses atomics, so two runs give the
// same bits. Source: Switch Transformer, section 2.2 (balance loss).
#include "moe/layer/cuda/gate_kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

template <class T>
__device__ T at(const void* values, int64_t i) {
  return static_cast<const T*>(values)[i];
}
template <class T>
__device__ T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
__global__ void softmax_kernel(Logits l, T* probabilities, T* log_sums) {
  const int64_t token = warp_index();
  if (token >= l.tokens) return;
  const int64_t row = token * l.stride;
  T most = -INFINITY, sum = 0;
  for (int64_t e = lane_index(); e < l.experts; e += kWarpSize) {
    const T v = at<T>(l.data, row + e);
    most = most < v ? v : most;
  }
  most = warp_max(most);
  for (int64_t e = lane_index(); e < l.experts; e += kWarpSize) sum += std::exp(at<T>(l.data, row + e) - most);
  sum = warp_sum(sum);
  for (int64_t e = lane_index(); e < l.experts; e += kWarpSize)
    probabilities[token * l.experts + e] = std::exp(at<T>(l.data, row + e) - most) / sum;
  if (lane_index() == 0) log_sums[token] = most + std::log(sum);
}

// A thread handles a token.
template <class T>
__global__ void weigh_kernel(Logits l, Choice c) {
  const int64_t token = thread_index();
  if (token >= l.tokens) return;
  const int32_t* expert = c.expert + token * c.choices;
  T* weight = static_cast<T*>(c.weight) + token * c.choices;
  const int64_t row = token * l.stride;
  const auto logit = [&](int64_t i) { return at<T>(l.data, row + expert[i]); };
  if (c.scoring == Scoring::all) {
    const T* p = static_cast<const T*>(c.probabilities) + token * l.experts;
    for (int64_t i = 0; i < c.choices; ++i) weight[i] = expert[i] < 0 ? T(0) : p[expert[i]];
    return;
  }
  if (c.scoring == Scoring::sigmoid) {
    for (int64_t i = 0; i < c.choices; ++i) weight[i] = sigmoid(logit(i));
    return;
  }
  T most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < c.choices; ++i) most = most < logit(i) ? logit(i) : most;
  for (int64_t i = 0; i < c.choices; ++i) sum += std::exp(logit(i) - most);
  for (int64_t i = 0; i < c.choices; ++i) weight[i] = std::exp(logit(i) - most) / sum;
}

// Block e sums for expert e; the last block sums the squares.
template <class T>
__global__ void statistics_kernel(Statistics s) {
  const int64_t e = blockIdx.x;
  double first = 0, sum = 0;
  for (int64_t t = threadIdx.x; t < s.tokens; t += kThreads) {
    if (e < s.experts) {
      first += s.expert != nullptr && s.expert[t * s.choices] == e;
      sum += static_cast<double>(at<T>(s.probabilities, t * s.experts + e));
    } else {
      const auto log_sum = static_cast<double>(static_cast<const T*>(s.log_sums)[t]);
      sum += log_sum * log_sum;
    }
  }
  first = block_sum(first);
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  if (e < s.experts) s.sums[e] = first;
  s.sums[s.experts + e] = sum;
}

template <class T>
__global__ void gate_backward_kernel(GateGradient g, Logits d_logits) {
  const int64_t token = warp_index(), experts = d_logits.experts;
  if (token >= d_logits.tokens) return;
  const int64_t pair = token * g.choices, row = token * d_logits.stride;
  const auto p = [&](int64_t e) { return at<T>(g.probabilities, token * experts + e); };
  T mean = 0, slope_mean = 0, z = 0;
  for (int64_t c = 0; c < g.choices; ++c) mean += at<T>(g.weight, pair + c) * at<T>(g.d_weight, pair + c);
  if (g.sums != nullptr) {
    for (int64_t e = lane_index(); e < experts; e += kWarpSize)
      slope_mean += p(e) * static_cast<T>(g.balance * g.sums[e]);
    slope_mean = warp_sum(slope_mean);
    z = static_cast<T>(g.z) * static_cast<const T*>(g.log_sums)[token];
  }
  for (int64_t e = lane_index(); e < experts; e += kWarpSize) {
    T d = g.scoring == Scoring::all ? -mean * p(e) : T(0);
    for (int64_t c = g.by_expert ? e : 0; c < (g.by_expert ? e + 1 : g.choices); ++c) {
      if (g.expert[pair + c] != e) continue;
      const T w = at<T>(g.weight, pair + c), dw = at<T>(g.d_weight, pair + c);
      d += g.scoring == Scoring::chosen ? w * (dw - mean) : g.scoring == Scoring::all ? w * dw : dw * w * (T(1) - w);
    }
    if (g.sums != nullptr) d += p(e) * (static_cast<T>(g.balance * g.sums[e]) - slope_mean + z);
    static_cast<T*>(d_logits.data)[row + e] = d;
  }
}

}  // namespace

void softmax_scores(Work work, const Logits& l, void* probabilities, void* log_sums) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(softmax_kernel<T>, warps_for(l.tokens), work.stream, l, static_cast<T*>(probabilities),
           static_cast<T*>(log_sums));
  });
}

void weigh(Work work, const Logits& l, const Choice& choice) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    launch(weigh_kernel<decltype(zero)>, threads_for(l.tokens), work.stream, l, choice);
  });
}

void count_statistics(Work work, const Statistics& args) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    launch(statistics_kernel<decltype(zero)>, Grid{args.experts + 1, kThreads}, work.stream, args);
  });
}

void gate_backward(Work work, const GateGradient& args, const Logits& d_logits) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    launch(gate_backward_kernel<decltype(zero)>, warps_for(d_logits.tokens), work.stream, args, d_logits);
  });
}

}  // namespace moe::cuda
