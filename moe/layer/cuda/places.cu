// Kernel that finds the places of rows, with a thread per row of a cell. An expert's rows of a stream count as rows of
// T_rank (row_layout.h), so a row's chunk, and its place among all rows that the expert computes, follow from a few
// counts.
#include "moe/layer/cuda/kernels.h"
#include "moe/tensor/cuda/element.cuh"

namespace moe::cuda {
namespace {

// Computes first_row() of row_layout.h.
__device__ int64_t first_of(int64_t row, int64_t n, int64_t rows) { return (row * n + rows - 1) / rows; }

__global__ void place_kernel(PlaceSearch s) {
  const int64_t i = thread_index(), cells = s.streams * s.experts, cell = i / s.most, row = i % s.most;
  if (cell >= cells) return;
  const int32_t *counts = s.table, *first_of_expert = counts + cells, *starts = first_of_expert + s.experts + 1;
  const int32_t* chunk_begin = starts + s.degree * cells;
  const int64_t n = counts[cell];
  if (row >= n || starts[cell] < 0) {
    if (!s.by_expert) s.places[i] = -1;
    return;
  }
  const int64_t counts_as = row * s.rows / n;
  int64_t chunk = 0, behind = s.degree;  // chunk: the last one that begins at or before the row
  while (behind - chunk > 1) {
    const int64_t middle = (chunk + behind) / 2;
    if (chunk_begin[middle] <= counts_as)
      chunk = middle;
    else
      behind = middle;
  }
  const int64_t in_chunk = row - first_of(chunk_begin[chunk], n, s.rows);
  const auto place = static_cast<int32_t>(starts[chunk * cells + cell] + in_chunk);
  if (!s.by_expert) {
    s.places[i] = place;
    return;
  }
  const int64_t stream = cell / s.experts, expert = cell % s.experts;
  int64_t at = first_of_expert[expert] + row - first_of(counts_as, n, s.rows);
  for (int64_t other = 0; other < s.streams; ++other)  // rows of lower streams that count alike come first too
    at += first_of(counts_as + (other < stream ? 1 : 0), counts[other * s.experts + expert], s.rows);
  s.places[at] = place;
}

}  // namespace

void find_places(void* stream, const PlaceSearch& args) {
  launch(place_kernel, threads_for(args.streams * args.experts * args.most), stream, args);
}

}  // namespace moe::cuda
