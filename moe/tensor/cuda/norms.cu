// Kernels of norms. The gain's gradient is a sum over all rows: each block of threads sums its own rows, in float32 or
// float64, and a second kernel sums the results of the blocks.
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/row_tile.cuh"

namespace moe::cuda {
namespace {

// The number of blocks of the backward that are resident on a multiprocessor, and the number of threads that are then
// resident on an H200, which has 132 multiprocessors.
template <class T, int R>
constexpr int kMinBlocksPerMultiprocessor = R == kPacksPerThread && sizeof(T) < 8 ? 3 : 2;
template <class T, int R>
constexpr int64_t kResident = 132 * kMinBlocksPerMultiprocessor<T, R>* kThreads;

template <class T, int N, int R>
__global__ void __launch_bounds__(kThreads) norm_kernel(Norm n, T* out) {
  using A = Accumulator<T>;
  using Tile = RowTile<T, N, R>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * R;
  const int width = static_cast<int>(n.width), rows = static_cast<int>(n.rows - first < R ? n.rows - first : R);
  const Tile x(static_cast<const T*>(n.x) + first * n.width, n.width, [&](int r) { return r < rows ? width : 0; });
  const RowTile<T, N, 1, Tile::kPacks> gain(static_cast<const T*>(n.gain), 0, [&](int) { return width; });
  const A by_width = A(1) / static_cast<A>(width);
  A mean[R] = {}, scale[R] = {};
  const auto add_up = [&](A(&sums)[R], auto term) {
    Tile::for_each(width, [&](int c, int column) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const Pack<T, N> p = x.at(r, c, column);
#pragma unroll
        for (int j = 0; j < N; ++j) sums[r] += term(value_of(p.at[j]) - mean[r]);
      }
    });
    block_reduce(sums, Plus());
  };
  if (n.centred) {
    A sums[R] = {};
    add_up(sums, [](A v) { return v; });
#pragma unroll
    for (int r = 0; r < R; ++r) mean[r] = sums[r] * by_width;
  }
  add_up(scale, [](A v) { return v * v; });
#pragma unroll
  for (int r = 0; r < R; ++r) scale[r] = inverse_root(scale[r] * by_width + static_cast<A>(n.epsilon));
  Tile::for_each(width, [&](int c, int column) {
    const Pack<T, N> g = gain.at(0, c, column);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r >= rows) break;
      Pack<T, N> p = x.at(r, c, column);
#pragma unroll
      for (int j = 0; j < N; ++j) p.at[j] = rounded<T>(value_of(g.at[j]) * ((value_of(p.at[j]) - mean[r]) * scale[r]));
      store(p, out + (first + r) * n.width + column);
    }
  });
}

// Replaces d_out by d_x = scale (u - h mean(u h) - mean(u)), where h = scale (x - mean(x)) is the normed row and
// u = gain d_out; only centred norms have the term mean(u). A block handles every gridDim-th tile of R rows, and writes
// the sum of d_out h over its rows to its row of `parts`.
template <class T, int N, int R>
__global__ void __launch_bounds__(kThreads, kMinBlocksPerMultiprocessor<T, R>)
    norm_backward_kernel(Norm n, T* gradients, Accumulator<T>* parts) {
  using A = Accumulator<T>;
  using Tile = RowTile<T, N, R>;
  const int width = static_cast<int>(n.width);
  const RowTile<T, N, 1, Tile::kPacks> gain(static_cast<const T*>(n.gain), 0, [&](int) { return width; });
  const A by_width = A(1) / static_cast<A>(width);
  A own[Tile::kPacks][N] = {};
  parts += blockIdx.x * n.width;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * R;
  for (int64_t first = begin; first < n.rows; first += static_cast<int64_t>(gridDim.x) * R) {
    const int rows = static_cast<int>(n.rows - first < R ? n.rows - first : R);
    const auto end = [&](int r) { return r < rows ? width : 0; };
    T* out = gradients + first * n.width;
    const Tile x(static_cast<const T*>(n.x) + first * n.width, n.width, end), d(out, n.width, end);
    // Calls body(r, c, column, pack of x, pack of d, pack of the gain).
    const auto for_each_pack = [&](auto body) {
      Tile::for_each(width, [&](int c, int column) {
        const Pack<T, N> g = gain.at(0, c, column);
#pragma unroll
        for (int r = 0; r < R; ++r) body(r, c, column, x.at(r, c, column), d.at(r, c, column), g);
      });
    };
    A means[2 * R] = {};  // means of x; means of u
    if (n.centred) {
      for_each_pack([&](int r, int, int, const auto& p, const auto& q, const auto& g) {
#pragma unroll
        for (int j = 0; j < N; ++j) {
          means[r] += value_of(p.at[j]);
          means[R + r] += value_of(g.at[j]) * value_of(q.at[j]);
        }
      });
      block_reduce(means, Plus());
#pragma unroll
      for (A& mean : means) mean *= by_width;
    }
    A sums[2 * R] = {};  // sums of (x - mean)^2; sums of u (x - mean)
    for_each_pack([&](int r, int, int, const auto& p, const auto& q, const auto& g) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A v = value_of(p.at[j]) - means[r];
        sums[r] += v * v;
        sums[R + r] += value_of(g.at[j]) * value_of(q.at[j]) * v;
      }
    });
    block_reduce(sums, Plus());
    A scale[R], along[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      scale[r] = inverse_root(sums[r] * by_width + static_cast<A>(n.epsilon));
      along[r] = sums[R + r] * by_width * scale[r];
    }
    for_each_pack([&](int r, int c, int column, const auto& p, auto q, const auto& g) {
      if (r >= rows) return;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const A d_out = value_of(q.at[j]), normed = (value_of(p.at[j]) - means[r]) * scale[r];
        if (c < Tile::kPacks)
          own[c][j] += d_out * normed;
        else
          parts[column + j] = (first == begin ? A(0) : parts[column + j]) + d_out * normed;
        q.at[j] = rounded<T>(scale[r] * (value_of(g.at[j]) * d_out - means[R + r] - normed * along[r]));
      }
      store(q, out + r * n.width + column);
    });
  }
  Tile::for_each(width, [&](int c, int column) {
    if (c == Tile::kPacks) return;
#pragma unroll
    for (int j = 0; j < N; ++j) parts[column + j] = own[c][j];
  });
}

constexpr int kGainThreads = 1024;

// Sums `parts` over the blocks of norm_backward_kernel. A block handles 32 columns; each of its 32 warps sums every
// 32nd row of `parts`.
template <class T>
__global__ void __launch_bounds__(kGainThreads)
    gain_kernel(const Accumulator<T>* parts, int64_t blocks, int64_t width, T* d_gain) {
  using A = Accumulator<T>;
  constexpr int kWarps = kGainThreads / kWarpSize;
  __shared__ A sums[kWarps][kWarpSize];
  const int lane = lane_index(), warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  A sum = 0;
  if (column < width)
#pragma unroll 8
    for (int64_t i = warp; i < blocks; i += kWarps) sum += parts[i * width + column];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= width) return;
  for (int w = 1; w < kWarps; ++w) sum += sums[w][lane];
  d_gain[column] = rounded<T>(sum);
}

}  // namespace

void norm(Work work, const Norm& args, void* out) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_tile<T>(
        args.rows, args.width, aligned(args.x) && aligned(args.gain) && aligned(out), [&](auto n, auto r, Grid grid) {
          launch(norm_kernel<T, decltype(n)::value, decltype(r)::value>, grid, work.stream, args, static_cast<T*>(out));
        });
  });
}

void norm_backward(Work work, const Norm& args, void* d, void* d_gain, const Scratch& scratch) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    with_tile<T>(args.rows, args.width, aligned(args.x) && aligned(args.gain) && aligned(d),
                 [&](auto n, auto r, Grid grid) {
                   grid.blocks = std::min(grid.blocks, kResident<T, decltype(r)::value> / grid.threads);
                   auto* parts = static_cast<A*>(scratch(grid.blocks * args.width * static_cast<int64_t>(sizeof(A))));
                   launch(norm_backward_kernel<T, decltype(n)::value, decltype(r)::value>, grid, work.stream, args,
                          static_cast<T*>(d), parts);
                   launch(gain_kernel<T>, Grid{(args.width + kWarpSize - 1) / kWarpSize, kGainThreads}, work.stream,
                          parts, grid.blocks, args.width, static_cast<T*>(d_gain));
                 });
  });
}

}  // namespace moe::cuda
