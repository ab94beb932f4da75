// Idea: where experts are compared a warp has a token, and its lanes take the experts in turn: a token's experts are
// found one after the other. An expert's rows are given by counting its pairs: all first choices in the order of
// tokens, then all second choices, until its rows are used up.
// Invariant: two runs give the same bits. Equal logits go to the lower expert, sums are added in a fixed order
// (reduce.cuh), and nothing is added by atomics.
// Source: GShard, Algorithm 1 (rows); FSMoE, section 3.1 (noise); Switch Transformer, section 2.2 (balance loss).
#include "moe/layer/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

template <class T>
__device__ T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
template <class T>
__device__ T softplus(T x) {
  return (x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
}
template <class T>
__device__ T at(const void* values, int64_t i) {
  return static_cast<const T*>(values)[i];
}

template <class T>
__global__ void noise_kernel(Logits l, const void* noise, const void* spread) {
  const int64_t i = thread_index(), token = i / l.experts;
  if (token >= l.tokens) return;
  const int64_t j = token * l.stride + i % l.experts;
  T* logits = static_cast<T*>(l.data);
  logits[j] += at<T>(noise, i) * softplus(at<T>(spread, j));
}

// Choice by choice the first, from the largest and lowest on, that comes after the one before.
template <class T>
__global__ void top_k_kernel(Logits l, int choices, int32_t* chosen) {
  const int64_t token = warp_index();
  if (token >= l.tokens) return;
  const int experts = static_cast<int>(l.experts);
  T last = 0;
  int last_expert = -1;
  for (int choice = 0; choice < choices; ++choice) {
    T best = -INFINITY;
    int best_expert = experts;
    for (int e = lane_index(); e < experts; e += kWarpSize) {
      const T logit = at<T>(l.data, token * l.stride + e), v = logit == logit ? logit : T(-INFINITY);
      const bool left = last_expert < 0 || v < last || (v == last && e > last_expert);
      if (left && (v > best || best_expert == experts)) best = v, best_expert = e;
    }
    for (int by = kWarpSize / 2; by > 0; by /= 2) {
      const T v = __shfl_xor_sync(kAllLanes, best, by);
      const int e = __shfl_xor_sync(kAllLanes, best_expert, by);
      if (v > best || (v == best && e < best_expert)) best = v, best_expert = e;
    }
    last = best, last_expert = best_expert;
    if (lane_index() == 0) chosen[token * choices + choice] = best_expert;
  }
}

// A block counts one expert's pairs of one group: all first choices in token order, then all second choices, ...
__global__ void assign_kernel(RowAssignment a) {
  __shared__ int parts[kThreads / kWarpSize];
  const int experts = static_cast<int>(a.experts), expert = static_cast<int>(blockIdx.x) % experts;
  const int64_t group = blockIdx.x / static_cast<unsigned>(experts), slots = a.rows + a.padding;
  const int64_t first_slot = blockIdx.x * slots;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = lane_index();
  int used = 0;
  for (int64_t choice = 0; choice < a.choices; ++choice)
    for (int64_t base = 0; base < a.group_tokens; base += kThreads) {
      const int64_t token = base + threadIdx.x, pair = (group * a.group_tokens + token) * a.choices + choice;
      const bool mine = token < a.group_tokens && a.expert[pair] == expert;
      const unsigned votes = __ballot_sync(kAllLanes, mine);
      __syncthreads();  // `parts` may still be read
      if (lane == 0) parts[warp] = __popc(votes);
      __syncthreads();
      int row = used + __popc(votes & ((1U << lane) - 1));
      for (int w = 0; w < kThreads / kWarpSize; ++w) {
        if (w < warp) row += parts[w];
        used += parts[w];
      }
      if (!mine) continue;
      const bool kept = row < a.rows;
      a.row[pair] = kept ? row : -1;
      a.slot_of[pair] = kept ? static_cast<int32_t>(first_slot + row) : -1;
      if (kept) a.pair_of[first_slot + row] = static_cast<int32_t>(pair);
    }
  const int64_t filled = used < a.rows ? used : a.rows;
  for (int64_t row = filled + threadIdx.x; row < slots; row += kThreads) a.pair_of[first_slot + row] = -1;
  if (threadIdx.x == 0) a.filled[blockIdx.x] = filled;
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

// A thread a token.
template <class T>
__global__ void weigh_kernel(Logits l, Choice c) {
  const int64_t token = thread_index();
  if (token >= l.tokens) return;
  const int32_t* expert = c.expert + token * c.choices;
  T* weight = static_cast<T*>(c.weight) + token * c.choices;
  const int64_t row = token * l.stride;
  if (c.scoring == Scoring::sigmoid) {
    for (int64_t i = 0; i < c.choices; ++i) weight[i] = sigmoid(at<T>(l.data, row + expert[i]));
    return;
  }
  const bool all = c.scoring == Scoring::all;
  const int64_t terms = all ? l.experts : c.choices;
  const auto logit = [&](int64_t i) { return at<T>(l.data, row + (all ? i : expert[i])); };
  T most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < terms; ++i) most = most < logit(i) ? logit(i) : most;
  for (int64_t i = 0; i < terms; ++i) sum += std::exp(logit(i) - most);
  for (int64_t i = 0; i < c.choices; ++i) weight[i] = std::exp(at<T>(l.data, row + expert[i]) - most) / sum;
}

// Block e: expert e; the last: the squares.
template <class T>
__global__ void statistics_kernel(Statistics s) {
  const int64_t e = blockIdx.x;
  double first = 0, sum = 0;
  for (int64_t t = threadIdx.x; t < s.tokens; t += kThreads) {
    if (e < s.experts) {
      first += s.expert[t * s.choices] == e;
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
    for (int64_t c = 0; c < g.choices; ++c) {
      if (g.expert[pair + c] != e) continue;
      const T w = at<T>(g.weight, pair + c), dw = at<T>(g.d_weight, pair + c);
      d += g.scoring == Scoring::chosen ? w * (dw - mean) : g.scoring == Scoring::all ? w * dw : dw * w * (T(1) - w);
    }
    if (g.sums != nullptr) d += p(e) * (static_cast<T>(g.balance * g.sums[e]) - slope_mean + z);
    static_cast<T*>(d_logits.data)[row + e] = d;
    if (g.noise == nullptr) continue;
    const T by = at<T>(g.noise, token * experts + e) * sigmoid(at<T>(g.spread, row + e));
    static_cast<T*>(g.d_spread)[row + e] = d == T(0) ? T(0) : d * by;
  }
}

}  // namespace

void add_noise(Work work, const Logits& l, const void* noise, const void* spread) {
  with_sums_type(work.dtype, [&](auto zero) {
    launch(noise_kernel<decltype(zero)>, threads_for(l.tokens * l.experts), work.stream, l, noise, spread);
  });
}

void choose_top_k(Work work, const Logits& l, int64_t choices, int32_t* expert) {
  with_sums_type(work.dtype, [&](auto zero) {
    launch(top_k_kernel<decltype(zero)>, warps_for(l.tokens), work.stream, l, static_cast<int>(choices), expert);
  });
}

void assign_rows(void* stream, const RowAssignment& of) {
  launch(assign_kernel, Grid{of.groups * of.experts, kThreads}, stream, of);
}

void softmax_scores(Work work, const Logits& l, void* probabilities, void* log_sums) {
  with_sums_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(softmax_kernel<T>, warps_for(l.tokens), work.stream, l, static_cast<T*>(probabilities),
           static_cast<T*>(log_sums));
  });
}

void weigh(Work work, const Logits& l, const Choice& choice) {
  with_sums_type(work.dtype, [&](auto zero) {
    launch(weigh_kernel<decltype(zero)>, threads_for(l.tokens), work.stream, l, choice);
  });
}

void count_statistics(Work work, const Statistics& of) {
  with_sums_type(work.dtype, [&](auto zero) {
    launch(statistics_kernel<decltype(zero)>, Grid{of.experts + 1, kThreads}, work.stream, of);
  });
}

void gate_backward(Work work, const GateGradient& of, const Logits& d_logits) {
  with_sums_type(work.dtype, [&](auto zero) {
    launch(gate_backward_kernel<decltype(zero)>, warps_for(d_logits.tokens), work.stream, of, d_logits);
  });
}

}  // namespace moe::cuda
