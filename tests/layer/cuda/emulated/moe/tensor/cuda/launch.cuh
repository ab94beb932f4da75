#pragma once
// CUDA's execution model on the CPU, for kernels compiled as plain C++: blocks one after the other, the threads of a
// block as fibers of the calling thread. Stricter than a GPU: a barrier that not every thread of the block reaches at
// the same line, or a warp operation without all 32 lanes, ends the launch with WrongResult.
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string_view>

#include "moe/base/numbers.h"
#include "moe/tensor/fp8.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local  // launches of several ranks run side by side, each on a thread of its own

struct EmulatedIndex {
  unsigned x = 0;
};
extern thread_local EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

namespace moe::emulation {

using Site = std::source_location;

/// Runs `thread` for every thread of every block.
void run(int64_t blocks, int threads, const std::function<void()>& thread);
/// Sets in which order the threads of a block run between two barriers, from now on in this process.
void set_backwards(bool backwards);
/// Returns how many launches there were in this process.
int64_t launches();

void block_barrier(Site site);
/// Gives `bits` to the warp; returns what all 32 lanes gave.
const uint64_t* exchange(unsigned mask, uint64_t bits, Site site);

template <class T>
uint64_t bits_of(T value) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<uint64_t>(value);
  else
    return std::bit_cast<uint32_t>(value);
}
template <class T>
T from_bits(uint64_t bits) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(bits);
  else
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
}
inline unsigned lane() { return threadIdx.x % 32; }

}  // namespace moe::emulation

inline void __syncthreads(moe::emulation::Site site = moe::emulation::Site::current()) {
  moe::emulation::block_barrier(site);
}
inline void __syncwarp(unsigned mask = ~0U, moe::emulation::Site site = moe::emulation::Site::current()) {
  moe::emulation::exchange(mask, 0, site);
}
template <class T>
T __shfl_sync(unsigned mask, T v, int from, moe::emulation::Site site = moe::emulation::Site::current()) {
  return moe::emulation::from_bits<T>(moe::emulation::exchange(mask, moe::emulation::bits_of(v), site)[from & 31]);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int by, moe::emulation::Site site = moe::emulation::Site::current()) {
  return __shfl_sync(mask, v, static_cast<int>(moe::emulation::lane()) ^ by, site);
}
inline unsigned __ballot_sync(unsigned mask, int vote, moe::emulation::Site site = moe::emulation::Site::current()) {
  const uint64_t* votes = moe::emulation::exchange(mask, vote != 0, site);
  unsigned all = 0;
  for (int i = 0; i < 32; ++i) all |= static_cast<unsigned>(votes[i]) << i;
  return all;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }

namespace moe::cuda {

using moe::Bfloat16;
using moe::Float16;

inline uint32_t to_fp8_bits(double a, double b) { return to_fp8(a) | uint32_t{to_fp8(b)} << 8; }
inline float from_fp8_bits(uint8_t bits) { return from_fp8(bits); }
inline float quick_exp(float v) { return std::exp(v); }
inline float quick_exp2(float v) { return std::exp2(v); }
inline float quick_inverse(float v) { return 1 / v; }
inline float inverse_root(float v) { return 1 / std::sqrt(v); }
inline double inverse_root(double v) { return 1 / std::sqrt(v); }

struct Grid {
  int64_t blocks = 0;
  int threads = 0;
};

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), Grid grid, void*, Args... args) {
  emulation::run(grid.blocks, grid.threads, [&] { kernel(static_cast<Params>(args)...); });
}

}  // namespace moe::cuda
