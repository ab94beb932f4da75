// Kernels that move rows: a warp has one, 16 bytes a lane and turn, several turns under way at once.
#include "moe/layer/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

constexpr int kTurns = 4;  // that a lane has under way when it copies
constexpr int kSums = 2;   // when it adds rows up

// Points at the beginning of row `row` of rows of `packs`.
template <class T, int N>
__device__ const Pack<T, N>* row_at(const T* rows, int64_t row, int packs) {
  return reinterpret_cast<const Pack<T, N>*>(rows) + row * packs;
}
template <class T, int N>
__device__ Pack<T, N>* row_at(T* rows, int64_t row, int packs) {
  return reinterpret_cast<Pack<T, N>*>(rows) + row * packs;
}

template <class P>
__device__ void copy_row(const P* __restrict__ from, P* __restrict__ to, int packs) {
  int j = lane_index();
  for (; j + (kTurns - 1) * kWarpSize < packs; j += kTurns * kWarpSize) {
    P p[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) p[turn] = from[j + turn * kWarpSize];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) to[j + turn * kWarpSize] = p[turn];
  }
  for (; j < packs; j += kWarpSize) to[j] = from[j];
}

template <class T, int N>
__device__ void clear_row(Pack<T, N>* to, int packs) {
  Pack<T, N> zero;
#pragma unroll
  for (int i = 0; i < N; ++i) zero.at[i] = rounded<T>(0.0F);
  for (int j = lane_index(); j < packs; j += kWarpSize) to[j] = zero;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) order_kernel(RoutingArrays r, const T* tokens, PlacedRows rows, int packs) {
  const int64_t slot = warp_index();
  if (slot >= r.slots) return;
  const int place = rows.place[slot], pair = r.pair_of[slot];
  if (place < 0) return;
  Pack<T, N>* to = row_at<T, N>(static_cast<T*>(rows.data), place, packs);
  if (pair < 0) return clear_row(to, packs);
  copy_row(row_at<T, N>(tokens, pair / static_cast<int>(r.choices), packs), to, packs);
}

// A lane knows one pair, where its row lies and its weight; the others ask it. A dropped pair's row is not there.
template <class T, int N>
__global__ void __launch_bounds__(kThreads, 4) combine_kernel(RoutingArrays r, Combine c, int packs) {
  const int64_t token = warp_index();
  if (token >= r.tokens) return;
  const int choices = static_cast<int>(r.choices), lane = lane_index();
  int own_place = -1;
  Sums<T> own_weight = 1;
  if (lane < choices) {
    const int slot = r.slot_of[token * choices + lane];
    if (slot >= 0) own_place = c.rows.place[slot];
    if (c.weight != nullptr) own_weight = static_cast<const Sums<T>*>(c.weight)[token * choices + lane];
  }
  Pack<T, N>* to = row_at<T, N>(static_cast<T*>(c.out), token, packs);
  for (int first = lane; first - lane < packs; first += kSums * kWarpSize) {
    Sums<T> sum[kSums][N] = {};
    for (int choice = 0; choice < choices; ++choice) {
      const int place = __shfl_sync(kAllLanes, own_place, choice);
      const Sums<T> weight = __shfl_sync(kAllLanes, own_weight, choice);
      if (place < 0) continue;
      const Pack<T, N>* row = row_at<T, N>(static_cast<const T*>(c.rows.data), place, packs);
      Pack<T, N> p[kSums];
#pragma unroll
      for (int turn = 0; turn < kSums; ++turn) {
        const int j = first + turn * kWarpSize;
        p[turn] = row[j < packs ? j : packs - 1];  // behind the end: read, not kept
      }
#pragma unroll
      for (int turn = 0; turn < kSums; ++turn)
#pragma unroll
        for (int i = 0; i < N; ++i) sum[turn][i] += weight * value_of(p[turn].at[i]);
    }
#pragma unroll
    for (int turn = 0; turn < kSums; ++turn) {
      Pack<T, N> p;
#pragma unroll
      for (int i = 0; i < N; ++i) p.at[i] = rounded<T>(sum[turn][i]);
      if (first + turn * kWarpSize < packs) to[first + turn * kWarpSize] = p;
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) combine_backward_kernel(RoutingArrays r, CombineBackward c, int packs) {
  const int64_t slot = warp_index();
  if (slot >= r.slots) return;
  const int place = c.d_rows.place[slot], pair = r.pair_of[slot];
  Pack<T, N>* d_row = row_at<T, N>(static_cast<T*>(c.d_rows.data), place < 0 ? 0 : place, packs);
  if (pair < 0) {
    if (place >= 0) clear_row(d_row, packs);
    return;
  }
  const Pack<T, N>* row = row_at<T, N>(static_cast<const T*>(c.rows.data), c.rows.place[slot], packs);
  const Pack<T, N>* d_out = row_at<T, N>(static_cast<const T*>(c.d_out), pair / static_cast<int>(r.choices), packs);
  const Sums<T> weight = static_cast<const Sums<T>*>(c.weight)[pair];
  Sums<T> sum = 0;
#pragma unroll 2
  for (int j = lane_index(); j < packs; j += kWarpSize) {
    Pack<T, N> d = d_out[j];
    const Pack<T, N> p = row[j];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Sums<T> v = value_of(d.at[i]);
      sum += v * value_of(p.at[i]);
      d.at[i] = rounded<T>(weight * v);
    }
    if (place >= 0) d_row[j] = d;
  }
  sum = warp_sum(sum);
  if (lane_index() == 0) static_cast<Sums<T>*>(c.d_weight)[pair] = sum;
}

template <class T, int N, bool kPacks>
__global__ void __launch_bounds__(kThreads)
    expert_rows_kernel(ExpertBlock b, PlacedRows placed, T* experts, int packs) {
  const int64_t item = warp_index();
  if (item >= b.experts * b.count) return;
  const int count = static_cast<int>(b.count), expert = static_cast<int>(item) / count;
  const int64_t in = static_cast<int>(item) % count;
  Pack<T, N>* there =
      row_at<T, N>(static_cast<T*>(placed.data), placed.place[b.from + expert * b.from_step + in], packs);
  Pack<T, N>* here = row_at<T, N>(experts, b.first + expert * b.step + in, packs);
  if constexpr (kPacks)
    copy_row(here, there, packs);
  else
    copy_row(there, here, packs);
}

template <class T>
bool in_packs(int64_t width) {
  return width % kPack<T> == 0;
}

template <bool kPacks>
void move_rows(Work work, const ExpertBlock& b, PlacedRows placed, void* experts, int64_t width) {
  if (b.experts * b.count == 0) return;
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(in_packs<T>(width) && aligned(placed.data) && aligned(experts), [&](auto n) {
      constexpr int kN = decltype(n)::value;
      launch(expert_rows_kernel<T, kN, kPacks>, warps_for(b.experts * b.count), work.stream, b, placed,
             static_cast<T*>(experts), static_cast<int>(width / kN));
    });
  });
}

}  // namespace

void order_rows(Work work, const RoutingArrays& r, const void* tokens, PlacedRows rows, int64_t width) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(in_packs<T>(width) && aligned(tokens) && aligned(rows.data), [&](auto n) {
      constexpr int kN = decltype(n)::value;
      launch(order_kernel<T, kN>, warps_for(r.slots), work.stream, r, static_cast<const T*>(tokens), rows,
             static_cast<int>(width / kN));
    });
  });
}

void combine_rows(Work work, const RoutingArrays& r, const Combine& c, int64_t width) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(in_packs<T>(width) && aligned(c.rows.data) && aligned(c.out), [&](auto n) {
      constexpr int kN = decltype(n)::value;
      launch(combine_kernel<T, kN>, warps_for(r.tokens), work.stream, r, c, static_cast<int>(width / kN));
    });
  });
}

void combine_rows_backward(Work work, const RoutingArrays& r, const CombineBackward& c, int64_t width) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(in_packs<T>(width) && aligned(c.d_out) && aligned(c.rows.data) && aligned(c.d_rows.data), [&](auto n) {
      constexpr int kN = decltype(n)::value;
      launch(combine_backward_kernel<T, kN>, warps_for(r.slots), work.stream, r, c, static_cast<int>(width / kN));
    });
  });
}

void unpack_rows(Work work, const ExpertBlock& b, PlacedRows from, void* experts, int64_t width) {
  move_rows<false>(work, b, from, experts, width);
}

void pack_rows(Work work, const ExpertBlock& b, const void* experts, PlacedRows to, int64_t width) {
  move_rows<true>(work, b, to, const_cast<void*>(experts), width);
}

}  // namespace moe::cuda
