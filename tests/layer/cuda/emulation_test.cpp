// The emulation itself: what it must do as a GPU does, and what it must refuse.
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "moe/base/check.h"
#include "moe/tensor/cuda/reduce.cuh"
#include "tests/layer/cuda/test_device.h"

namespace moe::cuda {
namespace {

// Restores the order of threads.
struct Backwards {
  explicit Backwards(bool backwards) { emulation::set_backwards(backwards); }
  ~Backwards() { emulation::set_backwards(false); }
};

__global__ void index_kernel(int64_t* out) { out[thread_index()] = blockIdx.x * 1000 + threadIdx.x; }

TEST(Emulation, RunsEveryThreadOfEveryBlock) {
  std::vector<int64_t> out(3 * 64, -1);
  launch(index_kernel, {3, 64}, nullptr, out.data());
  for (int64_t i = 0; i < 192; ++i) EXPECT_EQ(out[i], i / 64 * 1000 + i % 64);
  launch(index_kernel, {0, 64}, nullptr, static_cast<int64_t*>(nullptr));
}

// Every thread sends its number round the block by shared memory, then round its warp.
__global__ void pass_on_kernel(int* out, bool waits) {
  __shared__ int box[96];
  box[threadIdx.x] = -1;
  __syncthreads();
  box[(threadIdx.x + 1) % 96] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  const int got = box[threadIdx.x], from = lane_index() == 0 ? 31 : lane_index() - 1;
  out[threadIdx.x] = got + 1000 * __shfl_sync(kAllLanes, got, from);
}

bool passed_on(bool waits) {
  std::vector<int> out(96);
  launch(pass_on_kernel, {1, 96}, nullptr, out.data(), waits);
  bool right = true;
  for (int i = 0; i < 96; ++i) {
    const int neighbour = i / 32 * 32 + (i + 31) % 32;
    right &= out[i] == (i + 95) % 96 + 1000 * ((neighbour + 95) % 96);
  }
  return right;
}

TEST(Emulation, BarriersAndShufflesWorkInEitherOrderOfThreads) {
  for (const bool backwards : {false, true}) {
    const Backwards order(backwards);
    EXPECT_TRUE(passed_on(true));
  }
}

TEST(Emulation, AMissingBarrierShows) {
  bool all = true;
  for (const bool backwards : {false, true}) {
    const Backwards order(backwards);
    all &= passed_on(false);
  }
  EXPECT_FALSE(all);
}

__global__ void sums_kernel(double* out) {
  out[3 * threadIdx.x] = block_sum(static_cast<double>(threadIdx.x));
  out[3 * threadIdx.x + 1] = block_sum(1.0);
  out[3 * threadIdx.x + 2] = warp_max(-static_cast<double>(threadIdx.x)) + __ballot_sync(kAllLanes, threadIdx.x % 2);
}

TEST(Emulation, Reduces) {
  std::vector<double> out(3 * kThreads);
  launch(sums_kernel, {1, kThreads}, nullptr, out.data());
  for (int i = 0; i < kThreads; ++i) {
    const auto at = static_cast<size_t>(3 * i);
    EXPECT_EQ(out[at], kThreads * (kThreads - 1) / 2);
    EXPECT_EQ(out[at + 1], kThreads);
    EXPECT_EQ(out[at + 2], -(i / 32 * 32) + double{0xaaaaaaaa});
  }
}

__global__ void some_wait_kernel() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void two_barriers_kernel() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void part_of_a_warp_kernel() {
  if (threadIdx.x % 2 == 0) __shfl_sync(kAllLanes, 1, 0);
}
__global__ void narrow_mask_kernel() { __shfl_sync(0xffffU, 1, 0); }

TEST(Emulation, RefusesThreadsThatDiverge) {
  for (void (*kernel)() : {some_wait_kernel, two_barriers_kernel, part_of_a_warp_kernel, narrow_mask_kernel}) {
    EXPECT_THROW(launch(kernel, {2, 64}, nullptr), WrongResult);
    EXPECT_TRUE(passed_on(true)) << "the next launch";
  }
  EXPECT_THROW(launch(some_wait_kernel, {1, 40}, nullptr), WrongResult);
}

__global__ void touch_kernel(const char* data, int64_t at, char* out) { *out = data[at]; }
__global__ void write_kernel(char* data, int64_t at) { data[at] = 1; }

TEST(GuardedMemoryDeathTest, EndsTheProcessThatLeavesAnAllocation) {
  for (const int64_t bytes : {1, 16, 5000}) {
    const auto memory = make_test_memory();
    Memory block = memory->allocate(bytes);
    auto* data = static_cast<char*>(block.data());
    char out = 7;
    launch(touch_kernel, {1, 32}, nullptr, data, bytes - 1, &out);
    EXPECT_EQ(out, 0);
    EXPECT_DEATH(launch(touch_kernel, {1, 32}, nullptr, data, (bytes + 15) / 16 * 16, &out), "");
    EXPECT_DEATH(launch(touch_kernel, {1, 32}, nullptr, data, int64_t{-4096}, &out), "");
    if (bytes % 16 == 0) continue;
    EXPECT_DEATH((launch(write_kernel, {1, 32}, nullptr, data, bytes), block = Memory()), "wrote outside");
  }
}

TEST(SixteenBits, RoundToNearestEven) {
  const auto bf16 = [](double v) {
    Bfloat16 out;
    round_to(v, out);
    return to_float(out);
  };
  const auto f16 = [](double v) {
    Float16 out;
    round_to(v, out);
    return to_float(out);
  };
  EXPECT_EQ(bf16(1 + 0x1p-8), 1);               // a tie, to even
  EXPECT_EQ(bf16(1 + 3 * 0x1p-8), 1 + 0x1p-6);  // likewise
  EXPECT_EQ(bf16(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(f16(1 + 0x1p-11), 1);
  EXPECT_EQ(f16(65519), 65504);
  EXPECT_EQ(f16(65520), HUGE_VALF);
  EXPECT_EQ(f16(-0x1p-24), -0x1p-24);
  EXPECT_EQ(f16(0x1p-26), 0);
  EXPECT_TRUE(std::isnan(f16(NAN)) && std::isnan(bf16(NAN)));
  for (int bits = 0; bits < 65536; ++bits) {  // every number is its own nearest
    const Float16 h{static_cast<uint16_t>(bits)};
    const Bfloat16 b{static_cast<uint16_t>(bits)};
    ASSERT_TRUE(f16(to_float(h)) == to_float(h) || std::isnan(to_float(h)));
    ASSERT_TRUE(bf16(to_float(b)) == to_float(b) || std::isnan(to_float(b)));
  }
}

}  // namespace
}  // namespace moe::cuda
