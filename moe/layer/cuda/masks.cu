// Kernels of masks. A thread handles a token and a row: it finds their pair, if there is one, and copies its value into
// a dense matrix or out of one. No two pairs of a token share a row.
#include "moe/layer/cuda/kernels.h"
#include "moe/tensor/cuda/element.cuh"

namespace moe::cuda {
namespace {

// Returns the pair of a token and a row; -1 if there is none.
__device__ int64_t pair_at(const MaskCell& cell, int64_t token, int64_t row) {
  if (row >= cell.filled) return -1;
  token += cell.first_token;
  if (cell.pair_of == nullptr) return token * cell.choices + cell.first_choice + row;
  const int64_t pair = cell.pair_of[row];
  return pair >= 0 && pair / cell.choices == token ? pair : -1;
}

template <class T>
__global__ void spread_kernel(MaskCell cell, const Accumulator<T>* values, T* mask) {
  const int64_t i = thread_index();
  if (i >= cell.tokens * cell.rows) return;
  const int64_t pair = pair_at(cell, i / cell.rows, i % cell.rows);
  mask[i] = rounded<T>(pair < 0 ? Accumulator<T>(0) : values == nullptr ? Accumulator<T>(1) : values[pair]);
}

template <class T>
__global__ void pick_kernel(MaskCell cell, const T* products, Accumulator<T>* values) {
  const int64_t i = thread_index();
  if (i >= cell.tokens * cell.rows) return;
  const int64_t pair = pair_at(cell, i / cell.rows, i % cell.rows);
  if (pair >= 0) values[pair] = value_of(products[i]);
}

}  // namespace

void spread_mask(Work work, const MaskCell& cell, const void* values, void* mask) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(spread_kernel<T>, threads_for(cell.tokens * cell.rows), work.stream, cell,
           static_cast<const Accumulator<T>*>(values), static_cast<T*>(mask));
  });
}

void pick_masked(Work work, const MaskCell& cell, const void* products, void* values) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(pick_kernel<T>, threads_for(cell.tokens * cell.rows), work.stream, cell, static_cast<const T*>(products),
           static_cast<Accumulator<T>*>(values));
  });
}

}  // namespace moe::cuda
