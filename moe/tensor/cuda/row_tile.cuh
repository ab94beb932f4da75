#pragma once
// Rows that a block of threads keeps in registers, so that it reads them from memory once.
#include <algorithm>

#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {

inline constexpr int kPacksPerThread = 4;  // packs per thread, of all R rows together

/// R consecutive rows, of each of which a thread keeps kColumns packs of N elements in registers. If a row has more
/// packs, the others are read from memory at each use.
template <class T, int N, int R, int kColumns = kPacksPerThread / R>
class RowTile {
 public:
  static constexpr int kPacks = kColumns;

  /// Reads the packs of each row r, at first + r * width, that begin before column end(r).
  template <class End>
  __device__ RowTile(const T* first, int64_t width, End end) : first_(first), width_(width) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int column = static_cast<int>(threadIdx.x + c * blockDim.x) * N;
        packs_[r][c] = {};
        if (column < end(r)) packs_[r][c] = to_pack_bits(load<N>(first + r * width + column));
      }
  }

  /// Returns the pack that begins at `column` of row r and is the thread's `c`-th pack.
  __device__ __forceinline__ Pack<T, N> at(int r, int c, int column) const {
    return c < kColumns ? from_pack_bits<T, N>(packs_[r][c]) : load<N>(first_ + r * width_ + column);
  }

  /// Calls body(c, column) for each of the thread's packs that begins before `end`; `c` is kPacks if the pack is not in
  /// registers.
  template <class Body>
  static __device__ void for_each(int end, Body body) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = static_cast<int>(threadIdx.x + c * blockDim.x) * N;
      if (column < end) body(c, column);
    }
    if constexpr (R == 1)
      for (int column = static_cast<int>(threadIdx.x + kColumns * blockDim.x) * N; column < end;
           column += static_cast<int>(blockDim.x) * N)
        body(kColumns, column);
  }

 private:
  const T* first_;
  int64_t width_;
  PackBits<T, N> packs_[R][kColumns];
};

/// Chooses N, R and a grid for `rows` rows of `width` elements, and calls body(N, R, grid) with N and R as integral
/// constants. `whole`: the first row is aligned to 16 bytes. N is kPack<T> if all rows are aligned, else 1. R, at most
/// kRows, is the largest number of rows per block for which a thread keeps at most kMax packs.
template <class T, int kMax = kPacksPerThread, int kRows = kMax, class Body>
void with_tile(int64_t rows, int64_t width, bool whole, Body body) {
  static_assert(kRows <= kMax && 2 * kRows >= kMax);
  const auto call = [&]<int kN, int kR>(std::integral_constant<int, kN> n, std::integral_constant<int, kR> r) {
    constexpr int64_t kWarpRow = int64_t{kWarpSize} * kN * kMax / kR;
    const int64_t warps = std::clamp<int64_t>((width + kWarpRow - 1) / kWarpRow, 1, kThreads / kWarpSize);
    body(n, r, Grid{(rows + kR - 1) / kR, static_cast<int>(warps) * kWarpSize});
  };
  constexpr std::integral_constant<int, 1> kOne;
  constexpr std::integral_constant<int, kPack<T>> kN;
  if (!whole || width % kN != 0) return call(kOne, kOne);
  if (width <= kN * kThreads) return call(kN, std::integral_constant<int, kRows>{});
  if (kMax > 2 && width <= 2 * kN * kThreads) return call(kN, std::integral_constant<int, kMax / 2>{});
  call(kN, kOne);
}

}  // namespace moe::cuda
