// Idea: to compare experts, a warp handles a token, and its lanes take the experts in turn; a token's experts are found
// one after the other. An expert's rows are assigned by counting its pairs: all first choices in the order of tokens,
// then all second choices, until its rows are used up. If experts take tokens, a block handles an expert of a group: it
// finds, bit by bit from the highest on, the largest score that enough tokens reach, takes all tokens above it, and of
// those that have it the first ones.
// Invariant: two runs give the same choices. Equal logits go to the lower expert, equal scores to the lower token, and
// nothing is counted by atomics.
// Source: GShard, Algorithm 1 (rows); Zhou et al. 2022, section 3.2 (Expert Choice).
#include <cstring>

#include "moe/layer/cuda/gate_kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

template <class T>
__device__ T at(const void* values, int64_t i) {
  return static_cast<const T*>(values)[i];
}

// Adds to `before`, the count of this warp's lanes before this one, the counts of earlier warps. `of_warp` is this
// warp's count; `all` is set to that of the whole block, all of which calls this.
__device__ inline int block_before(int before, int of_warp, int& all) {
  __shared__ int parts[kThreads / kWarpSize];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  __syncthreads();  // the previous call may still read `parts`
  if (lane_index() == 0) parts[warp] = of_warp;
  __syncthreads();
  all = 0;
  for (int w = 0; w < kThreads / kWarpSize; ++w) {
    if (w < warp) before += parts[w];
    all += parts[w];
  }
  return before;
}

// Returns the number of the block's earlier threads with `yes` set. Sets `all` to the number in the whole block,
// all of which must call this.
__device__ inline int block_rank(bool yes, int& all) {
  const unsigned votes = __ballot_sync(kAllLanes, yes);
  return block_before(__popc(votes & ((1U << lane_index()) - 1)), __popc(votes), all);
}

// Returns the sum of the counts of the block's earlier threads. Sets `all` to the sum over the whole block, all of
// which must call this.
__device__ inline int block_sum_before(int count, int& all) {
  int sum = count;  // over the lanes up to this one
  for (int by = 1; by < kWarpSize; by *= 2) {
    const int behind = __shfl_sync(kAllLanes, sum, lane_index() - by);
    if (lane_index() >= by) sum += behind;
  }
  return block_before(sum - count, __shfl_sync(kAllLanes, sum, kWarpSize - 1), all);
}

// The rows that a block fills: one expert's rows of one group.
struct Filled {
  __device__ explicit Filled(const RowAssignment& a)
      : expert(static_cast<int>(blockIdx.x) % static_cast<int>(a.experts)),
        first_token(static_cast<int64_t>(blockIdx.x) / a.experts * a.group_tokens),
        slots(a.rows + a.padding),
        first_slot(blockIdx.x * slots) {}
  // Gives a pair its row; -1: no row.
  __device__ void assign_row(const RowAssignment& a, int64_t pair, int row) const {
    a.row[pair] = row;
    a.slot_of[pair] = row < 0 ? -1 : static_cast<int32_t>(first_slot + row);
    if (row >= 0) a.pair_of[first_slot + row] = static_cast<int32_t>(pair);
  }
  __device__ void leave_empty(const RowAssignment& a, int64_t filled) const {
    for (int64_t row = filled + threadIdx.x; row < slots; row += kThreads) a.pair_of[first_slot + row] = -1;
    if (threadIdx.x == 0) a.filled[blockIdx.x] = filled;
  }
  int expert;
  int64_t first_token, slots, first_slot;
};

// Finds a token's choices one by one, ordered from the largest logit and the lowest expert on: each is the first after
// the choice before it.
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
    last = best;
    last_expert = best_expert;
    if (lane_index() == 0) chosen[token * choices + choice] = best_expert;
  }
}

// A block counts one expert's pairs of one group: all first choices in token order, then all second choices, ... A
// thread handles kTokens neighbours, which it reads at once.
__global__ void assign_kernel(RowAssignment a) {
  constexpr int kTokens = 8;
  const Filled cell(a);
  int used = 0;
  for (int64_t choice = 0; choice < a.choices; ++choice)
    for (int64_t base = 0; base < a.group_tokens; base += int64_t{kThreads} * kTokens) {
      const int64_t first = base + int64_t{threadIdx.x} * kTokens;
      unsigned mine = 0;  // one bit per token
#pragma unroll
      for (int n = 0; n < kTokens; ++n)
        if (first + n < a.group_tokens && a.expert[(cell.first_token + first + n) * a.choices + choice] == cell.expert)
          mine |= 1U << n;
      int all = 0;
      int row = used + block_sum_before(__popc(mine), all);
      used += all;
      for (int n = 0; n < kTokens; ++n) {
        if ((mine >> n & 1) == 0) continue;
        cell.assign_row(a, (cell.first_token + first + n) * a.choices + choice, row < a.rows ? row : -1);
        ++row;
      }
    }
  cell.leave_empty(a, used < a.rows ? used : a.rows);
}

// Maps scores, which are not negative, to integers in the same order; NaN gets the lowest one.
template <class T>
struct Key;
template <>
struct Key<float> {
  using Bits = uint32_t;
};
template <>
struct Key<double> {
  using Bits = uint64_t;
};

template <class T>
__device__ typename Key<T>::Bits key_of(T score) {
  typename Key<T>::Bits bits = 0;
  if (score == score) {
    memcpy(&bits, &score, sizeof score);
    ++bits;
  }
  return bits;
}

template <class T>
__global__ void take_kernel(const T* scores, RowAssignment a, int32_t* expert_of) {
  using Bits = typename Key<T>::Bits;
  const Filled cell(a);
  const int64_t tokens = a.group_tokens;
  const int taken = static_cast<int>(a.rows < tokens ? a.rows : tokens);
  const auto key = [&](int64_t token) { return key_of(scores[(cell.first_token + token) * a.experts + cell.expert]); };
  const auto reach = [&](Bits least) {
    int count = 0;
    for (int64_t token = threadIdx.x; token < tokens; token += kThreads) count += key(token) >= least ? 1 : 0;
    return block_sum(count);
  };
  Bits least = 0;
  for (int bit = 8 * static_cast<int>(sizeof(Bits)) - 2; bit >= 0; --bit)
    if (const Bits tried = least | Bits(1) << bit; reach(tried) >= taken) least = tried;
  const int tied = taken - reach(least + 1);  // number taken of the tokens whose score is exactly `least`
  int used = 0, ties = 0;
  for (int64_t base = 0; base < tokens; base += kThreads) {
    const int64_t token = base + threadIdx.x, pair = (cell.first_token + token) * a.experts + cell.expert;
    const bool here = token < tokens, reaches = here && key(token) == least;
    int all = 0;
    const int tie = ties + block_rank(reaches, all);
    ties += all;
    const bool mine = here && (reaches ? tie < tied : key(token) > least);
    const int row = used + block_rank(mine, all);
    used += all;
    if (!here) continue;
    expert_of[pair] = mine ? cell.expert : -1;
    cell.assign_row(a, pair, mine ? row : -1);
  }
  cell.leave_empty(a, taken);
}

__global__ void mix_kernel(RowAssignment a, int32_t* expert_of) {
  const int64_t pair = thread_index(), cells = a.groups * a.experts;
  if (pair < cells) a.filled[pair] = a.rows;
  if (pair >= a.groups * a.group_tokens * a.choices) return;
  const int64_t choice = pair % a.choices, expert = choice / a.rows, row = choice % a.rows;
  const int64_t group = pair / a.choices / a.group_tokens;
  expert_of[pair] = static_cast<int32_t>(expert);
  a.row[pair] = static_cast<int32_t>(row);
  a.slot_of[pair] = static_cast<int32_t>((group * a.experts + expert) * (a.rows + a.padding) + row);
}

}  // namespace

void choose_top_k(Work work, const Logits& l, int64_t choices, int32_t* expert) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    launch(top_k_kernel<decltype(zero)>, warps_for(l.tokens), work.stream, l, static_cast<int>(choices), expert);
  });
}

void assign_rows(void* stream, const RowAssignment& args) {
  launch(assign_kernel, Grid{args.groups * args.experts, kThreads}, stream, args);
}

void take_tokens(Work work, const void* scores, const RowAssignment& args, int32_t* expert) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(take_kernel<T>, Grid{args.groups * args.experts, kThreads}, work.stream, static_cast<const T*>(scores), args,
           expert);
  });
}

void mix_tokens(void* stream, const RowAssignment& args, int32_t* expert) {
  launch(mix_kernel, threads_for(args.groups * args.group_tokens * args.choices), stream, args, expert);
}

}  // namespace moe::cuda
