#include "commands/regress/resampling.h"

#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/random.h"

namespace moe::regress {
namespace {

// Launches of two cases, five iterations on four ranks; a launch deviates as a whole.
std::vector<Round> recorded(size_t rounds, double deviation) {
  std::vector<Round> all(rounds);
  uint64_t at = 0;
  for (Round& round : all)
    for (auto* arm : {&round.base, &round.head})
      for (const double seconds : {0.01, 0.2}) {
        CaseTimes times;
        const double launch = seconds * std::exp(deviation * random_normal(9, 0, at++));
        times.samples.assign(5, std::vector<double>(4, launch));
        for (auto& ranks : times.samples) ranks[2] *= 1.01;  // the slowest rank
        arm->push_back(times);
      }
  return all;
}

TEST(Resampling, KnowsTheDeviationOfALaunch) {
  EXPECT_NEAR(launch_deviation(recorded(400, 0.02), 0), 0.02, 0.003);
  EXPECT_NEAR(launch_deviation(recorded(400, 0.02), 1), 0.02, 0.003);
}

TEST(Resampling, FindsWhatIsInjectedAndNothingElse) {
  const std::vector<Round> rounds = recorded(60, 0.01);
  for (const Injection& injection : injections()) {
    const ResampledGates gates = resample(rounds, Rule(), injection, 200, 1);
    EXPECT_EQ(gates.gates, 200);
    if (injection.slowdown == 0)
      EXPECT_LE(gates.any_slow, 2);
    else
      EXPECT_GE(gates.found, injection.share_of_launches < 1 ? 80 : 190) << injection.name;
  }
}

// Slowing the rank that nobody waits for changes nothing, as long as it stays the faster one.
TEST(Resampling, ARankThatNobodyWaitsForMayBeSlower) {
  const Injection little{"0.5 % of one rank", 0.005, true};
  EXPECT_EQ(resample(recorded(60, 0.005), Rule(), little, 200, 1).found, 0);
}

TEST(Resampling, TheFloorGrowsWithTheNoise) {
  const double quiet = noise_floor_of(recorded(60, 0.005), 12, 500, 1),
               rough = noise_floor_of(recorded(60, 0.03), 12, 500, 1);
  EXPECT_LT(quiet, 0.012);
  EXPECT_GT(rough, 3 * quiet);
}

TEST(Resampling, TakesRoundsWithoutATime) {
  std::vector<Round> rounds = recorded(60, 0.01);
  for (size_t r = 0; r < rounds.size(); r += 7) rounds[r].head[1].reset();
  EXPECT_NEAR(launch_deviation(rounds, 1), 0.01, 0.004);
  EXPECT_LE(resample(rounds, Rule(), injections().front(), 200, 1).any_slow, 2);
}

}  // namespace
}  // namespace moe::regress
