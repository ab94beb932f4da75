// Kernels of attention's softmax. Under a causal mask, a row is read only up to its own token; results outside the
// tokens that a row sees are 0.
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/row_tile.cuh"

namespace moe::cuda {
namespace {

constexpr int kBackwardPacksPerThread = 2;  // packs per thread of each tensor in the backward, which reads two
constexpr int kRows = 2;  // most rows per block: with four, 16-bit rows took up to 13 % longer on an H200

// The elements [from[r], of[r]) that each of R consecutive rows sees, and the number of these rows that exist.
template <int R>
struct VisibleElements {
  int rows, seq, from[R], of[R];

  __device__ VisibleElements(const Scores& scores, int64_t first)
      : rows(static_cast<int>(scores.rows - first < R ? scores.rows - first : R)), seq(static_cast<int>(scores.seq)) {
    const int height = static_cast<int>(scores.height), top = seq - height + 1;  // elements that a first row sees
    int own =
        scores.causal ? static_cast<int>(static_cast<uint32_t>(first) % static_cast<uint32_t>(height)) + top : seq;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      of[r] = r < rows ? own : 0;
      from[r] = scores.window > 0 && own > scores.window ? own - static_cast<int>(scores.window) : 0;
      if (scores.causal) own = own == seq ? top : own + 1;
    }
  }
  __device__ bool has(int r, int column) const { return column >= from[r] && column < of[r]; }
  // Returns whether the row sees all `elements` elements from `column` on.
  __device__ bool has_all(int r, int column, int elements) const {
    return column >= from[r] && column + elements <= of[r];
  }
};

// Computes exp(by * (v - most)), where `most` is the largest score of a row.
template <class T>
struct Power {
  using A = Accumulator<T>;
  static constexpr bool kQuick = sizeof(T) == 2;
  A by, most;

  __device__ Power(A factor, A largest) : by(kQuick ? factor * A(1.44269504088896340736) : factor), most(largest) {}
  __device__ A operator()(A v) const {
    if constexpr (kQuick)
      return quick_exp2(by * v - by * most);
    else
      return std::exp(by * (v - most));
  }
};

template <class T, int N, int R>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 3
                                            : R == 1       ? 4
                                                           : 5) attention_kernel(T* scores, Scores s) {
  using A = Accumulator<T>;
  using Tile = RowTile<T, N, R>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * R;
  const VisibleElements<R> seen(s, first);
  T* rows = scores + first * s.seq;
  const Tile tile(rows, s.seq, [&](int r) { return seen.of[r]; });
  A most[R], sums[R] = {}, held[R][Tile::kPacks][N] = {};  // `held` has scores, then their exponentials
  // Reads a pack of a row, with -infinity for elements that the row does not see.
  const auto read = [&](int r, int c, int column, A(&v)[N]) {
    const Pack<T, N> p = tile.at(r, c, column);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = value_of(p.at[j]);
    if (seen.has_all(r, column, N)) return;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (!seen.has(r, column + j)) v[j] = -INFINITY;
  };
#pragma unroll
  for (int r = 0; r < R; ++r) {
    most[r] = -INFINITY;
    Tile::for_each(seen.of[r], [&](int c, int column) {
      A v[N];
      read(r, c, column, v);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        most[r] = Maximum()(most[r], v[j]);
        if (c < Tile::kPacks) held[r][c][j] = v[j];
      }
    });
  }
  block_reduce(most, Maximum());
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const Power<T> power(static_cast<A>(s.by), most[r]);
    Tile::for_each(seen.of[r], [&](int c, int column) {
      A v[N];
      if (c == Tile::kPacks) read(r, c, column, v);
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (c < Tile::kPacks)
          sums[r] += held[r][c][j] = power(held[r][c][j]);
        else
          sums[r] += power(v[j]);
    });
  }
  block_reduce(sums, Plus());
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (r >= seen.rows) break;
    const Power<T> power(static_cast<A>(s.by), most[r]);
    const A share = 1 / sums[r];
    Tile::for_each(seen.seq, [&](int c, int column) {
      Pack<T, N> p = {};
      if (column < seen.of[r]) {
        A v[N];
        if (c == Tile::kPacks) read(r, c, column, v);
#pragma unroll
        for (int j = 0; j < N; ++j) p.at[j] = rounded<T>(share * (c < Tile::kPacks ? held[r][c][j] : power(v[j])));
      }
      store(p, rows + r * s.seq + column);
    });
  }
}

template <class T, int N, int R>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 3
                                            : R == 1       ? 4
                                                           : 5)
    attention_backward_kernel(const T* scores, T* gradients, Scores s) {
  using A = Accumulator<T>;
  using Tile = RowTile<T, N, R, kBackwardPacksPerThread / R>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * R;
  const VisibleElements<R> seen(s, first);
  const auto end = [&](int r) { return seen.of[r]; };
  T* rows = gradients + first * s.seq;
  const Tile p(scores + first * s.seq, s.seq, end), d(rows, s.seq, end);
  const A by = static_cast<A>(s.by);
  A means[R] = {};
  // Reads a pack of gradients, with 0 for elements that a row does not see: their p is 0, but 0 * infinity is NaN.
  const auto gradient_at = [&](int r, int c, int column) {
    Pack<T, N> gradient = d.at(r, c, column);
    if (!seen.has_all(r, column, N))
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (!seen.has(r, column + j)) gradient.at[j] = rounded<T>(0.0F);
    return gradient;
  };
#pragma unroll
  for (int r = 0; r < R; ++r)
    Tile::for_each(seen.of[r], [&](int c, int column) {
      const Pack<T, N> share = p.at(r, c, column), gradient = gradient_at(r, c, column);
#pragma unroll
      for (int j = 0; j < N; ++j) means[r] += value_of(share.at[j]) * value_of(gradient.at[j]);
    });
  block_reduce(means, Plus());
#pragma unroll
  for (int r = 0; r < R; ++r) {
    if (r >= seen.rows) break;
    Tile::for_each(seen.seq, [&](int c, int column) {
      Pack<T, N> out = {};
      if (column < seen.of[r]) {
        const Pack<T, N> share = p.at(r, c, column), gradient = gradient_at(r, c, column);
#pragma unroll
        for (int j = 0; j < N; ++j)
          out.at[j] = rounded<T>(by * value_of(share.at[j]) * (value_of(gradient.at[j]) - means[r]));
      }
      store(out, rows + r * s.seq + column);
    });
  }
}

}  // namespace

void attention_softmax(Work work, void* scores, const Scores& args) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_tile<T, kPacksPerThread, kRows>(args.rows, args.seq, aligned(scores), [&](auto n, auto r, Grid grid) {
      launch(attention_kernel<T, decltype(n)::value, decltype(r)::value>, grid, work.stream, static_cast<T*>(scores),
             args);
    });
  });
}

void attention_softmax_backward(Work work, const void* p, void* d, const Scores& args) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_tile<T, kBackwardPacksPerThread>(
        args.rows, args.seq, aligned(p) && aligned(d), [&](auto n, auto r, Grid grid) {
          launch(attention_backward_kernel<T, decltype(n)::value, decltype(r)::value>, grid, work.stream,
                 static_cast<const T*>(p), static_cast<T*>(d), args);
        });
  });
}

}  // namespace moe::cuda
