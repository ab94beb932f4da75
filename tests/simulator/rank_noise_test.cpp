#include "moe/simulator/rank_noise.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numbers>

namespace moe {
namespace {

RankNoise noise_of(Jitter jitter, double coefficient) {
  RankNoise noise;
  noise.jitter = jitter;
  noise.coefficient = coefficient;
  return noise;
}

// The share of draws below a factor, and its distance to the nearer end.
double share_below(const RankNoise& noise, double factor) {
  if (noise.jitter == Jitter::uniform) return 0.5 + (factor - 1) / (2 * std::numbers::sqrt3 * noise.coefficient);
  const double variance = std::log1p(noise.coefficient * noise.coefficient);
  return 0.5 * std::erfc(-(std::log(factor) + variance / 2) / std::sqrt(2 * variance));
}

TEST(JitterDraws, TabulateTheDistribution) {
  std::vector<uint32_t> all{0, 1, 2, 3, 7, 100, 12345, 0x7fffffff, 0x80000000, 0xffffff00, 0xfffffffe, 0xffffffff};
  for (uint64_t bits = 0; bits < 0x100000000; bits += 0x3ffff) all.push_back(static_cast<uint32_t>(bits));
  std::ranges::sort(all);
  for (const RankNoise& noise :
       {noise_of(Jitter::uniform, 0.3), noise_of(Jitter::lognormal, 0.05), noise_of(Jitter::lognormal, 1)}) {
    const JitterDraws draws(noise);
    double worst = 0, before = 0;
    for (const uint32_t bits : all) {
      const double share = (bits + 0.5) * 0x1p-32, found = draws.quantile(bits);
      // Of the share itself or of what is above it: far out in a tail as right as in the middle.
      worst = std::max(worst, std::abs(share_below(noise, found) - share) / std::min(share, 1 - share));
      EXPECT_GE(found, before) << bits;
      before = found;
    }
    fmt::print("{} quantiles: shares off by at most {:.1e} of themselves\n", all.size(), worst);
    EXPECT_LT(worst, 1e-3);
  }
}

TEST(JitterDraws, HaveTheirMeanAndCoefficient) {
  constexpr int kRanks = 1000, kTasks = 1000;
  for (const RankNoise& noise :
       {noise_of(Jitter::uniform, 0.3), noise_of(Jitter::lognormal, 0.05), noise_of(Jitter::lognormal, 0.5)}) {
    const JitterDraws draws(noise);
    double sum = 0, squares = 0;
    for (int task = 0; task < kTasks; ++task)
      for (int rank = 0; rank < kRanks; ++rank) {
        const double off = draws.factor(task, 3, rank) - 1;
        sum += off;
        squares += off * off;
      }
    constexpr double kDraws = double{kRanks} * kTasks;
    EXPECT_NEAR(sum / kDraws, 0, 4 * noise.coefficient / std::sqrt(kDraws));
    EXPECT_NEAR(std::sqrt(squares / kDraws), noise.coefficient, 0.01 * noise.coefficient);
  }
}

// Neighbouring ranks share a random number, neighbouring tasks and samples a seed.
TEST(JitterDraws, AreIndependent) {
  const JitterDraws draws(noise_of(Jitter::uniform, 0.5));
  RankNoise reseeded = noise_of(Jitter::uniform, 0.5);
  ++reseeded.seed;
  const JitterDraws others(reseeded);
  constexpr int kDraws = 100'000;
  double rank = 0, next = 0, task = 0, sample = 0, seed = 0, swapped = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double here = (draws.factor(7, 2, i) - 1) / 0.5;
    rank += here * (draws.factor(7, 2, i ^ 1) - 1) / 0.5;
    next += here * (draws.factor(7, 2, i + 1) - 1) / 0.5;
    task += here * (draws.factor(8, 2, i) - 1) / 0.5;
    sample += here * (draws.factor(7, 3, i) - 1) / 0.5;
    swapped += here * (draws.factor(2, 7, i) - 1) / 0.5;
    seed += here * (others.factor(7, 2, i) - 1) / 0.5;
  }
  // Every pair of neighbours is counted twice in the first: its bound is wider.
  EXPECT_LT(std::abs(rank), 5 * std::sqrt(2.0 * kDraws));
  for (const double correlation : {next, task, sample, seed, swapped})
    EXPECT_LT(std::abs(correlation), 5 * std::sqrt(kDraws));
}

TEST(JitterDraws, OfABlockAreThoseOfItsRanks) {
  const JitterDraws draws(noise_of(Jitter::lognormal, 0.2));
  for (const int first : {0, 1, 6, 99})
    for (const size_t count : {0u, 1u, 2u, 5u, 8u}) {
      std::vector<uint32_t> bits(count);
      std::vector<double> factors(count);
      draws.draw(4, 1, first, bits);
      draws.quantiles(bits, factors.data());
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(factors[i], draws.factor(4, 1, first + static_cast<int>(i))) << first << " + " << i;
    }
}

}  // namespace
}  // namespace moe
