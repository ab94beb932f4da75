// Kernels of norms and of attention's softmax: a warp has a row.
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

// Holds what norms share of a row: its elements `x`, the gain, and the numbers by which they centre and scale it.
template <class T>
struct Row {
  using A = Sums<T>;
  const T *x, *gain;
  int64_t width;
  A mean, scale;

  __device__ A normed(int64_t j) const { return (value_of(x[j]) - mean) * scale; }
  template <class Term>
  __device__ A mean_of(Term term) const {
    A sum = 0;
    for (int64_t j = lane_index(); j < width; j += kWarpSize) sum += term(j);
    return warp_sum(sum) / static_cast<A>(width);
  }
};

template <class T>
__device__ Row<T> row_of(const Norm& n, int64_t index) {
  Row<T> row{static_cast<const T*>(n.x) + index * n.width, static_cast<const T*>(n.gain), n.width, 0, 0};
  using A = Sums<T>;
  if (n.centred) row.mean = row.mean_of([&](int64_t j) { return value_of(row.x[j]); });
  const A variance = row.mean_of([&](int64_t j) {
    const A v = value_of(row.x[j]) - row.mean;
    return v * v;
  });
  row.scale = A(1) / std::sqrt(variance + static_cast<A>(n.epsilon));
  return row;
}

template <class T>
__global__ void norm_kernel(Norm n, T* out) {
  const int64_t index = warp_index();
  if (index >= n.rows) return;
  const Row<T> row = row_of<T>(n, index);
  for (int64_t j = lane_index(); j < n.width; j += kWarpSize)
    out[index * n.width + j] = rounded<T>(value_of(row.gain[j]) * row.normed(j));
}

template <class T>
__global__ void moments_kernel(Norm n) {
  const int64_t index = warp_index();
  if (index >= n.rows) return;
  const Row<T> row = row_of<T>(n, index);
  if (lane_index() > 0) return;
  auto* moments = static_cast<Sums<T>*>(n.moments) + 2 * index;
  moments[0] = row.mean;
  moments[1] = row.scale;
}

// A block has 32 columns, each of its warps every eighth row of them.
template <class T>
__global__ void gain_backward_kernel(Norm n, const T* d, T* d_gain) {
  using A = Sums<T>;
  __shared__ A parts[kThreads / kWarpSize][kWarpSize];
  const int lane = lane_index(), warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + lane;
  const auto* moments = static_cast<const A*>(n.moments);
  A sum = 0;
  for (int64_t i = warp; column < n.width && i < n.rows; i += kThreads / kWarpSize) {
    const int64_t at = i * n.width + column;
    sum += value_of(d[at]) * (value_of(static_cast<const T*>(n.x)[at]) - moments[2 * i]) * moments[2 * i + 1];
  }
  parts[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= n.width) return;
  for (int w = 1; w < kThreads / kWarpSize; ++w) sum += parts[w][lane];
  d_gain[column] = rounded<T>(sum);
}

// Computes d_x = scale (u - h mean(u h) - mean(u)), h the normed row, u = gain d_out; the last term where centred.
template <class T>
__global__ void norm_backward_kernel(Norm n, T* gradients) {
  using A = Sums<T>;
  const int64_t index = warp_index();
  if (index >= n.rows) return;
  const auto* moments = static_cast<const A*>(n.moments) + 2 * index;
  const Row<T> row{static_cast<const T*>(n.x) + index * n.width, static_cast<const T*>(n.gain), n.width, moments[0],
                   moments[1]};
  T* d = gradients + index * n.width;
  const auto u = [&](int64_t j) { return value_of(row.gain[j]) * value_of(d[j]); };
  const A along = row.mean_of([&](int64_t j) { return u(j) * row.normed(j); });
  const A common = n.centred ? row.mean_of(u) : A(0);
  for (int64_t j = lane_index(); j < n.width; j += kWarpSize)
    d[j] = rounded<T>(row.scale * (u(j) - row.normed(j) * along - common));
}

template <class T>
__global__ void attention_kernel(T* scores, int64_t rows, int64_t seq, Sums<T> by, bool causal) {
  using A = Sums<T>;
  const int64_t index = warp_index();
  if (index >= rows) return;
  const int64_t own = causal ? index % seq : seq - 1;  // the last that it sees
  T* row = scores + index * seq;
  A most = -INFINITY, sum = 0;
  for (int64_t j = lane_index(); j <= own; j += kWarpSize) {
    const A v = value_of(row[j]);
    most = most < v ? v : most;
  }
  most = warp_max(most);
  for (int64_t j = lane_index(); j <= own; j += kWarpSize) sum += std::exp(by * (value_of(row[j]) - most));
  sum = warp_sum(sum);
  for (int64_t j = lane_index(); j < seq; j += kWarpSize)
    row[j] = rounded<T>(j <= own ? std::exp(by * (value_of(row[j]) - most)) / sum : A(0));
}

template <class T>
__global__ void attention_backward_kernel(const T* scores, T* gradients, int64_t rows, int64_t seq, Sums<T> by,
                                          bool causal) {
  using A = Sums<T>;
  const int64_t index = warp_index();
  if (index >= rows) return;
  const int64_t own = causal ? index % seq : seq - 1;  // the last that it sees
  const T* p = scores + index * seq;
  T* d = gradients + index * seq;
  A mean = 0;
  for (int64_t j = lane_index(); j <= own; j += kWarpSize) mean += value_of(p[j]) * value_of(d[j]);
  mean = warp_sum(mean);
  for (int64_t j = lane_index(); j < seq; j += kWarpSize)
    d[j] = rounded<T>(j <= own ? by * value_of(p[j]) * (value_of(d[j]) - mean) : A(0));
}

}  // namespace

void norm(Work work, const Norm& of, void* out) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(norm_kernel<T>, warps_for(of.rows), work.stream, of, static_cast<T*>(out));
  });
}

void norm_backward(Work work, const Norm& of, void* d, void* d_gain) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(moments_kernel<T>, warps_for(of.rows), work.stream, of);
    launch(gain_backward_kernel<T>, Grid{(of.width + kWarpSize - 1) / kWarpSize, kThreads}, work.stream, of,
           static_cast<const T*>(d), static_cast<T*>(d_gain));
    launch(norm_backward_kernel<T>, warps_for(of.rows), work.stream, of, static_cast<T*>(d));
  });
}

void attention_softmax(Work work, void* scores, const Scores& of) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(attention_kernel<T>, warps_for(of.rows), work.stream, static_cast<T*>(scores), of.rows, of.seq,
           static_cast<Sums<T>>(of.by), of.causal);
  });
}

void attention_softmax_backward(Work work, const void* p, void* d, const Scores& of) {
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(attention_backward_kernel<T>, warps_for(of.rows), work.stream, static_cast<const T*>(p), static_cast<T*>(d),
           of.rows, of.seq, static_cast<Sums<T>>(of.by), of.causal);
  });
}

}  // namespace moe::cuda
