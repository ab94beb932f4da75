// Kernels of an optimizer's step, and of the norm by which gradients are clipped.
#include <algorithm>

#include "moe/tensor/cuda/for_each.cuh"
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

constexpr int64_t kMaxParts = 1024, kElementsPerThread = 16;

template <class T>
__global__ void __launch_bounds__(kThreads) squares_kernel(const T* t, int64_t count, double* parts) {
  double sum = 0;
  for (int64_t i = thread_index(); i < count; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const auto value = static_cast<double>(value_of(t[i]));
    sum += value * value;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const double* parts, int64_t count, int copies, double* sum) {
  double own = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) own += parts[i];
  own = block_sum(own);
  if (threadIdx.x == 0) *sum += own / copies;
}

// Computes the factor of all gradients: `scale`, reduced if their norm exceeds `max_norm`.
__global__ void scale_kernel(const double* squares, double max_norm, double scale, double* found) {
  if (threadIdx.x > 0) return;
  const double norm = squares != nullptr ? std::sqrt(*squares) : 0;
  *found = squares != nullptr && norm > max_norm ? scale * (max_norm / norm) : scale;
}

// The arrays and parameters that both optimizers' steps of weights of type T use. S is the type of the states.
template <class T>
struct Stepped {
  using S = Accumulator<T>;
  T* value;
  const T* gradient;
  S *master, *first, *second;
  int64_t begin, run, every;
  const double* scale;
  S rate, decay;

  __device__ int64_t place(int64_t i) const { return i / run * every + begin + i % run; }
  __device__ S gradient_at(int64_t at) const { return value_of(gradient[at]) * static_cast<S>(*scale); }
  __device__ S weight(int64_t i, int64_t at) const { return master != nullptr ? master[i] : value_of(value[at]); }
  __device__ void set(int64_t i, int64_t at, S weight) const {
    if (master != nullptr) master[i] = weight;
    value[at] = rounded<T>(weight);
  }
};

template <class T>
struct SgdStep {
  using S = Accumulator<T>;
  Stepped<T> element;
  S momentum;
  template <int N>
  __device__ void at(int64_t i) const {
    const int64_t place = element.place(i);
    const S weight = element.weight(i, place);
    S change = element.gradient_at(place) + element.decay * weight;
    if (element.first != nullptr) {
      change += momentum * element.first[i];
      element.first[i] = change;
    }
    element.set(i, place, weight - element.rate * change);
  }
};

template <class T>
struct AdamwStep {
  using S = Accumulator<T>;
  Stepped<T> element;
  S beta1, beta2, new1, new2, epsilon;  // new1: 1 - beta1
  S correction1, correction2;
  template <int N>
  __device__ void at(int64_t i) const {
    const int64_t place = element.place(i);
    const S weight = element.weight(i, place), g = element.gradient_at(place);
    const S m = beta1 * element.first[i] + new1 * g, v = beta2 * element.second[i] + new2 * g * g;
    element.first[i] = m;
    element.second[i] = v;
    const S kept = weight - element.rate * element.decay * weight;
    element.set(i, place, kept - element.rate * (m / correction1) / (std::sqrt(v / correction2) + epsilon));
  }
};

}  // namespace

void add_squares(Work work, const void* t, int64_t count, int copies, double* sum, const Scratch& scratch) {
  constexpr int64_t kBlock = kThreads * kElementsPerThread;
  const int64_t blocks = std::min((count + kBlock - 1) / kBlock, kMaxParts);
  if (blocks == 0) return;
  auto* parts = static_cast<double*>(scratch(blocks * static_cast<int64_t>(sizeof(double))));
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(squares_kernel<T>, Grid{blocks, kThreads}, work.stream, in<T>(t), count, parts);
  });
  launch(add_parts_kernel, Grid{1, kThreads}, work.stream, parts, blocks, copies, sum);
}

void step_weight(Work work, const WeightStepArguments& step, const Scratch& scratch) {
  if (step.count == 0) return;
  auto* scale = static_cast<double*>(scratch(sizeof(double)));
  launch(scale_kernel, Grid{1, kWarpSize}, work.stream, step.squares, step.max_norm, step.scale, scale);
  with_type(work.dtype, [&](auto zero) {
    using T = decltype(zero);
    using S = Accumulator<T>;
    const Stepped<T> element{out<T>(step.value),
                             in<T>(step.gradient),
                             out<S>(step.master),
                             out<S>(step.first),
                             out<S>(step.second),
                             step.begin,
                             step.run,
                             step.every,
                             scale,
                             static_cast<S>(step.rate),
                             static_cast<S>(step.decay)};
    if (!step.adamw)
      return for_each<T>(work.stream, SgdStep<T>{element, static_cast<S>(step.momentum)}, step.count, false);
    for_each<T>(
        work.stream,
        AdamwStep<T>{element, static_cast<S>(step.beta1), static_cast<S>(step.beta2), static_cast<S>(1 - step.beta1),
                     static_cast<S>(1 - step.beta2), static_cast<S>(step.epsilon), static_cast<S>(step.correction1),
                     static_cast<S>(step.correction2)},
        step.count, false);
  });
}

}  // namespace moe::cuda
