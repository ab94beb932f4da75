// Kernels by which gates compare experts: noise on products, and X-MoE's cosines, divided by a learned temperature.
// Sums are in a fixed order. Source: FSMoE, section 3.1 (noise); Chi et al. 2022, section 3.2 (cosines).
#include "moe/layer/cuda/gate_kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

template <class T>
__device__ T at(const void* values, int64_t i) {
  return static_cast<const T*>(values)[i];
}
template <class T>
__device__ T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
template <class T>
__device__ T softplus(T x) {
  return (x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
}

// Returns the place of element i of (tokens, experts) in Logits.
__device__ int64_t place_of(const Logits& l, int64_t i) { return i / l.experts * l.stride + i % l.experts; }

template <class T>
__global__ void noise_kernel(Logits l, Noise n) {
  const int64_t i = thread_index();
  if (i >= l.tokens * l.experts) return;
  const int64_t j = place_of(l, i);
  static_cast<T*>(l.data)[j] += at<T>(n.noise, i) * softplus(at<T>(n.spread, j));
}

template <class T>
__global__ void noise_backward_kernel(Logits d_logits, Noise n, T* d_spread) {
  const int64_t i = thread_index();
  if (i >= d_logits.tokens * d_logits.experts) return;
  const int64_t j = place_of(d_logits, i);
  const T d = at<T>(d_logits.data, j), by = at<T>(n.noise, i) * sigmoid(at<T>(n.spread, j));
  d_spread[j] = d == T(0) ? T(0) : d * by;
}

template <class T>
__global__ void units_kernel(const T* in, UnitRows u) {
  const int64_t row = warp_index();
  if (row >= u.rows) return;
  const T* from = in + row * u.width;
  T squares = 0;
  for (int64_t j = lane_index(); j < u.width; j += kWarpSize) squares += from[j] * from[j];
  const T norm = std::sqrt(warp_sum(squares)), least = static_cast<T>(1e-12);
  const T scale = T(1) / (norm < least ? least : norm);
  for (int64_t j = lane_index(); j < u.width; j += kWarpSize)
    static_cast<T*>(u.units)[row * u.width + j] = scale * from[j];
  if (lane_index() == 0) static_cast<T*>(u.scale)[row] = scale;
}

template <class T>
__global__ void units_backward_kernel(UnitRows u, T* d) {
  const int64_t row = warp_index();
  if (row >= u.rows) return;
  const T* unit = static_cast<const T*>(u.units) + row * u.width;
  T* d_row = d + row * u.width;
  T along = 0;
  for (int64_t j = lane_index(); j < u.width; j += kWarpSize) along += unit[j] * d_row[j];
  along = warp_sum(along);
  const T scale = at<T>(u.scale, row);
  for (int64_t j = lane_index(); j < u.width; j += kWarpSize) d_row[j] = scale * (d_row[j] - along * unit[j]);
}

template <class T>
__global__ void divide_kernel(T* t, const T* by, int64_t count) {
  const int64_t i = thread_index();
  if (i < count) t[i] *= T(1) / *by;
}

// A warp handles a token.
template <class T>
__global__ void along_kernel(Logits d_logits, Temperature t) {
  const int64_t token = warp_index();
  if (token >= d_logits.tokens) return;
  T* d = static_cast<T*>(d_logits.data) + token * d_logits.stride;
  const T by = T(1) / at<T>(t.temperature, 0);
  T along = 0;
  for (int64_t e = lane_index(); e < d_logits.experts; e += kWarpSize) {
    along += d[e] * at<T>(t.logits, token * d_logits.stride + e);
    d[e] *= by;
  }
  along = warp_sum(along);
  if (lane_index() == 0) static_cast<T*>(t.along)[token] = along;
}

// One block sums over all tokens.
template <class T>
__global__ void temperature_kernel(Temperature t, int64_t tokens) {
  T sum = 0;
  for (int64_t token = threadIdx.x; token < tokens; token += kThreads) sum += at<T>(t.along, token);
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  T* d = static_cast<T*>(t.d_temperature);
  *d = (t.add ? *d : T(0)) - sum / at<T>(t.temperature, 0);
}

}  // namespace

void add_noise(Work work, const Logits& l, const Noise& args) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    launch(noise_kernel<decltype(zero)>, threads_for(l.tokens * l.experts), work.stream, l, args);
  });
}

void noise_backward(Work work, const Logits& d_logits, const Noise& args, void* d_spread) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(noise_backward_kernel<T>, threads_for(d_logits.tokens * d_logits.experts), work.stream, d_logits, args,
           static_cast<T*>(d_spread));
  });
}

void make_units(Work work, const void* in, const UnitRows& out) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(units_kernel<T>, warps_for(out.rows), work.stream, static_cast<const T*>(in), out);
  });
}

void units_backward(Work work, const UnitRows& args, void* d) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(units_backward_kernel<T>, warps_for(args.rows), work.stream, args, static_cast<T*>(d));
  });
}

void divide(Work work, void* t, const void* by, int64_t count) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(divide_kernel<T>, threads_for(count), work.stream, static_cast<T*>(t), static_cast<const T*>(by), count);
  });
}

void temperature_backward(Work work, const Logits& d_logits, const Temperature& args) {
  with_accumulation_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(along_kernel<T>, warps_for(d_logits.tokens), work.stream, d_logits, args);
    launch(temperature_kernel<T>, Grid{1, kThreads}, work.stream, args, d_logits.tokens);
  });
}

}  // namespace moe::cuda
