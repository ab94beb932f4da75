#pragma once
// Elements and packs of up to 16 bytes of them. Arithmetic is in float64 for float64 elements, else in float32.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "moe/base/numbers.h"
#include "moe/tensor/cuda/launch.cuh"

namespace moe::cuda {

inline constexpr int kThreads = 256, kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

template <class T>
__device__ inline Accumulator<T> value_of(T v) {
  if constexpr (std::is_same_v<T, Accumulator<T>>)
    return v;
  else
    return to_float(v);
}

template <class T, class From>
__device__ inline T rounded(From v) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return static_cast<T>(v);
  } else {
    T out;
    round_to(v, out);
    return out;
  }
}

/// Returns 1 / (1 + exp(-v)), for 16-bit elements by approximate instructions, whose errors are below their rounding.
template <class T>
__device__ inline Accumulator<T> logistic(Accumulator<T> v) {
  if constexpr (sizeof(T) == 2)
    return quick_inverse(1 + quick_exp2(-1.44269504F * v));
  else
    return 1 / (1 + std::exp(-v));
}

/// N elements that one instruction reads or writes; at most 16 bytes.
template <class T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <int N, class T>
__device__ inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ inline void store(const Pack<T, N>& pack, T* to) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// The bits of a pack in registers: 16 bytes are four words, because each 16-bit element would take a register.
struct alignas(16) Words {
  uint32_t at[4];
};
template <class T, int N>
using PackBits = std::conditional_t<N * sizeof(T) == 16, Words, Pack<T, N>>;
template <class T, int N>
__device__ inline PackBits<T, N> to_pack_bits(const Pack<T, N>& pack) {
  return __builtin_bit_cast(PackBits<T, N>, pack);
}
template <class T, int N>
__device__ inline Pack<T, N> from_pack_bits(const PackBits<T, N>& held) {
  return __builtin_bit_cast(Pack<T, N>, held);
}

/// The number of elements in 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// Calls body(T{}), where T is the type that `dtype` names; 16-bit types are those of CUDA.
template <class Body>
void with_type(DType dtype, Body body) {
  with_number_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, moe::Bfloat16>)
      body(Bfloat16{});
    else if constexpr (std::is_same_v<T, moe::Float16>)
      body(Float16{});
    else
      body(zero);
  });
}

/// Calls body(std::integral_constant<int, N>), where N is the number of elements that a thread reads at once: the
/// number in 16 bytes if `whole`, else 1.
template <class T, class Body>
void with_pack(bool whole, Body body) {
  if (whole)
    body(std::integral_constant<int, kPack<T>>{});
  else
    body(std::integral_constant<int, 1>{});
}

/// These return a grid with a thread, or a warp, for each of `count` items.
inline Grid threads_for(int64_t count) { return {(count + kThreads - 1) / kThreads, kThreads}; }
inline Grid warps_for(int64_t count) { return threads_for(count * kWarpSize); }

__device__ inline int64_t thread_index() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t warp_index() { return thread_index() / kWarpSize; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarpSize; }

}  // namespace moe::cuda
