#include "moe/cost/contended_work.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "moe/base/random.h"

namespace moe::cost {
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
    const double least_s = by_hand(a_s, b_s, f, g);
    EXPECT_NEAR(least_contended_seconds(slowed(f, g), side_by_side, {}), least_s, 1e-9) << seed;
    EXPECT_NEAR(least_contended_seconds(slowed(f, g), {&compute, 1}, inter), least_s, 1e-9) << seed;
    EXPECT_NEAR(least_contended_seconds(slowed(f, g), in_turn, {}), a_s + b_s, 1e-9) << seed;
  }
}

TEST(ContendedWork, OfOneLaneAddsUpWhateverItUses) {
  const std::vector<std::vector<LaneWork>> comm{{{1, Resource::inter, 2}, {1, Resource::intra, 3}}};
  EXPECT_NEAR(least_contended_seconds({}, comm, {}), 5, 1e-12);
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
  EXPECT_NEAR(least_contended_seconds({}, exchange, gradients), 5, 1e-12);
  EXPECT_NEAR(least_contended_seconds({}, exchange, copies), 3, 1e-12) << "what uses nothing is not slowed";
}

TEST(ContendedWork, BesideRunsBesideEveryStretchButOnce) {
  const std::vector<std::vector<LaneWork>> stretches{{{0, Resource::compute, 1}}, {{0, Resource::compute, 4}}};
  const std::vector<LaneWork> gradients{{1, Resource::inter, 3}};
  EXPECT_NEAR(least_contended_seconds({}, stretches, gradients), 5, 1e-12);
  EXPECT_NEAR(least_contended_seconds(slowed(1, 2), stretches, gradients), 5.5, 1e-12) << "2.5 s beside, 0.5 after";
}

}  // namespace
}  // namespace moe::cost
