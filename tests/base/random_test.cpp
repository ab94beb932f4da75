#include "moe/base/random.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

namespace moe {
namespace {

TEST(Random, DependsOnSeedStreamAndIndexAlone) {
  const uint64_t stream = random_stream_id("w1", 3);
  const double first = random_normal(7, stream, 41);
  random_normal(7, stream, 40);
  EXPECT_EQ(random_normal(7, stream, 41), first);
  EXPECT_NE(random_normal(8, stream, 41), first);
  EXPECT_NE(random_normal(7, random_stream_id("w1", 4), 41), first);
  EXPECT_NE(random_normal(7, random_stream_id("w2", 3), 41), first);
}

TEST(Random, IsTheSameOnEveryMachine) {
  // From an independent implementation.
  EXPECT_EQ(random_bits(0, 0, 0), 0x568a9b0b1a2c05ecu);
  EXPECT_EQ(random_bits(1, 2, 3), 0xeb3aa0ce549fec8cu);
  EXPECT_EQ(random_stream_id("w1", 3), 0xd2c12d0e39609a3eu);
  EXPECT_EQ(random_uniform(1, 2, 3), static_cast<double>(random_bits(1, 2, 3) >> 11) * 0x1.0p-53);
}

TEST(Random, BitsDoNotRepeat) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (uint64_t stream = 0; stream < 10; ++stream)
      for (uint64_t index = 0; index < 100; ++index) seen.insert(random_bits(seed, stream, index));
  EXPECT_EQ(seen.size(), 10'000u);
}

TEST(Random, UniformHasItsMoments) {
  const uint64_t stream = random_stream_id("moments");
  constexpr int kDraws = 100'000;
  double mean = 0, square = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random_uniform(1, stream, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    mean += u / kDraws;
    square += u * u / kDraws;
  }
  EXPECT_NEAR(mean, 1.0 / 2, 0.005);
  EXPECT_NEAR(square, 1.0 / 3, 0.005);
}

TEST(Random, NormalHasItsMoments) {
  const uint64_t stream = random_stream_id("moments");
  constexpr int kDraws = 100'000;
  double mean = 0, square = 0, fourth = 0, lag = 0, before = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = random_normal(1, stream, static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    mean += x / kDraws;
    square += x * x / kDraws;
    fourth += x * x * x * x / kDraws;
    lag += x * before / kDraws;
    before = x;
  }
  EXPECT_NEAR(mean, 0, 0.015);
  EXPECT_NEAR(square, 1, 0.02);
  EXPECT_NEAR(fourth, 3, 0.15);
  EXPECT_NEAR(lag, 0, 0.015);
}

}  // namespace
}  // namespace moe
