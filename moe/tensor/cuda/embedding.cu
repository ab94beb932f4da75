// Kernels of the embedding: look-ups of a table's rows by token, and the sums of gradients per row.
#include "moe/tensor/cuda/for_each.cuh"
#include "moe/tensor/cuda/kernels.h"

namespace moe::cuda {
namespace {

// Copies or adds N elements of the row of one token. N divides the width of a row.
template <class T>
struct LookUpRow {
  const T* table;
  const int32_t* row;
  int64_t width;
  bool adds;
  T* out;
  template <int N>
  __device__ void at(int64_t i) const {
    const int64_t token = i / width, column = i - token * width;
    Pack<T, N> p = {};
    if (row[token] >= 0) p = load<N>(table + row[token] * width + column);
    if (adds) {
      if (row[token] < 0) return;
      const Pack<T, N> q = load<N>(out + i);
#pragma unroll
      for (int j = 0; j < N; ++j) p.at[j] = rounded<T>(value_of(q.at[j]) + value_of(p.at[j]));
    }
    store(p, out + i);
  }
};

// Adds N columns of all tokens of one row, in the order of tokens and without atomics, so results are reproducible.
template <class T>
struct SumRow {
  const T* d;
  const int32_t *table_row, *begin, *by_row;
  int64_t width;
  T* table;
  template <int N>
  __device__ void at(int64_t i) const {
    const int64_t used = i / width, column = i - used * width;
    T* to = table + table_row[used] * width + column;
    const Pack<T, N> before = load<N>(to);
    Accumulator<T> sums[N];
#pragma unroll
    for (int j = 0; j < N; ++j) sums[j] = value_of(before.at[j]);
    for (int32_t t = begin[used]; t < begin[used + 1]; ++t) {
      const Pack<T, N> p = load<N>(d + by_row[t] * width + column);
#pragma unroll
      for (int j = 0; j < N; ++j) sums[j] += value_of(p.at[j]);
    }
    Pack<T, N> after;
#pragma unroll
    for (int j = 0; j < N; ++j) after.at[j] = rounded<T>(sums[j]);
    store(after, to);
  }
};

}  // namespace

void look_up(Work work, const LookUp& args) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LookUpRow<T> op{in<T>(args.table), args.row, args.width, args.adds, out<T>(args.out)};
    for_each<T>(work.stream, op, args.tokens * args.width,
                aligned(args.table) && aligned(args.out) && args.width % kPack<T> == 0);
  });
}

void add_to_rows(Work work, const RowSums& args) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    const SumRow<T> op{in<T>(args.d), args.table_row, args.begin, args.by_row, args.width, out<T>(args.table)};
    for_each<T>(work.stream, op, args.used * args.width,
                aligned(args.d) && aligned(args.table) && args.width % kPack<T> == 0);
  });
}

}  // namespace moe::cuda
