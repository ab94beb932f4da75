// Kernels of the cross-entropy over a part of the vocabulary. A block of threads handles one token's row of logits.
#include "moe/tensor/cuda/kernels.h"
#include "moe/tensor/cuda/reduce.cuh"

namespace moe::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) softmax_sums_kernel(LossRows args, double* sums) {
  using A = Accumulator<T>;
  const T* row = static_cast<const T*>(args.logits) + static_cast<int64_t>(blockIdx.x) * args.words;
  A largest[] = {-INFINITY};
  for (int64_t j = threadIdx.x; j < args.words; j += blockDim.x) largest[0] = Maximum()(largest[0], value_of(row[j]));
  block_reduce(largest, Maximum());
  A sum = 0;
  for (int64_t j = threadIdx.x; j < args.words; j += blockDim.x) sum += std::exp(value_of(row[j]) - largest[0]);
  sum = block_sum(sum);
  if (threadIdx.x > 0) return;
  const int64_t target = args.target[blockIdx.x] - args.first;
  double* own = sums + static_cast<int64_t>(blockIdx.x) * kLossSums;
  own[0] = static_cast<double>(largest[0]);
  own[1] = static_cast<double>(sum);
  own[2] = target >= 0 && target < args.words ? static_cast<double>(value_of(row[target])) : 0;
}

// Thread 0 of each block combines the token's sums of all parts of the vocabulary.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward_kernel(LossRows args, const double* sums, int parts, double counted) {
  using A = Accumulator<T>;
  __shared__ A all[2];  // the largest logit over all parts; 1 / (sum of exp(logit - largest) * counted)
  T* row = static_cast<T*>(args.logits) + static_cast<int64_t>(blockIdx.x) * args.words;
  const bool counts = args.target[blockIdx.x] >= 0;
  if (threadIdx.x == 0 && counts) {
    const auto part = [&](int p) { return sums + (p * args.tokens + blockIdx.x) * kLossSums; };
    double largest = part(0)[0], sum = 0;
    for (int p = 1; p < parts; ++p) largest = Maximum()(largest, part(p)[0]);
    for (int p = 0; p < parts; ++p) sum += part(p)[1] * std::exp(part(p)[0] - largest);
    all[0] = static_cast<A>(largest);
    all[1] = static_cast<A>(1 / (sum * counted));
  }
  __syncthreads();
  const int64_t target = args.target[blockIdx.x] - args.first;
  for (int64_t j = threadIdx.x; j < args.words; j += blockDim.x) {
    const A p = counts ? std::exp(value_of(row[j]) - all[0]) * all[1] : A(0);
    row[j] = rounded<T>(counts && j == target ? p - static_cast<A>(1 / counted) : p);
  }
}

}  // namespace

void softmax_sums(Work work, const LossRows& args, double* sums) {
  with_type(work.dtype, [&](auto zero) {
    launch(softmax_sums_kernel<decltype(zero)>, Grid{args.tokens, kThreads}, work.stream, args, sums);
  });
}

void cross_entropy_backward(Work work, const LossRows& args, const double* sums, int parts, double counted) {
  with_type(work.dtype, [&](auto zero) {
    launch(cross_entropy_backward_kernel<decltype(zero)>, Grid{args.tokens, kThreads}, work.stream, args, sums, parts,
           counted);
  });
}

}  // namespace moe::cuda
