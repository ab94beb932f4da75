#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "moe/device/cuda/check.h"
#include "moe/device/cuda/kernels.h"

namespace moe::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1024;  // about as many blocks as the largest GPUs run at once
constexpr int kCopiesPerLaunch = 64;
// Some GPUs advance their global timer only once a microsecond.
constexpr uint64_t kTimerStepNs = 1024;

__device__ uint64_t global_timer_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

__global__ void nothing_kernel() {}

__global__ void stamp_kernel(uint64_t* at) { *at = global_timer_ns(); }

__global__ void hold_kernel(const uint64_t* since, uint64_t at_least_ns, uint64_t* overruns) {
  const uint64_t deadline = *since + at_least_ns;
  if (global_timer_ns() > deadline) {
    // No other kernel writes the counter, because a counter belongs to one stream.
    if (overruns != nullptr) *overruns += 1;
    return;
  }
  const uint64_t end = deadline + kTimerStepNs;
  for (uint64_t now = global_timer_ns(); now < end; now = global_timer_ns()) {
    // __nanosleep may last twice as long as told.
    if (end - now > 20000) {
      __nanosleep(5000);
    } else if (end - now > 2000) {
      __nanosleep(500);
    }
  }
}

struct CopyBatch {
  Copy copies[kCopiesPerLaunch];
};

template <class Word>
__device__ void copy_words(const Copy& copy, int64_t thread, int64_t threads) {
  const int64_t words = copy.bytes / static_cast<int64_t>(sizeof(Word));
  const Word* __restrict__ from = static_cast<const Word*>(copy.from);
  Word* __restrict__ to = static_cast<Word*>(copy.to);
#pragma unroll 4
  for (int64_t i = thread; i < words; i += threads) to[i] = from[i];
  const auto* from_bytes = static_cast<const unsigned char*>(copy.from);
  auto* to_bytes = static_cast<unsigned char*>(copy.to);
  for (int64_t i = words * static_cast<int64_t>(sizeof(Word)) + thread; i < copy.bytes; i += threads)
    to_bytes[i] = from_bytes[i];
}

/// Does copy blockIdx.y, which the blocks of that grid row share.
__global__ void copy_kernel(const __grid_constant__ CopyBatch batch) {
  const Copy copy = batch.copies[blockIdx.y];
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, threads = int64_t{gridDim.x} * blockDim.x;
  const uintptr_t both = reinterpret_cast<uintptr_t>(copy.to) | reinterpret_cast<uintptr_t>(copy.from);
  if (both % sizeof(uint4) == 0) {
    copy_words<uint4>(copy, thread, threads);
  } else if (both % sizeof(uint32_t) == 0) {
    copy_words<uint32_t>(copy, thread, threads);
  } else {
    copy_words<unsigned char>(copy, thread, threads);
  }
}

__device__ float widened(float x) { return x; }
__device__ double widened(double x) { return x; }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float widened(__half x) { return __half2float(x); }

template <class T, class Wide>
__device__ T narrowed(Wide x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

struct Operands {
  const void* from[kMaxSummands];
  void* to[kMaxSummands];
  int summands = 0, results = 0;
  int64_t elements = 0;
};

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

/// Sums pack `index` of N elements of every operand. All are read before any is written, since they may be the same.
template <class T, int N>
__device__ void sum_pack(const Operands& operands, int64_t index, int64_t first) {
  using P = Pack<T, N>;
  const auto load = [&](int i) {
    return reinterpret_cast<const P*>(static_cast<const T*>(operands.from[i]) + first)[index];
  };
  decltype(widened(T{})) sums[N];
  P pack = load(0);
#pragma unroll
  for (int k = 0; k < N; ++k) sums[k] = widened(pack.at[k]);
  for (int i = 1; i < operands.summands; ++i) {
    pack = load(i);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] += widened(pack.at[k]);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = narrowed<T>(sums[k]);
  for (int i = 0; i < operands.results; ++i)
    reinterpret_cast<P*>(static_cast<T*>(operands.to[i]) + first)[index] = pack;
}

template <class T, int N>
__global__ void sum_kernel(const __grid_constant__ Operands operands) {
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, threads = int64_t{gridDim.x} * blockDim.x;
  const int64_t packs = operands.elements / N;
  for (int64_t i = thread; i < packs; i += threads) sum_pack<T, N>(operands, i, 0);
  for (int64_t i = thread; i < operands.elements - packs * N; i += threads) sum_pack<T, 1>(operands, i, packs * N);
}

unsigned blocks_for(int64_t units, int64_t most) {
  return static_cast<unsigned>(std::clamp((units + kThreads - 1) / kThreads, int64_t{1}, std::max(most, int64_t{1})));
}

bool aligned(const Operands& operands) {
  uintptr_t all = 0;
  for (int i = 0; i < operands.summands; ++i) all |= reinterpret_cast<uintptr_t>(operands.from[i]);
  for (int i = 0; i < operands.results; ++i) all |= reinterpret_cast<uintptr_t>(operands.to[i]);
  return all % 16 == 0;
}

template <class T>
void launch_sum_of(const Operands& operands, cudaStream_t stream) {
  constexpr int kPack = 16 / sizeof(T);
  if (aligned(operands)) {
    sum_kernel<T, kPack><<<blocks_for(operands.elements / kPack, kMaxBlocks), kThreads, 0, stream>>>(operands);
  } else {
    sum_kernel<T, 1><<<blocks_for(operands.elements, kMaxBlocks), kThreads, 0, stream>>>(operands);
  }
  MOE_CHECK_CUDA(cudaGetLastError());
}

template <class Kernel>
void load(Kernel* kernel) {
  cudaFuncAttributes attributes;
  MOE_CHECK_CUDA(cudaFuncGetAttributes(&attributes, kernel));
}

template <class T>
void load_sums_of() {
  load(sum_kernel<T, 16 / sizeof(T)>);
  load(sum_kernel<T, 1>);
}

}  // namespace

void load_kernels() {
  load(nothing_kernel);
  load(stamp_kernel);
  load(hold_kernel);
  load(copy_kernel);
  load_sums_of<float>();
  load_sums_of<double>();
  load_sums_of<__nv_bfloat16>();
  load_sums_of<__half>();
}

void launch_nothing(cudaStream_t stream) {
  nothing_kernel<<<1, 1, 0, stream>>>();
  MOE_CHECK_CUDA(cudaGetLastError());
}

void launch_timestamp(uint64_t* at, cudaStream_t stream) {
  stamp_kernel<<<1, 1, 0, stream>>>(at);
  MOE_CHECK_CUDA(cudaGetLastError());
}

void launch_hold(const uint64_t* since, uint64_t at_least_ns, uint64_t* overruns, cudaStream_t stream) {
  hold_kernel<<<1, 1, 0, stream>>>(since, at_least_ns, overruns);
  MOE_CHECK_CUDA(cudaGetLastError());
}

void launch_copies(std::span<const Copy> copies, cudaStream_t stream) {
  CopyBatch batch;
  int count = 0;
  int64_t largest = 0;
  const auto flush = [&] {
    if (count == 0) return;
    const dim3 grid(blocks_for(largest / 16, kMaxBlocks / count), static_cast<unsigned>(count));
    copy_kernel<<<grid, kThreads, 0, stream>>>(batch);
    MOE_CHECK_CUDA(cudaGetLastError());
    count = 0;
    largest = 0;
  };
  for (const Copy& copy : copies) {
    if (copy.bytes == 0 || copy.to == copy.from) continue;
    batch.copies[count++] = copy;
    largest = std::max(largest, copy.bytes);
    if (count == kCopiesPerLaunch) flush();
  }
  flush();
}

void launch_sum(const Sum& sum, cudaStream_t stream) {
  if (sum.elements == 0) return;
  Operands operands;
  operands.elements = sum.elements;
  for (const void* from : sum.from) operands.from[operands.summands++] = from;
  for (void* to : sum.to) operands.to[operands.results++] = to;
  switch (sum.dtype) {
    case DType::float32:
      return launch_sum_of<float>(operands, stream);
    case DType::float64:
      return launch_sum_of<double>(operands, stream);
    case DType::bfloat16:
      return launch_sum_of<__nv_bfloat16>(operands, stream);
    case DType::float16:
      return launch_sum_of<__half>(operands, stream);
  }
}

}  // namespace moe::cuda
