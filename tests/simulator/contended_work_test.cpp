#include "moe/simulator/contended_work.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "moe/base/random.h"

namespace moe {
namespace {

Contention slowed(double compute_by_inter, double inter_by_compute) {
  Contention c;
  c.compute_by_inter = compute_by_inter;
  c.inter_by_compute = inter_by_compute;
  return c;
}

// Returns the least seconds of two lanes' work, by hand: they run side by side until one has ended, or not at all.
double by_hand(double a_s, double b_s, double a_slowed, double b_slowed) {
  const double both = std::min(a_s * a_slowed, b_s * b_slowed);
  return std::min(a_s + b_s, both + (a_s - both / a_slowed) + (b_s - both / b_slowed));
}

TEST(ContendedWork, OfTwoLanesIsWhatOneFindsByHand) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const auto draw = [&](uint64_t i) { return random_uniform(seed, 1, i); };
    const double a_s = draw(0), b_s = draw(1), f = 1 + 2 * draw(2), g = 1 + 2 * draw(3);
    const std::vector<LaneWork> compute{{0, Resource::compute, a_s}}, inter{{1, Resource::inter, b_s}};
    const std::vector<std::vector<LaneWork>> side_by_side{{compute[0], inter[0]}}, in_turn{compute, inter};
    const double min_s = by_hand(a_s, b_s, f, g);
    EXPECT_NEAR(min_contended_seconds(slowed(f, g), side_by_side, {}), min_s, 1e-9) << seed;
    EXPECT_NEAR(min_contended_seconds(slowed(f, g), {&compute, 1}, inter), min_s, 1e-9) << seed;
    EXPECT_NEAR(min_contended_seconds(slowed(f, g), in_turn, {}), a_s + b_s, 1e-9) << seed;
  }
}

TEST(ContendedWork, OfOneLaneAddsUpWhateverItUses) {
  const std::vector<std::vector<LaneWork>> comm{{{1, Resource::inter, 2}, {1, Resource::intra, 3}}};
  EXPECT_NEAR(min_contended_seconds({}, comm, {}), 5, 1e-12);
  std::vector<LaneWork> works;
  add_work(works, {1, Resource::inter, 2});
  add_work(works, {1, Resource::intra, 1});
  add_work(works, {1, Resource::inter, 3});
  ASSERT_EQ(works.size(), 2u);
  EXPECT_EQ(works[0].seconds, 5);
}

TEST(ContendedWork, OfLanesThatShareANetworkTakesTurns) {
  const std::vector<std::vector<LaneWork>> exchange{{{1, Resource::inter, 2}}};
  const std::vector<LaneWork> gradients{{2, Resource::inter, 3}}, copies{{2, Resource::none, 3}};
  EXPECT_NEAR(min_contended_seconds({}, exchange, gradients), 5, 1e-12);
  EXPECT_NEAR(min_contended_seconds({}, exchange, copies), 3, 1e-12) << "what uses nothing is not slowed";
}

TEST(ContendedWork, BesideRunsBesideEveryStretchButOnce) {
  const std::vector<std::vector<LaneWork>> stretches{{{0, Resource::compute, 1}}, {{0, Resource::compute, 4}}};
  const std::vector<LaneWork> gradients{{1, Resource::inter, 3}};
  EXPECT_NEAR(min_contended_seconds({}, stretches, gradients), 5, 1e-12);
  EXPECT_NEAR(min_contended_seconds(slowed(1, 2), stretches, gradients), 5.5, 1e-12) << "2.5 s beside, 0.5 after";
}

// No more than all works one after another, and no less than the longest, however much they slow each other.
TEST(ContendedWork, IsNeverMoreThanAllOfIt) {
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    const auto draw = [&](uint64_t i) { return random_uniform(seed, 2, i); };
    const double most = std::pow(10, 6 * draw(0));
    Contention contention;
    for (uint64_t i = 0; const ContentionPair& pair : contention_pairs())
      contention.*pair.factor = draw(++i) < 0.5 ? 1 : 1 + (most - 1) * draw(100 + i);
    std::vector<std::vector<LaneWork>> stretches(1 + seed % 3);
    std::vector<LaneWork> beside;
    double all_s = 0, longest_s = 0;
    const auto work = [&](int lane, uint64_t i) {
      const double seconds = std::pow(10, -6 + 4 * draw(i));
      all_s += seconds;
      longest_s = std::max(longest_s, seconds);
      return LaneWork{lane, static_cast<Resource>(lane), seconds};
    };
    for (size_t s = 0; s < stretches.size(); ++s)
      for (int lane = 0; lane < 4; ++lane)
        if (draw(200 + 10 * s + static_cast<uint64_t>(lane)) < 0.7)
          stretches[s].push_back(work(lane, 300 + 10 * s + static_cast<uint64_t>(lane)));
    if (seed % 2 == 0) beside.push_back(work(static_cast<int>(seed % 4), 400));
    const double min_s = min_contended_seconds(contention, stretches, beside);
    ASSERT_LE(min_s, all_s * (1 + 1e-12)) << seed << ", factors up to " << most;
    ASSERT_GE(min_s, longest_s * (1 - 1e-9)) << seed << ", factors up to " << most;
  }
}

}  // namespace
}  // namespace moe
