// Kernels that move rows: a warp handles a row, a token or a part of one, 16 bytes per lane and turn, with several
// turns in flight. In the inverse order's backward a block handles a token.
#include <algorithm>

#include "moe/layer/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

constexpr int kTurns = 4;    // turns in flight of a lane that copies; all its turns in the inverse order's backward
constexpr int kSums = 2;     // turns in flight of a lane that adds rows up
constexpr int kChoices = 2;  // rows of a token in flight
constexpr int kSlots = 8;    // slots per item when empty slots are cleared

// Returns the address of row `row` among rows of `packs` packs.
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

// If a kernel writes all slots, its first items are empty slots, kSlots at a time; each later item is a token.
__host__ __device__ int64_t clearing_items(const RoutingArrays& r) { return (r.slots + kSlots - 1) / kSlots; }

// Clears packs [first, first + count) of the empty slots of an item.
template <class T, int N>
__device__ void clear_empty(const RoutingArrays& r, const PlacedRows& rows, int64_t item, int packs, int first,
                            int count) {
  const int64_t slot = item * kSlots + lane_index();
  int own_place = -1;
  if (lane_index() < kSlots && slot < r.slots && r.pair_of[slot] < 0) own_place = rows.place[slot];
  Pack<T, N> zero;
#pragma unroll
  for (int i = 0; i < N; ++i) zero.at[i] = rounded<T>(0.0F);
  const int end = first + count < packs ? first + count : packs;
  for (int i = 0; i < kSlots; ++i) {
    const int place = __shfl_sync(kAllLanes, own_place, i);
    if (place < 0) continue;
    Pack<T, N>* to = row_at<T, N>(static_cast<T*>(rows.data), place, packs);
    for (int j = first + lane_index(); j < end; j += kWarpSize) to[j] = zero;
  }
}

// Returns how many warps share a row of `packs` packs, each with `turns` packs per lane.
__host__ __device__ int parts_of(int packs, int turns) { return (packs + turns * kWarpSize - 1) / (turns * kWarpSize); }

// A lane holds one pair of a token and the place of its row, and the other lanes ask for it; -1 for a dropped pair.
struct OwnPair {
  int64_t pair = -1;
  int slot = -1;
  __device__ OwnPair(const RoutingArrays& r, int64_t token) {
    if (lane_index() >= r.choices) return;
    pair = token * r.choices + lane_index();
    slot = r.slot_of[pair];
  }
  __device__ int place_in(const PlacedRows& rows) const { return slot < 0 ? -1 : rows.place[slot]; }
};

// Reads a part of a token once, and writes it to all its places.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) order_kernel(RoutingArrays r, const T* tokens, PlacedRows rows, int packs) {
  const int parts = parts_of(packs, kTurns);
  const int64_t item = warp_index() / parts, token = item - clearing_items(r);
  const int begin = static_cast<int>(warp_index() % parts) * kTurns * kWarpSize;
  if (token < 0) return clear_empty<T, N>(r, rows, item, packs, begin, kTurns * kWarpSize);
  if (token >= r.tokens) return;
  const int choices = static_cast<int>(r.choices), first = begin + lane_index();
  const int own_place = OwnPair(r, token).place_in(rows);
  const Pack<T, N>* from = row_at<T, N>(tokens, token, packs);
  Pack<T, N> p[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int j = first + turn * kWarpSize;
    p[turn] = from[j < packs ? j : packs - 1];  // beyond the end: read, but not used
  }
  for (int choice = 0; choice < choices; ++choice) {
    const int place = __shfl_sync(kAllLanes, own_place, choice);
    if (place < 0) continue;
    Pack<T, N>* to = row_at<T, N>(static_cast<T*>(rows.data), place, packs);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn)
      if (first + turn * kWarpSize < packs) to[first + turn * kWarpSize] = p[turn];
  }
}

// Adds up a part of a token's rows, kChoices of them in flight; `kOnce`: a token has at most that many.
template <class T, int N, bool kOnce>
__global__ void __launch_bounds__(kThreads, 4) combine_kernel(RoutingArrays r, Combine c, int packs) {
  const int parts = parts_of(packs, kSums);
  const int64_t token = warp_index() / parts;
  if (token >= r.tokens) return;
  const int choices = static_cast<int>(r.choices);
  const int first = static_cast<int>(warp_index() % parts) * kSums * kWarpSize + lane_index();
  const OwnPair own(r, token);
  const int own_place = own.place_in(c.rows);
  Accumulator<T> own_weight = 1;
  if (own.pair >= 0 && c.weight != nullptr) own_weight = static_cast<const Accumulator<T>*>(c.weight)[own.pair];
  Accumulator<T> sum[kSums][N] = {};
  const auto add_up = [&](int choice) {
    int place[kChoices];
    Accumulator<T> weight[kChoices];
#pragma unroll
    for (int k = 0; k < kChoices; ++k) {
      place[k] = __shfl_sync(kAllLanes, own_place, choice + k);  // beyond the last choice: no row
      weight[k] = __shfl_sync(kAllLanes, own_weight, choice + k);
      if (place[k] < 0) weight[k] = 0;
    }
    if (!kOnce && place[0] < 0 && place[1] < 0) return;
    PackBits<T, N> held[kChoices][kSums] = {};
#pragma unroll
    for (int k = 0; k < kChoices; ++k) {
      const Pack<T, N>* row = row_at<T, N>(static_cast<const T*>(c.rows.data), place[k], packs);
#pragma unroll
      for (int turn = 0; turn < kSums; ++turn)
        if (place[k] >= 0 && first + turn * kWarpSize < packs)
          held[k][turn] = to_pack_bits(row[first + turn * kWarpSize]);
    }
#pragma unroll
    for (int turn = 0; turn < kSums; ++turn)
#pragma unroll
      for (int k = 0; k < kChoices; ++k) {
        const Pack<T, N> p = from_pack_bits<T, N>(held[k][turn]);
#pragma unroll
        for (int i = 0; i < N; ++i) sum[turn][i] += weight[k] * value_of(p.at[i]);
      }
  };
  if constexpr (kOnce)
    add_up(0);
  else
    for (int choice = 0; choice < choices; choice += kChoices) add_up(choice);
  Pack<T, N>* to = row_at<T, N>(static_cast<T*>(c.out), token, packs);
#pragma unroll
  for (int turn = 0; turn < kSums; ++turn) {
    Pack<T, N> p;
#pragma unroll
    for (int i = 0; i < N; ++i) p.at[i] = rounded<T>(sum[turn][i]);
    if (first + turn * kWarpSize < packs) to[first + turn * kWarpSize] = p;
  }
}

// Reads a token's gradient once for kChoices of its rows. A block handles a token, or empty slots that it clears.
template <class T, int N>
__global__ void __launch_bounds__(kThreads, 4) combine_backward_kernel(RoutingArrays r, CombineBackward c, int packs) {
  const int64_t item = blockIdx.x, token = item - clearing_items(r);
  if (token < 0) {
    const int warps = static_cast<int>(blockDim.x) / kWarpSize, share = (packs + warps - 1) / warps;
    return clear_empty<T, N>(r, c.d_rows, item, packs, static_cast<int>(threadIdx.x) / kWarpSize * share, share);
  }
  const int choices = static_cast<int>(r.choices), lane = lane_index();
  const OwnPair own(r, token);
  const int own_place = own.place_in(c.rows), own_d_place = own.place_in(c.d_rows);
  const Accumulator<T> own_weight =
      own.pair < 0 ? Accumulator<T>(0) : static_cast<const Accumulator<T>*>(c.weight)[own.pair];
  const Pack<T, N>* d_out = row_at<T, N>(static_cast<const T*>(c.d_out), token, packs);
  Accumulator<T> own_sum = 0;
  for (int choice = 0; choice < choices; choice += kChoices) {
    const Pack<T, N>* row[kChoices];
    Pack<T, N>* d_row[kChoices];
    Accumulator<T> weight[kChoices], sum[kChoices] = {};
    bool any = false;
#pragma unroll
    for (int c2 = 0; c2 < kChoices; ++c2) {
      const int place = __shfl_sync(kAllLanes, own_place, choice + c2);
      const int d_place = __shfl_sync(kAllLanes, own_d_place, choice + c2);
      weight[c2] = __shfl_sync(kAllLanes, own_weight, choice + c2);
      // For a dropped pair another row is read, and the product is not used.
      row[c2] = place < 0 ? d_out : row_at<T, N>(static_cast<const T*>(c.rows.data), place, packs);
      d_row[c2] = d_place < 0 ? nullptr : row_at<T, N>(static_cast<T*>(c.d_rows.data), d_place, packs);
      any |= place >= 0;
    }
    if (!any) continue;
#pragma unroll 2
    for (int j = static_cast<int>(threadIdx.x); j < packs; j += static_cast<int>(blockDim.x)) {
      const Pack<T, N> d = d_out[j];
      Pack<T, N> p[kChoices];
#pragma unroll
      for (int c2 = 0; c2 < kChoices; ++c2) p[c2] = row[c2][j];
#pragma unroll
      for (int c2 = 0; c2 < kChoices; ++c2) {
        Pack<T, N> made;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const Accumulator<T> v = value_of(d.at[i]);
          sum[c2] += v * value_of(p[c2].at[i]);
          made.at[i] = rounded<T>(weight[c2] * v);
        }
        if (d_row[c2] != nullptr) d_row[c2][j] = made;
      }
    }
    block_reduce(sum, Plus());
#pragma unroll
    for (int c2 = 0; c2 < kChoices; ++c2)
      if (lane == choice + c2) own_sum = sum[c2];
  }
  if (threadIdx.x < kWarpSize && own.pair >= 0)
    static_cast<Accumulator<T>*>(c.d_weight)[own.pair] = own.slot < 0 ? Accumulator<T>(0) : own_sum;
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
bool is_multiple_of_pack(int64_t width) {
  return width % kPack<T> == 0;
}

template <bool kPacks>
void move_rows(Work work, const ExpertBlock& b, PlacedRows placed, void* experts, int64_t width) {
  if (b.experts * b.count == 0) return;
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(is_multiple_of_pack<T>(width) && aligned(placed.data) && aligned(experts), [&](auto n) {
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
    with_pack<T>(is_multiple_of_pack<T>(width) && aligned(tokens) && aligned(rows.data), [&](auto n) {
      constexpr int kN = decltype(n)::value;
      const int packs = static_cast<int>(width / kN);
      launch(order_kernel<T, kN>, warps_for((clearing_items(r) + r.tokens) * parts_of(packs, kTurns)), work.stream, r,
             static_cast<const T*>(tokens), rows, packs);
    });
  });
}

void combine_rows(Work work, const RoutingArrays& r, const Combine& c, int64_t width) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(is_multiple_of_pack<T>(width) && aligned(c.rows.data) && aligned(c.out), [&](auto n) {
      constexpr int kN = decltype(n)::value;
      const int packs = static_cast<int>(width / kN);
      launch(r.choices <= kChoices ? combine_kernel<T, kN, true> : combine_kernel<T, kN, false>,
             warps_for(r.tokens * parts_of(packs, kSums)), work.stream, r, c, packs);
    });
  });
}

void combine_rows_backward(Work work, const RoutingArrays& r, const CombineBackward& c, int64_t width) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack<T>(is_multiple_of_pack<T>(width) && aligned(c.d_out) && aligned(c.rows.data) && aligned(c.d_rows.data),
                 [&](auto n) {
                   constexpr int kN = decltype(n)::value;
                   const int packs = static_cast<int>(width / kN);
                   const int warps = std::clamp(parts_of(packs, kTurns), 1, kThreads / kWarpSize);
                   launch(combine_backward_kernel<T, kN>, Grid{clearing_items(r) + r.tokens, warps * kWarpSize},
                          work.stream, r, c, packs);
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
